"""Reasons as data: why something was not chosen, or what to know of it, without a sentence."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Mapping

CauseValue: TypeAlias = str | float | Decimal


class Cause(Struct, frozen=True):
    """What `planner/sentence.py` makes a sentence of.

    code    name of the reason
    key     key of the spec, or the resource, that it is about; empty when it is about none
    values  numbers and names of the sentence, by name; the unit is the end of the name
            (_s, _hours, _days, _usd, _gib, _mib, _share), and a count has none
    """

    code: str
    key: str = ""
    values: Mapping[str, CauseValue] = field(default_factory=dict)

    def __hash__(self) -> int:
        """Return the hash of what names it: its values are a mapping, which has none."""
        return hash((self.code, self.key))


def because(code: str, key: str = "", **values: CauseValue) -> Cause:
    """Return a reason with its values by name."""
    return Cause(code, key, values)


DEARER = because("price")
INFEASIBLE = because("infeasible")
ANY_VALUE = because("any")
