"""A spec as plain values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from msgspec import Struct


def plain_values(spec_value: Any) -> Any:
    """Return a spec as plain JSON values in base units.

    Decimals become text; file positions and absent values are left out.
    """
    if isinstance(spec_value, Struct):
        field_values = {
            field_name: getattr(spec_value, field_name)
            for field_name in spec_value.__struct_fields__
            if field_name != "place"
        }
        return {
            field_name: plain_values(field_value)
            for field_name, field_value in field_values.items()
            if field_value is not None
        }
    if isinstance(spec_value, dict):
        return {
            entry_key: plain_values(element)
            for entry_key, element in spec_value.items()
        }
    if isinstance(spec_value, tuple):
        return [plain_values(element) for element in spec_value]
    return (
        # One text for equal decimals, without an exponent.
        format(spec_value.normalize(), "f")
        if isinstance(spec_value, Decimal)
        else spec_value
    )
