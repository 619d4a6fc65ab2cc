"""The terms for which clouds sell commitments, and when they are paid."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class Term(Struct, frozen=True):
    """A commitment to machines, for some months.

    word         what a spec calls it
    purchase     the way to buy, as prices and plans name it
    months       for which it is paid, whether its machines run or not
    name         for people, as in "3 machines for a year"
    is_upfront   whether all of it is paid at the start, not month by month
    """

    word: str
    purchase: str
    months: int
    name: str
    is_upfront: bool = False


TERMS: Final = (
    Term("1y", "reserved_1y", 12, "a year"),
    Term("3y", "reserved_3y", 36, "3 years"),
    Term("5y", "reserved_5y", 60, "5 years"),
    Term(
        "1y-upfront",
        "reserved_1y_upfront",
        12,
        "a year paid at once",
        is_upfront=True,
    ),
    Term(
        "3y-upfront",
        "reserved_3y_upfront",
        36,
        "3 years paid at once",
        is_upfront=True,
    ),
)
TERM_OF: Final = {term.purchase: term for term in TERMS}
TERM_PURCHASES: Final = tuple(TERM_OF)
