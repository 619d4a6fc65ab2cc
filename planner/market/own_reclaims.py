"""How often an account's own machines on spot were taken back, as a share of a month."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from planner.market.offer import ReclaimBand
from planner.numeric import normal_quantile
from planner.units import HOURS_PER_MONTH

if TYPE_CHECKING:
    from planner.market.live import ReclaimFact

# Of both ends together 90 % are within, as of all bands of a plan.
END_PROBABILITY: Final = 0.95
# Less than a machine of one month says less than what its cloud publishes.
LEAST_HOURS: Final = float(HOURS_PER_MONTH)
# Digits of a share.
DIGITS: Final = 4


def own_band(fact: ReclaimFact, as_of: str) -> ReclaimBand | None:
    """Return the share of machines that is taken back in a month; None where too few have run.

    The reclaims are as those of a Poisson process, whose mean is within 90 % between
    low  = n * (1 - 1 / (9 n) - z / (3 sqrt(n)))^3, 0 without any
    high = m * (1 - 1 / (9 m) + z / (3 sqrt(m)))^3, with m = n + 1
    n  reclaims, z  quantile of the normal distribution at 95 %
    These are Wilson and Hilferty's quantiles of chi-square (PNAS 17, 1931, 684), which a mean of
    Poisson has for its bounds (Garwood, Biometrika 28, 1936, 437).
    share = 1 - exp(-mean / machine-hours * hours of a month)
    """
    if fact.machine_hours < LEAST_HOURS:
        return None
    low, high = _mean_bounds(fact.reclaims)
    return ReclaimBand(
        low_share=_month_share(low, fact.machine_hours),
        high_share=_month_share(high, fact.machine_hours),
        as_of=as_of[:10],
    )


def _mean_bounds(reclaims: float) -> tuple[float, float]:
    quantile = normal_quantile(END_PROBABILITY)

    def chi_square_half(count: float, end: float) -> float:
        third = 1 - 1 / (9 * count) + end / (3 * math.sqrt(count))
        return count * max(0.0, third) ** 3

    low = chi_square_half(reclaims, -quantile) if reclaims > 0 else 0.0
    return low, chi_square_half(reclaims + 1, quantile)


def _month_share(mean: float, machine_hours: float) -> float:
    rate = mean / machine_hours
    return round(1 - math.exp(-rate * float(HOURS_PER_MONTH)), DIGITS)
