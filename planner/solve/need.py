"""From a spec to what must be solved: the model, the load, the limits and the rules."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal

from planner.cost.week import Week, week
from planner.errors import Place, Problem, SpecError
from planner.facts import huggingface, llm
from planner.perf.load import Lengths, Load
from planner.perf.serve import Trust
from planner.solve.trace import observed, read_trace
from planner.spec.model import Batch, Inference, Limit, ModelSpec, Tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.facts.llm import Llm
    from planner.perf.load import Arrival

DAY: Final = 86_400
DAYS_PER_MONTH: Final = Decimal(730) / 24
HEADROOM: Final = (
    1.25  # a sequence that must fit: the 95th percentiles together, and some
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a serving or batch workload asks of a fleet.

    `mode` open is a rate, closed a concurrency, batch an amount before a deadline. Limits are
    to be met with the confidence of `trust` in the predictions. `trace` is what was recorded.
    """

    mode: Literal["open", "closed", "batch"]
    llm: Llm
    load: Load
    limits: tuple[Limit, ...]
    availability: Decimal | None
    precisions: tuple[str, ...]
    kv_precision: str
    week: Week
    requests: Decimal = Decimal(0)
    deadline: float = 0.0
    runs_per_month: Decimal = Decimal(0)
    trust: Trust = field(default_factory=Trust)
    trace: tuple[Arrival, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)

    def without(self, key: str) -> Need:
        """The same need without one limit."""
        return replace(
            self, limits=tuple(x for x in self.limits if x.key != key)
        )

    def scaled(self, factor: float) -> Need:
        """The same need with more or less traffic."""
        load = replace(
            self.load,
            rate=self.load.rate * factor,
            concurrency=round(self.load.concurrency * factor),
        )
        trace = tuple(
            (at / factor, prompt, answer) for at, prompt, answer in self.trace
        )
        return replace(
            self,
            load=load,
            trace=trace,
            requests=self.requests * Decimal(factor),
        )

    @property
    def requests_per_month(self) -> Decimal:
        """Requests served in a month, under the profile and the schedule."""
        if self.mode == "batch":
            return self.requests * self.runs_per_month
        seconds = Decimal(730 * 3600)
        return Decimal(self.load.rate * self.week.mean) * seconds


def model(spec: ModelSpec, read: Callable[[str], bytes]) -> Llm:
    """Return the architecture that a spec names; `read` opens files beside the spec."""
    if spec.config is not None:
        return huggingface.read(read(spec.config), spec.config)
    if spec.params is not None:
        return llm.dense_of(spec.params)
    return llm.find(spec.name or "", spec.place)


def need(spec: Inference | Batch, read: Callable[[str], bytes]) -> Need:
    """Return what a spec needs; raises SpecError or MissingError when it contradicts itself."""
    chosen = model(spec.model, read)
    trace = read_trace(spec.traffic.trace, read) if spec.traffic.trace else ()
    traffic = observed(spec.traffic, trace) if trace else spec.traffic
    given, wanted = traffic.input_tokens, traffic.output_tokens
    if given is None or wanted is None:  # load() has reported it already
        raise SpecError(
            _problem(traffic.place, "traffic has no lengths", "give them")
        )
    longest = spec.model.context or round(
        HEADROOM * float(given.p95 + wanted.p95)
    )
    if longest > chosen.max_context > 0:
        message = f"context {longest:,} is longer than {chosen.model} takes"
        step = f"shorten the traffic, or set model.context to at most {chosen.max_context}"
        raise SpecError(_problem(spec.model.place, message, step))
    load = Load(
        prompt=_lengths(given),
        answer=_lengths(wanted),
        concurrency=traffic.concurrency or 0,
        variation=float(traffic.burstiness) ** 2,
        prefix_hit=float(traffic.prefix_hit),
        context=longest,
        routing=traffic.routing,
    )
    shared = {
        "llm": chosen,
        "precisions": precisions(spec.model.precision, chosen),
        "kv_precision": "bf16"
        if spec.model.kv_precision == "auto"
        else spec.model.kv_precision,
        "notes": (chosen.assumed,) if chosen.assumed else (),
    }
    if isinstance(spec, Batch):
        return _batch(spec, load, shared)
    weekly = week(traffic.profile, spec.shutdown.schedule)
    rate = float(traffic.peak_rps or 0)
    if traffic.requests_per_day:
        rate = (
            traffic.requests_per_day
            / DAY
            / (sum(weekly.load) / len(weekly.load))
        )
    sla = spec.sla
    return Need(
        mode="closed" if traffic.concurrency else "open",
        load=replace(load, rate=rate),
        limits=tuple(sorted(sla.limits, key=lambda x: x.key)) if sla else (),
        availability=sla.availability if sla else None,
        week=weekly,
        trace=trace,
        **shared,  # type: ignore[arg-type]
    )


def precisions(allowed: tuple[str, ...], chosen: Llm) -> tuple[str, ...]:
    """Resolve auto: the released precision, and fp8 for models released in 16 bit."""
    found: list[str] = []
    for word in allowed:
        auto = (
            (chosen.precision, "fp8")
            if chosen.precision == "bf16"
            else (chosen.precision,)
        )
        found += auto if word == "auto" else (word,)
    return tuple(dict.fromkeys(found))


def _batch(spec: Batch, load: Load, shared: dict[str, object]) -> Need:
    daily = spec.traffic.requests_per_day
    return Need(
        mode="batch",
        load=load,
        limits=(),
        availability=None,
        week=week("flat", None),
        requests=Decimal(daily or spec.traffic.total_requests or 0),
        deadline=float(spec.deadline),
        runs_per_month=DAYS_PER_MONTH if daily else Decimal(1),
        **shared,  # type: ignore[arg-type]
    )


def _lengths(tokens: Tokens) -> Lengths:
    return Lengths(mean=float(tokens.mean), p95=float(tokens.p95))


def _problem(place: Place, message: str, step: str) -> Problem:
    return Problem(code="traffic", message=message, place=place, next_step=step)
