"""What a search over clusters minimizes: cost, time, or both together.

The knee of the curve of time against cost is the cluster of the least

    USD * hours ^ elasticity

On a curve whose savings of time get dearer and dearer, a saved percent of time costs less than
`elasticity` percent of money before that point, and more beyond it. At elasticity 1, a row of
constants.csv, it is the least product of cost and time: halving the time beyond it would more
than double the bill. Perfect scaling costs nothing, so the knee lies where machines begin to
wait for each other. The product is the figure of merit by which circuits have been compared since
Gonzalez and Horowitz (1996), energy times delay, with money for energy.
"""

from __future__ import annotations

import math
from typing import Final, Literal, TypeAlias

from planner.perf.common.constant import constant

Objective: TypeAlias = Literal["cost", "time", "knee"]

ROUNDING_USD: Final = 0.01  # USD: what a bill may be below its parts


def objective_value(
    objective: Objective, run_usd: float, duration_s: float
) -> float:
    """Return what is minimized: USD, seconds, or USD times seconds to the elasticity.

    It grows with both arguments, so lower bounds of them give a lower bound of it.
    """
    if objective == "cost":
        return run_usd
    if objective == "time":
        return duration_s
    weighted: float = duration_s ** constant("train_knee")
    return run_usd * weighted


def longest_duration_s(
    objective: Objective, cutoff: float, usd_per_s: float, fixed_usd: float
) -> float:
    """Return a duration beyond which a run exceeds a cutoff of the objective, seconds.

    A run costs at least `fixed_usd + usd_per_s * duration`, so

        cost  duration <= (cutoff - fixed_usd) / usd_per_s
        time  duration <= cutoff
        knee  duration <= (cutoff / usd_per_s) ^ (1 / (1 + elasticity))
    """
    if objective == "time" or cutoff == math.inf:
        return cutoff
    if objective == "cost":
        return (cutoff + ROUNDING_USD - fixed_usd) / usd_per_s
    knee_s: float = (cutoff / usd_per_s) ** (1 / (1 + constant("train_knee")))
    # Beyond it, the bill less the rounding still exceeds the cutoff.
    return knee_s + ROUNDING_USD / usd_per_s
