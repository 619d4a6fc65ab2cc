"""The shortest benchmark worth running: loads, requests, minutes and dollars."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from planner.perf.constant import constant
from planner.spec.model import Batch, Inference

if TYPE_CHECKING:
    from planner.spec.model import Spec

FACTOR: Final = 4  # from one concurrency of the sweep to the next
ROUNDS: Final = 5  # requests of each user; the first are warm-up
FEWEST: Final = 20
MS: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Step:
    """One load of the sweep."""

    users: int
    requests: int
    minutes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A sweep over concurrency at the lengths of a spec, on one machine."""

    prompt: int
    answer: int
    steps: tuple[Step, ...]
    minutes: float
    usd: Decimal


def sweep(plan: dict[str, Any], spec: Spec) -> Sweep:
    """Return the sweep for the first pool of a plan.

    Loads grow fourfold from 1 to what the replica has room for: the batch is what times depend
    on most. A load lasts requests / users * (TTFT + answer * TPOT), as predicted at peak; boot
    and loading come on top.
    """
    if not isinstance(spec, Inference | Batch):
        raise TypeError(spec)
    pool = plan["solution"]["pools"][0]
    found = plan["solution"]["predicted"]
    tokens = spec.traffic.input_tokens, spec.traffic.output_tokens
    prompt, answer = (round(float(t.mean)) if t else 0 for t in tokens)
    pace = found.get("tpot_p95_ms", {"value": 50.0})["value"] / MS
    start = found.get("ttft_p95_ms", {"value": 1000.0})["value"] / MS
    steps = []
    users = 1
    while users <= min(pool["layout"]["max_batch"], 256):
        requests = max(FEWEST, ROUNDS * users)
        seconds = requests / users * (start + answer * pace)
        steps.append(Step(users, requests, seconds / 60))
        users *= FACTOR
    minutes = sum(step.minutes for step in steps) + 2 * constant("boot") / 60
    usd = Decimal(pool["usd_per_hour"]) * Decimal(minutes) / 60
    return Sweep(
        prompt=prompt,
        answer=answer,
        steps=tuple(steps),
        minutes=minutes,
        usd=usd,
    )
