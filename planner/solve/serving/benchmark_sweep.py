"""The shortest benchmark worth running: loads, requests, minutes and dollars."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from planner.perf.common.constant import constant
from planner.spec.model import Batch, Inference

if TYPE_CHECKING:
    from planner.spec.model import Spec

USERS_FACTOR: Final = 4  # from one concurrency of the sweep to the next
REQUESTS_PER_USER: Final = 5  # requests of each user; the first are warm-up
MIN_REQUESTS: Final = 20
MS_PER_S: Final = 1000.0


@dataclass(frozen=True, slots=True)
class SweepStep:
    """One load of the sweep."""

    user_count: int
    request_count: int
    minutes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkSweep:
    """A sweep over concurrency at the lengths of a spec, on one machine."""

    prompt_tokens: int
    answer_tokens: int
    steps: tuple[SweepStep, ...]
    minutes: float
    usd: Decimal


def plan_sweep(plan: dict[str, Any], spec: Spec) -> BenchmarkSweep:
    """Return the sweep for the first pool of a plan.

    Loads grow fourfold from 1 to what the replica has room for: the batch is what times depend
    on most. A load lasts requests / users * (TTFT + answer * TPOT), as predicted at peak; boot
    and loading come on top.
    """
    if not isinstance(spec, Inference | Batch):
        raise TypeError(spec)
    pool = plan["solution"]["pools"][0]
    predictions = plan["solution"]["predicted"]
    length_stats = spec.traffic.input_tokens, spec.traffic.output_tokens
    prompt_tokens, answer_tokens = (
        round(float(token_stats.mean)) if token_stats else 0
        for token_stats in length_stats
    )
    tpot_s = predictions.get("tpot_p95_ms", {"value": 50.0})["value"] / MS_PER_S
    ttft_s = (
        predictions.get("ttft_p95_ms", {"value": 1000.0})["value"] / MS_PER_S
    )
    sweep_steps = []
    user_count = 1
    while user_count <= min(pool["layout"]["max_batch"], 256):
        request_count = max(MIN_REQUESTS, REQUESTS_PER_USER * user_count)
        duration_s = (
            request_count / user_count * (ttft_s + answer_tokens * tpot_s)
        )
        sweep_steps.append(
            SweepStep(user_count, request_count, duration_s / 60)
        )
        user_count *= USERS_FACTOR
    total_minutes = (
        sum(sweep_step.minutes for sweep_step in sweep_steps)
        + 2 * constant("boot") / 60
    )
    total_usd = Decimal(pool["usd_per_hour"]) * Decimal(total_minutes) / 60
    return BenchmarkSweep(
        prompt_tokens=prompt_tokens,
        answer_tokens=answer_tokens,
        steps=tuple(sweep_steps),
        minutes=total_minutes,
        usd=total_usd,
    )
