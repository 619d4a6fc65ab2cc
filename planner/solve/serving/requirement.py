"""Turns a serving or batch spec into a requirement: model, load, limits, rules."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from planner.cost.lifetime import bill_period, daily_window_s
from planner.cost.weekly_load import Week, weekly_load
from planner.errors import Place, Problem, SpecError
from planner.facts import huggingface, llm
from planner.facts.accelerator import SIXTEEN_BIT
from planner.facts.model_name import named_precision
from planner.facts.serving_engine import has_gap
from planner.perf.serving.drafting import drafting, find_draft, known_methods
from planner.perf.serving.load import LengthDistribution, ServingLoad
from planner.perf.serving.replica import Confidence
from planner.solve.serving.engine_rule import served_precisions
from planner.solve.serving.traffic_trace import observed_traffic, read_trace
from planner.solve.warning import assumed_architecture
from planner.spec.model import (
    BUCKET_WEIGHTS,
    Batch,
    Inference,
    LatencyLimit,
    ModelSpec,
    ServiceLevels,
    ShutdownRule,
    TokenLengths,
    Traffic,
)
from planner.spec.network import (
    endpoint_needs,
    given_network,
    has_public_addresses,
)
from planner.units import DAYS_PER_MONTH, SECONDS_PER_DAY, SECONDS_PER_MONTH

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.cost.lifetime import Period
    from planner.facts.llm import Llm
    from planner.facts.private_endpoint import EndpointNeed
    from planner.perf.common.layout import ReplicaLayout
    from planner.perf.serving.drafting import Drafting
    from planner.perf.serving.margin import LimitedMetric
    from planner.perf.serving.trace import Trace
    from planner.solve.cause import Cause
    from planner.spec.model import ElasticRule

# What weights in 16 bit are usually quantized to.
SMALLER_PRECISIONS: Final = ("fp8", "int4")
# Of a spec that leaves it open: what vLLM takes unless it is told otherwise comes first.
AUTO_CACHES: Final = ("bf16", "fp8")
# A sequence that must fit: the 95th percentiles together, and some.
CONTEXT_HEADROOM: Final = 1.25


class Neighbor(Struct, frozen=True, kw_only=True):
    """A service on the machines of another one: what its spec says, and what that requires.

    `model` is what it serves, as the spec names it.
    """

    name: str
    model: ModelSpec
    requirement: ServingRequirement


class ServingRequirement(Struct, frozen=True, kw_only=True):
    """What a serving or batch workload requires of a fleet.

    `mode`  open: an arrival rate; closed: a concurrency; batch: requests before a deadline
    `limits`  latency limits, seconds
    `availability`  share of the time in which enough groups are up, None without a target
    `survives`  what may fail at once at the peak
    `precisions`  allowed weight precisions in order of preference
    `kv_precisions`  formats of the KV cache: the first beside any weights, others where the engine
                     has kernels for them and the weights are quantized as far
    `week`  hourly load relative to the peak
    `request_count`  requests of one batch run
    `deadline_s`  time that one batch run may take, seconds
    `runs_per_month`  batch runs a month
    `shutdown`  when the machines are given back
    `confidence`  probability with which the limits are met, given the prediction error
    `trace`  recorded requests, None without a recording
    `notes`  assumptions that the plan reports
    `weights`  where they are: in the bucket of the stack, on a hub, or in a bucket of the account
    `has_own_network`  whether the network is that of the stack
    `has_addresses`  whether machines go out by public addresses of their own
    `is_public`  whether answers leave for the internet
    `endpoint_needs`  what machines reach by private endpoints, empty without them
    `elastic`  how far machines follow the load, None when they follow the hours alone
    `traffic_share`  share of all arrivals that a router sends to these machines at random
    `layout`  that every replica must have, None for any
    `part`  of the work of a request that these machines do, empty for all of it
    `beside`  services that have an engine on each accelerator of the same machines
    `own_week`  load of this service where `week` is that of all who share its machines
    """

    mode: Literal["open", "closed", "batch"]
    llm: Llm
    load: ServingLoad
    limits: tuple[LatencyLimit, ...]
    availability: Decimal | None
    survives: Literal["node", "zone"] | None = None
    precisions: tuple[str, ...]
    kv_precisions: tuple[str, ...]
    week: Week
    request_count: Decimal = Decimal(0)
    deadline_s: float = 0.0
    runs_per_month: Decimal = Decimal(0)
    shutdown: ShutdownRule = field(default_factory=ShutdownRule)
    confidence: Confidence = field(default_factory=Confidence)
    trace: Trace | None = None
    notes: tuple[Cause, ...] = field(default_factory=tuple)
    weights: Literal["bucket", "hub", "account"] = "bucket"
    has_own_network: bool = True
    has_addresses: bool = False
    is_public: bool = False
    endpoint_needs: frozenset[EndpointNeed] = frozenset()
    elastic: ElasticRule | None = None
    traffic_share: float = 1.0
    layout: ReplicaLayout | None = None
    part: Literal["", "prompts", "answers"] = ""
    beside: tuple[Neighbor, ...] = ()
    own_week: Week | None = None

    @property
    def traffic_week(self) -> Week:
        """Hourly load of this service alone, relative to its peak."""
        return self.own_week or self.week

    def with_default_cache(self) -> ServingRequirement:
        """Return the same requirement without a choice of the cache: the first format alone."""
        return replace(self, kv_precisions=self.kv_precisions[:1])

    def without_draft(self) -> ServingRequirement:
        """Return the same requirement without speculative decoding."""
        return replace(self, load=replace(self.load, drafting=None))

    @property
    def has_draft(self) -> bool:
        """Whether steps check guesses."""
        return self.load.drafting is not None

    def without_limit(self, limit_key: str) -> ServingRequirement:
        """Return the same requirement without one limit."""
        return replace(
            self,
            limits=tuple(
                sla_limit
                for sla_limit in self.limits
                if sla_limit.key != limit_key
            ),
        )

    def with_limit(
        self, limit_key: str, seconds: Decimal
    ) -> ServingRequirement:
        """Return the same requirement with another value of one limit."""
        return replace(
            self,
            limits=tuple(
                replace(sla_limit, seconds=seconds)
                if sla_limit.key == limit_key
                else sla_limit
                for sla_limit in self.limits
            ),
        )

    def with_scaled_load(self, traffic_factor: float) -> ServingRequirement:
        """Return the same requirement at `traffic_factor` times the traffic of each service."""
        scaled_load = replace(
            self.load,
            rate_per_s=self.load.rate_per_s * traffic_factor,
            concurrency=round(self.load.concurrency * traffic_factor),
        )
        return replace(
            self,
            load=scaled_load,
            # More traffic: the same requests in less time.
            trace=self.trace and self.trace.with_traffic(traffic_factor),
            request_count=self.request_count * Decimal(traffic_factor),
            beside=tuple(
                replace(
                    neighbor,
                    requirement=neighbor.requirement.with_scaled_load(
                        traffic_factor
                    ),
                )
                for neighbor in self.beside
            ),
        )

    def with_share(self, share: float) -> ServingRequirement:
        """Return what a pool has to carry that gets a random share of all arrivals.

        Two pools are both up only as often as each of them: each has the square root of the
        availability that is asked for.
        """
        availability = self.availability and self.availability.sqrt()
        return replace(
            self.with_scaled_load(share),
            availability=availability,
            traffic_share=self.traffic_share * share,
        )

    @property
    def metrics(self) -> tuple[LimitedMetric, ...]:
        """What has to keep a limit with the confidence asked for, in alphabetical order."""
        if self.mode == "batch":
            return ("throughput",)
        return tuple(sorted({sla_limit.metric for sla_limit in self.limits}))

    @property
    def is_simulated(self) -> bool:
        """Whether there is a latency to simulate."""
        return bool(self.limits) and self.mode != "batch"

    @property
    def role(self) -> Literal["serve", "batch"]:
        """What the machines do."""
        return "batch" if self.mode == "batch" else "serve"

    @property
    def runs_daily(self) -> bool:
        """Whether a batch starts every day."""
        return self.runs_per_month > 1

    @property
    def period(self) -> Period:
        """What its bills are for."""
        return bill_period(
            self.shutdown,
            is_one_job=self.mode == "batch" and not self.runs_daily,
        )

    @property
    def requests_per_month(self) -> Decimal:
        """Requests served in a month.

        batch: request_count * runs a month
        open:  peak rate * mean load of the week * 730 h, in seconds
        A closed loop has no rate and gives 0.
        """
        if self.mode == "batch":
            return self.request_count * self.runs_per_month
        seconds_per_month = Decimal(SECONDS_PER_MONTH)
        return (
            # Peak rate * mean load relative to the peak = mean rate.
            Decimal(self.load.rate_per_s * self.traffic_week.mean_load)
            * seconds_per_month
        )


def resolve_model(
    model_spec: ModelSpec, read_file: Callable[[str], bytes]
) -> Llm:
    """Return the architecture that a spec names.

    It uses the first that is given: a config file, a parameter count, a name.
    `read_file` opens files beside the spec.
    """
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
    """Return the requirement of a spec; raise SpecError when it contradicts itself.

    context   = model.context, else 1.25 * (p95 of prompts + p95 of answers), tokens
    peak rate = traffic.peak_rps, else requests_per_day / 86400 / mean load of the profile
    A trace replaces rate, lengths and burstiness. Raises MissingError for an unknown model.
    """
    architecture = resolve_model(spec.model, read_file)
    recorded_trace = (
        read_trace(spec.traffic.trace, read_file)
        if spec.traffic.trace
        else None
    )
    traffic = (
        observed_traffic(spec.traffic, recorded_trace)
        if recorded_trace
        else spec.traffic
    )
    base_load = replace(
        _base_load(spec.model, traffic, architecture),
        token_budget=spec.serving.token_budget or 0,
        drafting=_drafting(spec, architecture),
        engine=spec.serving.engine_name,
    )
    shared_fields = _shared_fields(
        spec.model, architecture, spec.serving.engine_name
    )
    if isinstance(spec, Batch):
        return _batch_requirement(spec, base_load, shared_fields)
    weekly_profile = weekly_load(traffic.profile, spec.shutdown.schedule)
    sla = spec.sla or ServiceLevels(place=spec.place)
    return ServingRequirement(
        mode="closed" if traffic.concurrency else "open",
        load=replace(base_load, rate_per_s=_peak_rps(traffic, weekly_profile)),
        limits=tuple(sorted(sla.limits, key=lambda sla_limit: sla_limit.key)),
        availability=sla.availability,
        survives=sla.survives,
        week=weekly_profile,
        trace=recorded_trace,
        shutdown=spec.shutdown,
        has_own_network=given_network(spec.network) is None,
        has_addresses=has_public_addresses(spec.network),
        endpoint_needs=endpoint_needs(spec),
        is_public=spec.endpoint is not None and spec.endpoint.public,
        elastic=spec.elastic,
        **shared_fields,  # type: ignore[arg-type]
    )


def _base_load(
    model_spec: ModelSpec, traffic: Traffic, architecture: Llm
) -> ServingLoad:
    """Return the load without its rate; raise SpecError without token lengths."""
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
    # The two p95 values seldom meet in one request; 1.25 adds headroom.
    context_tokens = model_spec.context or round(
        CONTEXT_HEADROOM * float(prompt_tokens.p95 + answer_tokens.p95)
    )
    _check_context(context_tokens, model_spec, architecture)
    return ServingLoad(
        prompt_lengths=_token_lengths(prompt_tokens),
        answer_lengths=_token_lengths(answer_tokens),
        concurrency=traffic.concurrency or 0,
        # Queueing formulas use the squared coefficient of variation.
        arrival_variation=float(traffic.burstiness) ** 2,
        prefix_hit=float(traffic.prefix_hit),
        max_context_tokens=context_tokens,
        routing=traffic.routing,
    )


def _drafting(spec: Inference | Batch, architecture: Llm) -> Drafting | None:
    """Return the speculative decoding of a spec; raise SpecError without a known draft."""
    method, model_name = spec.serving.speculation, spec.model.name or ""
    # What leaves it to the plan is planned once with each.
    if method in ("auto", "off"):
        return None
    row = find_draft(method, architecture, model_name)
    share = spec.serving.acceptance
    # Rules of the spec ask for an acceptance where none is published.
    if row is not None and share is None and row.acceptance is not None:
        share = Decimal(row.acceptance)
    if row is None or share is None:
        others = ", ".join(known_methods(architecture, model_name))
        raise SpecError(
            Problem(
                code="speculation",
                message=f"no draft of {method} is known for {model_name or 'a config.json'}",
                place=spec.serving.place or spec.place,
                next_step=f"write serving.speculation: off, or one of {others}",
            )
        )
    return drafting(row, float(share))


def _check_context(
    context_tokens: int, model_spec: ModelSpec, architecture: Llm
) -> None:
    """Raise SpecError when the context is longer than the model supports."""
    # max_context 0: the limit of the model is not known.
    if context_tokens > architecture.max_context > 0:
        message = f"context {context_tokens:,} is longer than {architecture.model} takes"
        next_step = (
            "shorten the traffic, or set model.context to at most "
            f"{architecture.max_context}"
        )
        raise SpecError(_traffic_problem(model_spec.place, message, next_step))


def _weights_kind(weights: str) -> Literal["bucket", "hub", "account"]:
    if weights == BUCKET_WEIGHTS:
        return "bucket"
    return "account" if "://" in weights else "hub"


def _shared_fields(
    model_spec: ModelSpec, architecture: Llm, engine: str
) -> dict[str, object]:
    """Return the fields that serving and batch requirements take from the model."""
    notes = assumed_architecture(architecture)
    return {
        "llm": architecture,
        "weights": _weights_kind(model_spec.weights),
        "precisions": served_precisions(
            engine,
            model_spec,
            architecture,
            resolve_precisions(model_spec, architecture),
        ),
        "kv_precisions": (
            AUTO_CACHES
            if model_spec.kv_precision == "auto"
            else (model_spec.kv_precision,)
        ),
        "notes": notes,
    }


def _peak_rps(traffic: Traffic, weekly_profile: Week) -> float:
    """Return the peak rate, requests/s: stated, or from the requests of a day."""
    if not traffic.requests_per_day:
        return float(traffic.peak_rps or 0)
    # Mean rate of a day / mean load relative to the peak = peak rate.
    return (
        traffic.requests_per_day
        / SECONDS_PER_DAY
        / (
            sum(weekly_profile.relative_load)
            / len(weekly_profile.relative_load)
        )
    )


def resolve_precisions(
    model_spec: ModelSpec, architecture: Llm
) -> tuple[str, ...]:
    """Return the allowed precisions with auto resolved.

    auto is the released precision; for models released in 16 bit also fp8, and the other
    format of 16 bit for accelerators that have only that one. Quantized weights, by a name such
    as one with AWQ or by a config.json, leave their precision only; raises SpecError when the
    spec allows others and not that one.
    """
    # A 16-bit checkpoint can be quantized to fp8 when it is loaded.
    automatic_names = (
        (architecture.precision, "fp8", *SIXTEEN_BIT)
        if architecture.precision in SIXTEEN_BIT
        else (architecture.precision,)
    )
    # Keeps the order of preference and drops duplicates.
    allowed_names = dict.fromkeys(
        resolved_name
        for precision_name in model_spec.precision
        for resolved_name in (
            automatic_names if precision_name == "auto" else (precision_name,)
        )
    )
    weight_format = (
        architecture.precision
        if model_spec.config
        else named_precision(model_spec.name or "")
    )
    if weight_format in ("", *SIXTEEN_BIT):
        return tuple(allowed_names)
    if weight_format not in allowed_names:
        raise SpecError(
            Problem(
                code="conflict",
                message=(
                    f"model.precision is {', '.join(allowed_names)}, and "
                    f"{model_spec.config or model_spec.name} has "
                    f"{weight_format} weights"
                ),
                place=model_spec.place,
                next_step=(
                    f"write precision: {weight_format}, or name the model "
                    "without its quantization"
                ),
            )
        )
    return (weight_format,)


def other_precisions(requirement: ServingRequirement) -> tuple[str, ...]:
    """Return the precisions with fewer bytes that a model can take beside the allowed ones.

    Weights in 16 bit can be quantized to fp8 and to int4; weights that are quantized already stay
    as they are, and so do all of an engine that makes no other formats.
    """
    if requirement.llm.precision not in SIXTEEN_BIT or has_gap(
        requirement.load.engine, "conversion"
    ):
        return ()
    return tuple(
        precision
        for precision in SMALLER_PRECISIONS
        if precision not in requirement.precisions
    )


def _batch_requirement(
    spec: Batch, base_load: ServingLoad, shared_fields: dict[str, object]
) -> ServingRequirement:
    daily_requests = spec.traffic.requests_per_day
    return ServingRequirement(
        mode="batch",
        load=base_load,
        limits=(),
        availability=None,
        # A run has no daily profile: it works at full load to its end.
        week=weekly_load("flat", None),
        request_count=Decimal(
            daily_requests or spec.traffic.total_requests or 0
        ),
        deadline_s=_run_limit_s(spec),
        # Daily requests are one run a day; a total is one run in all.
        runs_per_month=DAYS_PER_MONTH if daily_requests else Decimal(1),
        shutdown=spec.shutdown,
        has_own_network=given_network(spec.network) is None,
        has_addresses=has_public_addresses(spec.network),
        endpoint_needs=endpoint_needs(spec),
        **shared_fields,  # type: ignore[arg-type]
    )


def _run_limit_s(spec: Batch) -> float:
    """Seconds that a run may take: its deadline, while its machines live.

    A daily run has its machines in the window of its day.
    """
    assert spec.deadline is not None  # noqa: S101 - loading has set it
    deadline_s = float(spec.deadline)
    if spec.traffic.requests_per_day:
        deadline_s = daily_window_s(deadline_s)
    if spec.shutdown.ttl is not None:
        return min(deadline_s, float(spec.shutdown.ttl))
    return deadline_s


def _token_lengths(token_stats: TokenLengths) -> LengthDistribution:
    return LengthDistribution(
        mean_tokens=float(token_stats.mean), p95_tokens=float(token_stats.p95)
    )


def _traffic_problem(place: Place, message: str, next_step: str) -> Problem:
    return Problem(
        code="traffic", message=message, place=place, next_step=next_step
    )
