"""What types of cloud resources have in common: names, and values within their inputs.

A path into inputs is such as `networkProfile.rules[].name`; [] stands for every element.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from planner.facts import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.plan.types import Properties


class NameRule(Struct, frozen=True, kw_only=True):
    """How a property is written, and within what it must be unique.

    property  path of the property
    parent    properties that together identify what it is unique in, for that scope
    """

    property: str
    pattern: re.Pattern[str]
    min_length: int
    max_length: int
    scope: Literal["global", "account", "region", "parent"]
    parent: tuple[str, ...]

    def refusal(self, name: str) -> str | None:
        """Say why a name is refused; nothing when it is allowed."""
        if not self.min_length <= len(name) <= self.max_length:
            return (
                f"{self.property}: {name!r} has {len(name)} characters, "
                f"{self.min_length} to {self.max_length} are allowed"
            )
        if not self.pattern.fullmatch(name):
            return f"{self.property}: {name!r} is not a valid name"
        return None

    def scope_key(self, inputs: Properties, region: str) -> tuple[object, ...]:
        """Return what identifies the scope of an object."""
        if self.scope == "parent":
            # Parents of one name stand in every region.
            return (region, *(str(inputs.get(name)) for name in self.parent))
        return (region,) if self.scope == "region" else ()


@cache
def name_properties() -> dict[str, str]:
    """Return by type the property that holds a name for good.

    Two resources of such a type cannot have one name at the same time, so the old one must go
    before its replacement comes.
    """
    columns = {"type": table.nonempty_text, "property": table.nonempty_text}
    return {
        name_row["type"]: name_row["property"]
        for name_row in table.load_rows("providers", "names.csv", columns)
    }


def has_same_name(
    resource_type: str, inputs: Properties, other_inputs: Properties
) -> bool:
    """Whether two objects of a type have one name, or no name that is for good."""
    name_property = name_properties().get(resource_type, "")
    return inputs.get(name_property) == other_inputs.get(name_property)


def has_same_parent(
    resource_type: str, inputs: Properties, other_inputs: Properties
) -> bool:
    """Whether the names of two objects are in one place, such as a zone, as far as texts say it.

    In another one the same name is that of another object.
    """
    name_property = name_properties().get(resource_type, "")
    return all(
        inputs.get(parent) == other_inputs.get(parent)
        for rule in name_rules().get(resource_type, ())
        if rule.property == name_property
        for parent in rule.parent
        if isinstance(inputs.get(parent), str)
        and isinstance(other_inputs.get(parent), str)
    )


def exclusive_inputs(resource_type: str, inputs: Properties) -> Properties:
    """Return the inputs that no two objects of a type share while both stand, as its name."""
    names = (
        name_properties().get(resource_type, ""),
        *_exclusive_properties().get(resource_type, ()),
    )
    return {
        name: inputs[name] for name in names if inputs.get(name) is not None
    }


@cache
def _exclusive_properties() -> dict[str, tuple[str, ...]]:
    """Return by type the properties that two objects cannot share, but for names."""
    columns: table.Columns = {
        "type": table.nonempty_text,
        "property": table.nonempty_text,
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    properties: dict[str, tuple[str, ...]] = {}
    for row in table.load_rows("providers", "exclusive.csv", columns):
        properties[row["type"]] = (
            *properties.get(row["type"], ()),
            row["property"],
        )
    return properties


@cache
def name_rules() -> dict[str, tuple[NameRule, ...]]:
    """Return by type how its names are written, and in what they are unique."""
    columns: table.Columns = {
        "type": table.nonempty_text,
        "property": table.nonempty_text,
        "pattern": re.compile,
        "min_length": table.integer_between(0, 1000),
        "max_length": table.integer_between(1, 10_000),
        "scope": table.one_of("global", "account", "region", "parent"),
        "parent": lambda cell: tuple(filter(None, cell.split(";"))),
        "meaning": table.any_text,
        **table.SOURCE_COLUMNS,
    }
    rules: dict[str, list[NameRule]] = {}
    for row in table.load_rows("providers", "name_rules.csv", columns):
        rules.setdefault(row["type"], []).append(
            NameRule(
                property=row["property"],
                pattern=row["pattern"],
                min_length=row["min_length"],
                max_length=row["max_length"],
                scope=row["scope"],
                parent=row["parent"],
            )
        )
    return {
        resource_type: tuple(found) for resource_type, found in rules.items()
    }


def values_at(inputs: Any, property_path: str) -> Iterator[Any]:
    """Yield every value at a path; a list at its end yields its elements."""
    values = [inputs]
    for part in property_path.split("."):
        property_name = part.removesuffix("[]")
        values = [
            element
            for value in values
            if isinstance(value, dict) and property_name in value
            for element in _elements(value[property_name])
        ]
    yield from values


def strings_in(value: Any) -> Iterator[str]:
    """Yield every text anywhere in a value."""
    if isinstance(value, dict):
        for nested_value in value.values():
            yield from strings_in(nested_value)
    elif isinstance(value, list):
        for nested_value in value:
            yield from strings_in(nested_value)
    elif isinstance(value, str):
        yield value


def _elements(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
