"""What the official schemas say against the inputs of a resource.

Each cloud's room has the input properties of the types that stacks use, taken from its official
SDK.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from planner.facts import table
from planner.facts.cloud import clouds
from planner.suggest import closest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.plan.types import Properties

PYTHON_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def schema_problems(resource_type: str, inputs: Properties) -> list[str]:
    """Return what is wrong with inputs: unknown, missing and mistyped properties."""
    package = _package(resource_type.split(":", maxsplit=1)[0])
    resource = (
        package["resources"].get(resource_type) if package is not None else None
    )
    if package is None or resource is None:
        return [f"there is no resource type {resource_type}"]
    return list(
        _object_problems(
            inputs,
            (resource["inputProperties"], resource["requiredInputs"]),
            package["types"],
            "",
        )
    )


def required_properties(resource_type: str) -> list[str]:
    """Return the properties that a resource cannot be without."""
    package = _package(resource_type.split(":", maxsplit=1)[0]) or {}
    resource = package.get("resources", {}).get(resource_type, {})
    required: list[str] = resource.get("requiredInputs", [])
    return required


def _object_problems(
    value: Any,
    rules: tuple[dict[str, Any], list[str]],
    types: dict[str, Any],
    place: str,
) -> Iterator[str]:
    properties, required = rules
    if not isinstance(value, dict):
        yield f"{place or 'inputs'}: must be an object"
        return
    for property_name in required:
        if value.get(property_name) is None:
            yield f"{_join(place, property_name)} is missing"
    for property_name, property_value in value.items():
        rule = properties.get(property_name)
        if rule is None:
            close_name = closest(property_name, properties)
            suggestion = f", did you mean {close_name}" if close_name else ""
            yield f"{_join(place, property_name)} is no property{suggestion}"
        elif property_value is not None:
            yield from _value_problems(
                property_value, rule, types, _join(place, property_name)
            )


def _value_problems(
    value: Any, rule: dict[str, Any], types: dict[str, Any], place: str
) -> Iterator[str]:
    if "enum" in rule or "enum" in types.get(rule.get("ref", ""), {}):
        yield from _choice_problems(value, rule, types, place)
        return
    if "ref" in rule:
        named_rule = types[rule["ref"]]
        named_rules = (named_rule["properties"], named_rule["required"])
        yield from _object_problems(value, named_rules, types, place)
        return
    if "oneOf" in rule:
        choices = [
            list(_value_problems(value, choice, types, place))
            for choice in rule["oneOf"]
        ]
        if all(choices):
            yield choices[0][0]
        return
    if rule.get("type") in ("array", "object"):
        yield from _container_problems(value, rule, types, place)
        return
    wanted_types = PYTHON_TYPES.get(rule.get("type", ""))
    # A truth value is a number in Python, and nowhere else.
    is_mixed_up = isinstance(value, bool) != (rule.get("type") == "boolean")
    if wanted_types and (is_mixed_up or not isinstance(value, wanted_types)):
        yield f"{place}: must be a {rule['type']}"


def _container_problems(
    value: Any, rule: dict[str, Any], types: dict[str, Any], place: str
) -> Iterator[str]:
    if rule["type"] == "array":
        if not isinstance(value, list):
            yield f"{place}: must be a list"
            return
        for index, element in enumerate(value):
            yield from _value_problems(
                element, rule["items"], types, f"{place}[{index}]"
            )
        return
    if not isinstance(value, dict):
        yield f"{place}: must be an object"
        return
    element_rule = rule.get("additionalProperties", {})
    for key, element in value.items():
        yield from _value_problems(
            element, element_rule, types, _join(place, key)
        )


def _choice_problems(
    value: Any, rule: dict[str, Any], types: dict[str, Any], place: str
) -> Iterator[str]:
    """Compare with the values of an enumeration.

    Open ones are those of an API, and complete but for what a table adds; others list fewer
    values than the cloud takes.
    """
    name = rule.get("enum") or rule["ref"]
    values = types[name]["enum"]
    if not isinstance(value, str | int | float):
        yield f"{place}: must be one of {', '.join(map(str, values))}"
    elif (
        rule.get("open")
        and value not in values
        and not any(
            pattern.fullmatch(str(value)) for pattern in _more_values(name)
        )
    ):
        yield f"{place}: {value!r} is none of {', '.join(map(str, values))}"


@cache
def _more_values(enumeration: str) -> tuple[re.Pattern[str], ...]:
    columns: table.Columns = {
        "enumeration": table.nonempty_text,
        "pattern": re.compile,
        **table.SOURCE_COLUMNS,
    }
    return tuple(
        row["pattern"]
        for row in table.load_rows("providers.simulated", "values.csv", columns)
        if row["enumeration"] == enumeration
    )


def _join(place: str, property_name: str) -> str:
    return f"{place}.{property_name}" if place else property_name


@cache
def _package(name: str) -> dict[str, Any] | None:
    """Return the schema of a package; nothing when no cloud has it."""
    for cloud, facts in clouds().items():
        if facts.package == name:
            text = table.data_text(f"providers.{cloud}", "schema.json")
            package: dict[str, Any] = json.loads(text)
            return package
    return None
