"""The shortest benchmark worth running: loads, requests, minutes and dollars."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner.perf.common.constant import constant

if TYPE_CHECKING:
    from planner.plan.types import Layout, Plan
    from planner.spec.model import Batch, Inference

USERS_FACTOR: Final = 4  # from one concurrency of the sweep to the next
REQUESTS_PER_USER: Final = 5  # requests of each user; the first are warm-up
MIN_REQUESTS: Final = 20
MAX_USERS: Final = (
    256  # more say nothing new about how times grow with the batch
)
USUAL_TPOT_S: Final = 0.05  # where a plan predicts none
USUAL_TTFT_S: Final = 1.0  # where a plan predicts none
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

    model_name: str
    instance_type: str
    accelerator: str
    layout: Layout
    prompt_tokens: int
    answer_tokens: int
    steps: tuple[SweepStep, ...]
    minutes: float
    usd: Decimal


def plan_sweep(plan: Plan, spec: Inference | Batch) -> BenchmarkSweep | None:
    """Return the sweep for a plan's pool that serves a model; nothing without one.

    Loads grow fourfold from 1 to what the replica has room for: the batch is what times depend
    on most. A load lasts requests / users * (TTFT + answer * TPOT), as predicted at peak; boot
    and loading come on top.
    """
    pool = next((pool for pool in plan.solution.pools if pool.layout), None)
    model = plan.workload.model
    if pool is None or pool.layout is None or model is None:
        return None
    predictions = plan.solution.predicted
    length_stats = spec.traffic.input_tokens, spec.traffic.output_tokens
    prompt_tokens, answer_tokens = (
        round(float(token_stats.mean)) if token_stats else 0
        for token_stats in length_stats
    )
    tpot = predictions.get("tpot_p95_ms")
    ttft = predictions.get("ttft_p95_ms")
    tpot_s = tpot.value / MS_PER_S if tpot else USUAL_TPOT_S
    ttft_s = ttft.value / MS_PER_S if ttft else USUAL_TTFT_S
    sweep_steps = []
    user_count = 1
    while user_count <= min(pool.layout.max_batch, MAX_USERS):
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
    total_usd = pool.usd_per_hour * Decimal(total_minutes) / 60
    return BenchmarkSweep(
        model_name=model.name,
        instance_type=pool.instance_type,
        accelerator=pool.accelerator,
        layout=pool.layout,
        prompt_tokens=prompt_tokens,
        answer_tokens=answer_tokens,
        steps=tuple(sweep_steps),
        minutes=total_minutes,
        usd=total_usd,
    )
