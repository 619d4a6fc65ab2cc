"""Plays whole runs, with failures, reclaims and waits drawn: when they end, what is paid.

The same seed gives the same runs.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from planner.perf.train.run import Hazard

RUNS: Final = 1000
SEED: Final = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: seconds until it ended, seconds in which machines were paid, and its stops."""

    ended: float
    paid: float
    stops: int


@dataclass(frozen=True, slots=True)
class Trials:
    """Many runs, in the order of their ends and of what was paid."""

    ended: tuple[float, ...]
    paid: tuple[float, ...]
    stops: float

    def end(self, share: float) -> float:
        """Seconds within which this share of the runs ends."""
        return _quantile(self.ended, share)

    def cost(self, share: float) -> float:
        """Paid seconds that this share of the runs stays within."""
        return _quantile(self.paid, share)


def play(
    work: float, save: float, every: float, risk: Hazard, draw: random.Random
) -> Outcome:
    """Play one run of `work` seconds of progress, saving for `save` seconds after every `every`.

    Stops come as a Poisson process. What was done since the last checkpoint is done again, except
    that a notice long enough to save loses nothing. Spot is not paid while it is gone.
    """
    rate, cycle = risk.failures + risk.reclaims, every + save
    paid = gone = done = 0.0
    stops, uniform, log = 0, draw.random, math.log
    needed = _needed(work, save, every)
    while rate:
        gap = -log(1.0 - uniform()) / rate
        if gap >= needed:
            break
        stops += 1
        whole = gap // cycle
        paid += gap + risk.restart
        done += whole * every
        if uniform() * rate < risk.reclaims:
            away = draw.expovariate(1 / risk.wait) if risk.wait else 0.0
            if risk.meanwhile:
                away = min(away, max(0.0, work - done) / risk.meanwhile)
                done += away * risk.meanwhile
            gone += away
            if risk.notice:
                done += max(0.0, min(every, gap - whole * cycle - save))
        needed = _needed(work - done, save, every)
    paid += needed
    return Outcome(paid + gone, paid, stops)


def _needed(left: float, save: float, every: float) -> float:
    """Seconds for what is left without any stop: the last piece ends the run, not a checkpoint."""
    return left + save * max(0, math.ceil(left / every - 1e-9) - 1)


def trials(
    work: float, save: float, every: float, risk: Hazard, seed: int = SEED
) -> Trials:
    """Play a thousand runs."""
    draw = random.Random(seed)  # noqa: S311 - a simulation, not a secret
    found = [play(work, save, every, risk, draw) for _ in range(RUNS)]
    return Trials(
        tuple(sorted(x.ended for x in found)),
        tuple(sorted(x.paid for x in found)),
        sum(x.stops for x in found) / RUNS,
    )


def _quantile(ordered: tuple[float, ...], share: float) -> float:
    return ordered[
        min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))
    ]
