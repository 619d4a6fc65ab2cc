"""How many of some independent things are up: the binomial distribution, also of thousands."""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Final

NEGLIGIBLE: Final = 1e-15  # a chance that no promise can tell from none


@cache
def likely_numbers(count: int, share: float) -> tuple[tuple[int, float], ...]:
    """Return the numbers of independent things that may be up, with their chances.

    Binomial, from the likeliest number downwards and upwards by the ratio of two neighbours:
    P(k + 1) / P(k) = (count - k) / (k + 1) * share / (1 - share)
    Numbers whose chance is below `NEGLIGIBLE` are left out.
    """
    if not 0 < share < 1:
        return ((round(count * share), 1.0),)
    odds = share / (1 - share)
    likeliest = min(count, math.floor((count + 1) * share))
    likeliest_chance = math.exp(
        math.lgamma(count + 1)
        - math.lgamma(likeliest + 1)
        - math.lgamma(count - likeliest + 1)
        + likeliest * math.log(share)
        + (count - likeliest) * math.log1p(-share)
    )
    chances = {likeliest: likeliest_chance}
    up, chance = likeliest, likeliest_chance
    while up > 0 and chance > NEGLIGIBLE:
        chance *= up / (count - up + 1) / odds
        up -= 1
        chances[up] = chance
    up, chance = likeliest, likeliest_chance
    while up < count and chance > NEGLIGIBLE:
        chance *= (count - up) / (up + 1) * odds
        up += 1
        chances[up] = chance
    return tuple(sorted(chances.items()))


@cache
def chances_from(count: int, share: float) -> tuple[int, tuple[float, ...]]:
    """Return the fewest things that may be up, and the chances of at least so many and more."""
    numbers, chances = zip(*likely_numbers(count, share), strict=True)
    at_least = tuple(itertools.accumulate(reversed(chances)))[::-1]
    return numbers[0], at_least


def chance_of(wanted: int, count: int, share: float) -> float:
    """Return the chance that at least so many of some independent things are up."""
    fewest, chances = chances_from(count, share)
    beyond = wanted - fewest
    if beyond <= 0:
        return 1.0
    return chances[beyond] if beyond < len(chances) else 0.0
