"""The input schemas of the official Pulumi SDKs as JSON Schema, for validating graphs.

providers/<cloud>/data/schema.json holds the input properties of the resource types that the stacks
use, taken from pulumi-aws 7.51.1, pulumi-gcp 10.2.0 and pulumi-azure-native 3.29.0.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

FOLDER = Path(__file__).parents[2] / "providers"
ROOMS = {"aws": "aws", "gcp": "gcp", "azure-native": "azure"}
ANYTHING: dict[str, Any] = {}
PLAIN = {
    "string": "string",
    "boolean": "boolean",
    "integer": "integer",
    "number": "number",
}


@cache
def package(name: str) -> dict[str, Any]:
    """The extract of one SDK."""
    found: dict[str, Any] = json.loads(
        (FOLDER / ROOMS[name] / "data/schema.json").read_text()
    )
    return found


def errors(kind: str, inputs: dict[str, Any]) -> list[str]:
    """What the official schema says against the inputs of a resource."""
    return list(_errors(kind, json.dumps(_filled(inputs))))


# Stacks differ in few of their resources, and a check takes long.
@cache
def _errors(kind: str, inputs_text: str) -> tuple[str, ...]:
    checker = _checker(kind)
    if checker is None:
        return (f"no such type: {kind}",)
    return tuple(
        f"{e.json_path}: {e.message}"
        for e in checker.iter_errors(json.loads(inputs_text))
    )


@cache
def _checker(kind: str) -> jsonschema.Draft202012Validator | None:
    """What checks the inputs of a type; nothing for one that the SDK does not have."""
    name = kind.split(":", maxsplit=1)[0]
    resource = package(name)["resources"].get(kind)
    if resource is None:
        return None
    return jsonschema.Draft202012Validator(
        {
            **_object(resource["inputProperties"], resource["requiredInputs"]),
            "$defs": _definitions(name),
        }
    )


@cache
def _definitions(name: str) -> dict[str, Any]:
    return {
        _key(type_name): _type(shape)
        for type_name, shape in package(name)["types"].items()
    }


def outputs(kind: str) -> set[str]:
    """Names that may be referred to: inputs are outputs too."""
    resource = package(kind.split(":", maxsplit=1)[0])["resources"][kind]
    return {
        "id",
        "name",
        *resource["inputProperties"],
        *(resource.get("outputOnly") or ()),
    }


def _filled(value: Any) -> Any:
    """Replace references and texts by something of any type."""
    if isinstance(value, dict):
        if "$ref" in value:
            return "__reference__"
        return {key: _filled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item) for item in value]
    return value


def _key(name: str) -> str:
    return name.replace("/", "~")


def _type(shape: dict[str, Any]) -> dict[str, Any]:
    if "enum" in shape:
        return ANYTHING  # open enumerations: the SDKs list fewer values than the clouds take
    return _object(shape["properties"], shape["required"])


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _value(spec) for name, spec in properties.items()},
        "required": required,
    }


def _value(spec: dict[str, Any]) -> dict[str, Any]:
    if "ref" in spec:
        found: dict[str, Any] = {
            "$ref": f"#/$defs/{_key(spec['ref']).replace('~', '~0')}"
        }
    elif "oneOf" in spec:
        found = {"anyOf": [_value(s) for s in spec["oneOf"]]}
    elif spec.get("type") == "array":
        found = {"type": "array", "items": _value(spec["items"])}
    elif spec.get("type") == "object":
        found = {
            "type": "object",
            "additionalProperties": _value(
                spec.get("additionalProperties", {})
            ),
        }
    elif spec.get("type") in PLAIN:
        found = {"type": spec["type"]}
    else:
        return ANYTHING
    return {"anyOf": [found, {"const": "__reference__"}]}
