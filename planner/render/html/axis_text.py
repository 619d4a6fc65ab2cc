"""How numbers stand at the marks of axes: short, by the formatters of all pages."""

from __future__ import annotations

from decimal import Decimal

from msgspec import Struct

from planner import figures
from planner.units import SECONDS_PER_DAY, SECONDS_PER_HOUR


def money_tick(usd: float) -> str:
    """Return USD at a mark."""
    return figures.rough_dollars(_exact(usd)) if usd else "$0"


def change_tick(usd: float) -> str:
    """Return a difference in USD at a mark, with its sign; 0 is as planned."""
    if not usd:
        return "as planned"
    sign = "-" if usd < 0 else "+"
    return f"{sign}{figures.rough_dollars(_exact(abs(usd)))}"


def share_tick(share: float) -> str:
    """Return a share at a mark, in percent."""
    return figures.percentage(share)


def count_tick(count: float) -> str:
    """Return a number at a mark, as short as it can be."""
    return figures.quantity(_exact(count))


def time_tick(time_ms: float) -> str:
    """Return a time given in ms at a mark."""
    return figures.milliseconds(time_ms) if time_ms else "0"


def _exact(number: float) -> Decimal:
    # Marks are round, and floats are not quite.
    return Decimal(f"{number:.6g}")


class TimeUnit(Struct, frozen=True):
    """A unit of time for an axis, on which its marks are round: seconds of it, and its name."""

    seconds: float
    name: str

    def text_of(self, amount: float) -> str:
        """Return so many units at a mark."""
        if not amount:
            return "0"
        if self.seconds < SECONDS_PER_HOUR:
            return figures.duration(amount * self.seconds)
        return f"{count_tick(amount)} {self.name}"


def time_unit(longest_s: float) -> TimeUnit:
    """Return the unit of an axis up to so many seconds: days from two of them on, then hours."""
    units = (
        TimeUnit(SECONDS_PER_DAY, "days"),
        TimeUnit(SECONDS_PER_HOUR, "h"),
    )
    return next(
        (unit for unit in units if longest_s >= 2 * unit.seconds),
        TimeUnit(1.0, "s"),
    )
