"""The JSON Schema of a spec, generated from the tables that read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.spec.kinds import SPEC_KINDS

if TYPE_CHECKING:
    from planner.spec.field import JsonSchema


def spec_schema() -> JsonSchema:
    """Return the JSON Schema (draft 2020-12) of all kinds of specs."""
    kind_schemas = {}
    for kind_name, spec_block in SPEC_KINDS.items():
        kind_schemas[kind_name] = spec_block.schema()
        kind_schemas[kind_name]["properties"]["kind"] = {"const": kind_name}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:tonnage:schema:spec:v1",
        "title": "tonnage spec",
        "type": "object",
        "required": ["apiVersion", "kind"],
        "oneOf": [
            {"$ref": f"#/$defs/{kind_name}"} for kind_name in kind_schemas
        ],
        "$defs": kind_schemas,
    }
