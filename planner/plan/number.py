"""Numbers as the plan document writes them: exact money, and six digits of what is predicted."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from planner.plan.part import Number

# More digits would be noise, and would differ from machine to machine.
SIGNIFICANT_DIGITS: Final = 6


def plain_money(amount: Decimal) -> Decimal:
    """Return an equal decimal whose text has no exponent."""
    return Decimal(format(amount, "f"))


def optional_money(amount: Decimal | None) -> Decimal | None:
    """Return an equal decimal without an exponent; None stays unknown."""
    # None is an unknown amount, which differs from 0.
    return None if amount is None else plain_money(amount)


def rounded(number: float) -> Number:
    """Return the number with six significant digits, as an integer when it is whole."""
    # JSON has no infinity and no NaN.
    if number == 0 or not math.isfinite(number):
        return 0
    # Decimal places; negative for numbers of more than six digits.
    digits = SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(abs(number)))
    short_number = round(number, digits)
    if short_number == int(short_number):
        return int(short_number)
    return short_number
