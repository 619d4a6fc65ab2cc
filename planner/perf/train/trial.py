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
    saved: int


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


def play(work: float, save: float, every: float, risk: Hazard, draw: random.Random) -> Outcome:
    """Play one run of `work` seconds of progress, saving for `save` seconds after every `every`.

    Stops come as a Poisson process. What was done since the last checkpoint is done again, except
    that a notice long enough to save loses nothing. Machines are not paid while they are gone.
    """
    now = paid = done = 0.0
    rate, stops, saved = risk.failures + risk.reclaims, 0, 0
    while True:
        left = work - done
        pieces = math.ceil(left / every - 1e-9)
        needed = left + save * max(0, pieces - 1)
        gap = draw.expovariate(rate) if rate else math.inf
        if gap >= needed:
            return Outcome(now + needed, paid + needed, stops, saved + max(0, pieces - 1))
        now, paid, stops = now + gap, paid + gap, stops + 1
        whole = int(gap // (every + save))
        taken = draw.random() * rate < risk.reclaims
        done, saved = done + whole * every, saved + whole
        if taken and risk.notice >= save:
            done += max(0.0, min(every, gap - whole * (every + save) - save))
            saved += 1
        if taken:
            now += draw.expovariate(1 / risk.wait) if risk.wait else 0.0
        now, paid = now + risk.restart, paid + risk.restart


def trials(work: float, save: float, every: float, risk: Hazard, seed: int = SEED) -> Trials:
    """Play a thousand runs."""
    draw = random.Random(seed)  # noqa: S311 - a simulation, not a secret
    found = [play(work, save, every, risk, draw) for _ in range(RUNS)]
    return Trials(
        tuple(sorted(x.ended for x in found)), tuple(sorted(x.paid for x in found)),
        sum(x.stops for x in found) / RUNS,
    )  # fmt: skip


def _quantile(ordered: tuple[float, ...], share: float) -> float:
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]
