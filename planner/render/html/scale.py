"""Axes: from the numbers of a picture to places on it, with marks at round numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

# The first digits of steps between marks.
ROUND_STEPS: Final = (1.0, 2.0, 5.0, 10.0)
MOST_TICKS: Final = 5
# Absorbs floating-point error where a mark is at an end.
TOLERANCE: Final = 1e-9


class Scale(Struct, frozen=True):
    """A line from numbers to pixels.

    low, high    numbers at its ends, low < high
    start, end   pixels there; the end is before the start where an axis goes up
    step         from one mark to the next
    """

    low: float
    high: float
    start: float
    end: float
    step: float

    def at(self, number: float) -> float:
        """Return where a number is, in pixels; at the nearer end beyond them."""
        share = (number - self.low) / (self.high - self.low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def ticks(self) -> tuple[float, ...]:
        """Return the numbers of its marks, evenly apart, within the scale."""
        first = math.ceil(self.low / self.step - TOLERANCE)
        last = math.floor(self.high / self.step + TOLERANCE)
        return tuple(number * self.step for number in range(first, last + 1))


def round_step(span: float, most: int) -> float:
    """Return the least of 1, 2 and 5 times a power of ten of which `most` cover a span."""
    raw_step = span / most
    power = 10.0 ** math.floor(math.log10(raw_step))
    return next(
        digit * power
        for digit in (*ROUND_STEPS, math.inf)
        if digit * power >= raw_step * (1 - TOLERANCE)
    )


def round_scale(
    numbers: Iterable[float],
    start: float,
    end: float,
    *,
    most: int = MOST_TICKS,
    least_step: float = 0.0,
) -> Scale:
    """Return a scale from one round number to another that holds all numbers, and 0 with them.

    most         steps on it, about: rounding may add two
    least_step   1 for what is counted in whole ones
    Numbers that are all 0 get a scale up to 1.
    """
    shown = [0.0, *numbers]
    low, high = min(shown), max(shown)
    if low == high:
        high = 1.0
    step = max(least_step, round_step(high - low, most))
    return Scale(
        math.floor(low / step + TOLERANCE) * step,
        math.ceil(high / step - TOLERANCE) * step,
        start,
        end,
        step,
    )
