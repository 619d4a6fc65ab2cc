"""From a spec to what must be solved: the model, the load, the limits and the rules."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal

from planner.cost.weekly_load import Week, weekly_load
from planner.errors import Place, Problem, SpecError
from planner.facts import huggingface, llm
from planner.perf.serving.load import LengthDistribution, ServingLoad
from planner.perf.serving.replica import Confidence
from planner.solve.serving.traffic_trace import observed_traffic, read_trace
from planner.spec.model import (
    Batch,
    Inference,
    LatencyLimit,
    ModelSpec,
    TokenLengths,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.facts.llm import Llm
    from planner.perf.serving.load import Arrival

DAY_S: Final = 86_400
DAYS_PER_MONTH: Final = Decimal(730) / 24
CONTEXT_HEADROOM: Final = (
    1.25  # a sequence that must fit: the 95th percentiles together, and some
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRequirement:
    """What a serving or batch workload asks of a fleet.

    `mode` open is a rate, closed a concurrency, batch an amount before a deadline. Limits are
    to be met with the confidence of `confidence` in the predictions. `trace` is what was recorded.
    """

    mode: Literal["open", "closed", "batch"]
    llm: Llm
    load: ServingLoad
    limits: tuple[LatencyLimit, ...]
    availability: Decimal | None
    precisions: tuple[str, ...]
    kv_precision: str
    week: Week
    request_count: Decimal = Decimal(0)
    deadline_s: float = 0.0
    runs_per_month: Decimal = Decimal(0)
    confidence: Confidence = field(default_factory=Confidence)
    trace: tuple[Arrival, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)

    def without_limit(self, limit_key: str) -> ServingRequirement:
        """The same need without one limit."""
        return replace(
            self,
            limits=tuple(
                sla_limit
                for sla_limit in self.limits
                if sla_limit.key != limit_key
            ),
        )

    def with_scaled_load(self, traffic_factor: float) -> ServingRequirement:
        """The same need with more or less traffic."""
        scaled_load = replace(
            self.load,
            rate_per_s=self.load.rate_per_s * traffic_factor,
            concurrency=round(self.load.concurrency * traffic_factor),
        )
        scaled_trace = tuple(
            (arrival_s / traffic_factor, prompt, answer)
            for arrival_s, prompt, answer in self.trace
        )
        return replace(
            self,
            load=scaled_load,
            trace=scaled_trace,
            request_count=self.request_count * Decimal(traffic_factor),
        )

    @property
    def requests_per_month(self) -> Decimal:
        """Requests served in a month, under the profile and the schedule."""
        if self.mode == "batch":
            return self.request_count * self.runs_per_month
        seconds_per_month = Decimal(730 * 3600)
        return (
            Decimal(self.load.rate_per_s * self.week.mean_load)
            * seconds_per_month
        )


def resolve_model(
    model_spec: ModelSpec, read_file: Callable[[str], bytes]
) -> Llm:
    """Return the architecture that a spec names; `read_file` opens files beside the spec."""
    if model_spec.config is not None:
        return huggingface.parse_config(
            read_file(model_spec.config), model_spec.config
        )
    if model_spec.params is not None:
        return llm.dense_model(model_spec.params)
    return llm.find_model(model_spec.name or "", model_spec.place)


def serving_requirement(
    spec: Inference | Batch, read_file: Callable[[str], bytes]
) -> ServingRequirement:
    """Return what a spec needs; raises SpecError or MissingError when it contradicts itself."""
    architecture = resolve_model(spec.model, read_file)
    recorded_trace = (
        read_trace(spec.traffic.trace, read_file) if spec.traffic.trace else ()
    )
    traffic = (
        observed_traffic(spec.traffic, recorded_trace)
        if recorded_trace
        else spec.traffic
    )
    prompt_tokens = traffic.input_tokens
    answer_tokens = traffic.output_tokens
    if (
        prompt_tokens is None or answer_tokens is None
    ):  # load() has reported it already
        raise SpecError(
            _traffic_problem(
                traffic.place, "traffic has no lengths", "give them"
            )
        )
    context_tokens = spec.model.context or round(
        CONTEXT_HEADROOM * float(prompt_tokens.p95 + answer_tokens.p95)
    )
    if context_tokens > architecture.max_context > 0:
        message = f"context {context_tokens:,} is longer than {architecture.model} takes"
        next_step = (
            "shorten the traffic, or set model.context to at most "
            f"{architecture.max_context}"
        )
        raise SpecError(_traffic_problem(spec.model.place, message, next_step))
    base_load = ServingLoad(
        prompt_lengths=_token_lengths(prompt_tokens),
        answer_lengths=_token_lengths(answer_tokens),
        concurrency=traffic.concurrency or 0,
        arrival_variation=float(traffic.burstiness) ** 2,
        prefix_hit=float(traffic.prefix_hit),
        max_context_tokens=context_tokens,
        routing=traffic.routing,
    )
    shared_fields = {
        "llm": architecture,
        "precisions": resolve_precisions(spec.model.precision, architecture),
        "kv_precision": "bf16"
        if spec.model.kv_precision == "auto"
        else spec.model.kv_precision,
        "notes": (architecture.assumption,) if architecture.assumption else (),
    }
    if isinstance(spec, Batch):
        return _batch_requirement(spec, base_load, shared_fields)
    weekly_profile = weekly_load(traffic.profile, spec.shutdown.schedule)
    peak_rps = float(traffic.peak_rps or 0)
    if traffic.requests_per_day:
        peak_rps = (
            traffic.requests_per_day
            / DAY_S
            / (
                sum(weekly_profile.relative_load)
                / len(weekly_profile.relative_load)
            )
        )
    sla = spec.sla
    return ServingRequirement(
        mode="closed" if traffic.concurrency else "open",
        load=replace(base_load, rate_per_s=peak_rps),
        limits=tuple(sorted(sla.limits, key=lambda sla_limit: sla_limit.key))
        if sla
        else (),
        availability=sla.availability if sla else None,
        week=weekly_profile,
        trace=recorded_trace,
        **shared_fields,  # type: ignore[arg-type]
    )


def resolve_precisions(
    allowed_names: tuple[str, ...], architecture: Llm
) -> tuple[str, ...]:
    """Resolve auto: the released precision, and fp8 for models released in 16 bit."""
    resolved_names: list[str] = []
    for precision_name in allowed_names:
        automatic_names = (
            (architecture.precision, "fp8")
            if architecture.precision == "bf16"
            else (architecture.precision,)
        )
        resolved_names += (
            automatic_names if precision_name == "auto" else (precision_name,)
        )
    return tuple(dict.fromkeys(resolved_names))


def _batch_requirement(
    spec: Batch, base_load: ServingLoad, shared_fields: dict[str, object]
) -> ServingRequirement:
    daily_requests = spec.traffic.requests_per_day
    return ServingRequirement(
        mode="batch",
        load=base_load,
        limits=(),
        availability=None,
        week=weekly_load("flat", None),
        request_count=Decimal(
            daily_requests or spec.traffic.total_requests or 0
        ),
        deadline_s=float(spec.deadline),
        runs_per_month=DAYS_PER_MONTH if daily_requests else Decimal(1),
        **shared_fields,  # type: ignore[arg-type]
    )


def _token_lengths(token_stats: TokenLengths) -> LengthDistribution:
    return LengthDistribution(
        mean_tokens=float(token_stats.mean), p95_tokens=float(token_stats.p95)
    )


def _traffic_problem(place: Place, message: str, next_step: str) -> Problem:
    return Problem(
        code="traffic", message=message, place=place, next_step=next_step
    )
