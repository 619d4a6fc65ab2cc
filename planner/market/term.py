"""The terms for which clouds sell commitments, and when they are paid."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

# When a term is paid: month by month, at once, or a part at the start and the rest by the month.
Payment: TypeAlias = Literal["monthly", "at_once", "in_part"]


class Term(Struct, frozen=True):
    """A commitment to machines, for some months.

    word         what a spec calls it
    purchase     the way to buy, as prices and plans name it
    months       for which it is paid, whether its machines run or not
    name         for people, as in "3 machines for a year"
    payment      when it is paid
    """

    word: str
    purchase: str
    months: int
    name: str
    payment: Payment = "monthly"


TERMS: Final = (
    Term("1y", "reserved_1y", 12, "a year"),
    Term("3y", "reserved_3y", 36, "3 years"),
    Term("5y", "reserved_5y", 60, "5 years"),
    Term(
        "1y-upfront",
        "reserved_1y_upfront",
        12,
        "a year paid at once",
        payment="at_once",
    ),
    Term(
        "3y-upfront",
        "reserved_3y_upfront",
        36,
        "3 years paid at once",
        payment="at_once",
    ),
    Term(
        "1y-partial",
        "reserved_1y_partial",
        12,
        "a year paid in part at once",
        payment="in_part",
    ),
    Term(
        "3y-partial",
        "reserved_3y_partial",
        36,
        "3 years paid in part at once",
        payment="in_part",
    ),
)
TERM_OF: Final = {term.purchase: term for term in TERMS}
TERM_PURCHASES: Final = tuple(TERM_OF)
