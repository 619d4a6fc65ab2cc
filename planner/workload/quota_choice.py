"""The cheapest choice of one option each, while what they use together stays within limits."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Steps in which the prices of the limits are improved; any price gives a valid bound.
PRICE_STEPS: Final = 60
# What a bound may be wrong by, as floating-point numbers are, USD.
BOUND_ERROR_USD: Final = 1e-6


class ChoiceOption(Struct, frozen=True):
    """What somebody may choose: its cost, and what it uses of each limit."""

    usd: Decimal
    units: tuple[float, ...]


class _State(Struct, frozen=True):
    """Options that the first ones have chosen: their cost, and the positions of the options."""

    usd: Decimal
    picks: tuple[int, ...]


def cheapest_choice(
    options: Sequence[Sequence[ChoiceOption]], limits: Sequence[float]
) -> tuple[int, ...] | None:
    """Return the position of each one's option so that all cost the least; None where none fits.

    minimize  sum of the costs
    while     sum of units <= limit, for each limit

    It goes through them one after the other and keeps the cheapest choice for each use of the
    limits. What a bound shows to be dearer than a choice that is known is left out:
    cost so far + sum over the others of min(cost + price * units) - price * what is left,
    for prices of the limits that make this large. Of equal choices the first is taken.
    """
    if any(not own for own in options):
        return None
    prices = _limit_prices(options, limits)
    others_usd = _suffix_bounds(options, prices)
    least_units = _suffix_least(options, len(limits))
    ceiling_usd = _known_usd(options, limits, prices) + BOUND_ERROR_USD
    states = {(0.0,) * len(limits): _State(Decimal(0), ())}
    for number, own in enumerate(options):
        reached: dict[tuple[float, ...], _State] = {}
        for used, state in states.items():
            for position, option in enumerate(own):
                total = _added(used, option.units)
                usd = state.usd + option.usd
                left = [
                    limit - units
                    for limit, units in zip(limits, total, strict=True)
                ]
                bound_usd = (
                    float(usd)
                    + others_usd[number + 1]
                    - sum(map(float.__mul__, prices, left))
                )
                if bound_usd > ceiling_usd or any(
                    map(float.__gt__, least_units[number + 1], left)
                ):
                    continue
                known = reached.get(total)
                if known is None or usd < known.usd:
                    reached[total] = _State(usd, (*state.picks, position))
        states = reached
    return min(
        states.values(),
        key=lambda state: (state.usd, state.picks),
        default=_State(Decimal(0), ()),
    ).picks or (None if options else ())


def _added(
    one: tuple[float, ...], other: tuple[float, ...]
) -> tuple[float, ...]:
    return tuple(map(float.__add__, one, other))


def _priced(option: ChoiceOption, prices: Sequence[float]) -> float:
    """Return what an option costs with the prices of the limits that it uses, USD."""
    return float(option.usd) + sum(map(float.__mul__, prices, option.units))


def _best_picks(
    options: Sequence[Sequence[ChoiceOption]], prices: Sequence[float]
) -> list[ChoiceOption]:
    return [
        min(own, key=lambda option: _priced(option, prices)) for own in options
    ]


def _totals(
    picks: Sequence[ChoiceOption], limits: Sequence[float]
) -> list[float]:
    return [
        math.fsum(option.units[number] for option in picks)
        for number in range(len(limits))
    ]


def _limit_prices(
    options: Sequence[Sequence[ChoiceOption]], limits: Sequence[float]
) -> list[float]:
    """Return prices of the limits, USD a unit, with the largest bound that was found.

    bound(price) = sum of min(cost + price * units) - price * limit
    It is concave: each step goes towards what is used above the limits (subgradients, with
    Polyak's steps for a bound that is a hundredth higher).
    """
    prices = [0.0] * len(limits)
    best_prices, best_bound = prices, -math.inf
    for step in range(1, PRICE_STEPS + 1):
        picks = _best_picks(options, prices)
        excess = [
            total - limit
            for total, limit in zip(_totals(picks, limits), limits, strict=True)
        ]
        bound = sum(float(option.usd) for option in picks)
        bound += sum(map(float.__mul__, prices, excess))
        if bound > best_bound:
            best_prices, best_bound = prices, bound
        squares = sum(units * units for units in excess)
        if not squares:
            break
        length = (abs(best_bound) / 100 + 1) / step / squares
        prices = [
            max(0.0, price + length * units)
            for price, units in zip(prices, excess, strict=True)
        ]
    return best_prices


def _suffix_bounds(
    options: Sequence[Sequence[ChoiceOption]], prices: Sequence[float]
) -> list[float]:
    """Return for each position what it and all after it cost at least, at prices of limits."""
    bounds = [0.0]
    for own in reversed(options):
        least_usd = min(_priced(option, prices) for option in own)
        bounds.append(bounds[-1] + least_usd)
    return bounds[::-1]


def _suffix_least(
    options: Sequence[Sequence[ChoiceOption]], limit_count: int
) -> list[tuple[float, ...]]:
    """Return for each position what it and all after it use of each limit at least."""
    least = [(0.0,) * limit_count]
    for own in reversed(options):
        own_least = tuple(
            min(option.units[number] for option in own)
            for number in range(limit_count)
        )
        least.append(_added(least[-1], own_least))
    return least[::-1]


def _known_usd(
    options: Sequence[Sequence[ChoiceOption]],
    limits: Sequence[float],
    prices: Sequence[float],
) -> float:
    """Return the cost of a choice that fits, USD; infinite where none is at hand.

    It starts with the best at some prices, and changes one option after the other for the one
    that costs the least for what it gives back of the limits that are exceeded.
    """
    picks = _best_picks(options, prices)
    while True:
        excess = [
            max(0.0, total - limit)
            for total, limit in zip(_totals(picks, limits), limits, strict=True)
        ]
        if not any(excess):
            return float(sum((option.usd for option in picks), Decimal(0)))
        swap = min(_swaps(options, picks, excess), default=None)
        if swap is None:
            return math.inf
        _, number, position = swap
        picks[number] = options[number][position]


def _swaps(
    options: Sequence[Sequence[ChoiceOption]],
    picks: Sequence[ChoiceOption],
    excess: Sequence[float],
) -> Iterator[tuple[float, int, int]]:
    """Yield changes of one option that use less of what is exceeded, with the cost of a unit."""
    for number, (own, pick) in enumerate(zip(options, picks, strict=True)):
        for position, option in enumerate(own):
            given_back = sum(
                min(over, pick.units[limit] - option.units[limit])
                for limit, over in enumerate(excess)
                if over
            )
            if given_back > 0 and all(
                option.units[limit] <= pick.units[limit]
                for limit in range(len(excess))
            ):
                more_usd = float(option.usd - pick.usd)
                yield more_usd / given_back, number, position
