"""The smallest benchmark sweep over concurrency, with its duration and cost."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.errors import Problem, SpecError
from planner.facts.serving_engine import DEFAULT_ENGINE
from planner.perf.common.constant import constant
from planner.perf.serving.correction import (
    Correction,
    feature_vector,
    posterior,
)
from planner.units import MS_PER_S

if TYPE_CHECKING:
    from planner.perf.serving.correction import BiasModel
    from planner.plan.types import Layout, Plan
    from planner.spec.model import Batch, Inference

USERS_FACTOR: Final = 4  # from one concurrency of the sweep to the next
REQUESTS_PER_USER: Final = 5  # requests of each user; the first are warm-up
MIN_REQUESTS: Final = 20
# More say nothing new about how times grow with the batch.
MAX_USERS: Final = 256
USUAL_TPOT_S: Final = 0.05  # where a plan predicts none
USUAL_TTFT_S: Final = 1.0  # where a plan predicts none


class SweepStep(Struct, frozen=True):
    """One concurrency of the sweep.

    `user_count`  requests in flight at once
    `request_count`  requests sent in all
    `minutes`  predicted duration, minutes
    """

    user_count: int
    request_count: int
    minutes: float


class BenchmarkSweep(Struct, frozen=True, kw_only=True):
    """A sweep over concurrency on one machine, at the mean lengths of a spec.

    `layout`  layout of the replica that is measured
    `engine`  what serves it
    `prompt_tokens`, `answer_tokens`  mean lengths, tokens
    `minutes`  duration of all steps and of the start-up, minutes
    `usd`  price of the machine for that time, USD
    """

    model_name: str
    instance_type: str
    accelerator: str
    layout: Layout
    prompt_tokens: int
    answer_tokens: int
    steps: tuple[SweepStep, ...]
    minutes: float
    usd: Decimal
    engine: str = DEFAULT_ENGINE


def plan_sweep(plan: Plan, spec: Inference | Batch) -> BenchmarkSweep | None:
    """Return the sweep for the pool of a plan that serves a model, None without one.

    Concurrency grows fourfold from 1 to min(max_batch, 256).
    minutes of a step = requests / users * (TTFT + answer tokens * TPOT) / 60
    minutes in all    = sum of the steps + 2 * boot / 60
    TTFT and TPOT are the predicted 95th percentiles at peak. Raises SpecError for a spec that
    leaves its engine open: what is measured of one says nothing of the others.
    """
    if spec.serving.engine == "any":
        raise SpecError(
            Problem(
                code="engine",
                message="serving.engine is any, and a benchmark measures one engine",
                place=spec.serving.place,
                next_step="add: --set serving.engine=vllm, sglang or tensorrt-llm",
            )
        )
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
    # A plan of a batch run predicts no latency.
    tpot_s = tpot.value / MS_PER_S if tpot else USUAL_TPOT_S
    ttft_s = ttft.value / MS_PER_S if ttft else USUAL_TTFT_S
    sweep_steps = []
    user_count = 1
    # Batch size dominates step time, so concurrency is what is swept.
    while user_count <= min(pool.layout.max_batch, MAX_USERS):
        request_count = max(MIN_REQUESTS, REQUESTS_PER_USER * user_count)
        duration_s = (
            # Rounds of requests * time of one request.
            request_count / user_count * (ttft_s + answer_tokens * tpot_s)
        )
        sweep_steps.append(
            SweepStep(user_count, request_count, duration_s / 60)
        )
        user_count *= USERS_FACTOR
    total_minutes = (
        sum(sweep_step.minutes for sweep_step in sweep_steps)
        # Start-up: one boot time for the node, one more for the weights.
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
        engine=spec.serving.engine_name,
    )


def measured_alike(
    sweep: BenchmarkSweep, tpot_log_ratio: float, ttft_log_ratio: float
) -> Correction:
    """Return what a sweep teaches whose points all have the same ln(measured / predicted).

    The batch of a point is taken as its users: all of them are in flight.
    """
    context_tokens = sweep.prompt_tokens + sweep.answer_tokens / 2
    features = [
        feature_vector(step.user_count, context_tokens) for step in sweep.steps
    ]

    def learned(metric: str, log_ratio: float) -> BiasModel:
        return posterior(metric, ((point, log_ratio) for point in features))

    return Correction(
        model=sweep.model_name,
        accelerator=sweep.accelerator,
        precision=sweep.layout.precision,
        engine=sweep.engine,
        tp=sweep.layout.tp,
        points=len(features),
        tpot=learned("tpot", tpot_log_ratio),
        ttft=learned("ttft", ttft_log_ratio),
    )
