"""Paths into inputs such as `networkProfile.rules[].name`; [] stands for every element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


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
