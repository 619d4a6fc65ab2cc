"""The plan document as types: what is reviewed, saved, compared and carried out.

The types are the contract. The JSON Schema of `tonnage schema plan` and docs/plan-document.md are
generated from them. Decimals are written as text, so that money stays exact.
"""

from __future__ import annotations

from decimal import Decimal  # noqa: TC003 - msgspec reads the annotations
from typing import Annotated, Literal

from msgspec import Meta, field

from planner.plan.change import Changes, PlanInputs, ResourceChange
from planner.plan.part import (
    Basis,
    DocumentPart,
    Number,
    Period,
    Properties,
    Role,
)
from planner.plan.pool import FleetRef, Layout, Pool, Purchase, RivalPool
from planner.plan.run import (
    BilledTime,
    CheckpointRule,
    CurvePoint,
    Launch,
    Run,
    RunScenario,
    StorageSpeed,
    TrainingLayout,
)

__all__ = [
    "Alternative",
    "Basis",
    "BilledTime",
    "Binding",
    "Calibration",
    "CatalogRef",
    "Changes",
    "CheckpointRule",
    "Cost",
    "CostLine",
    "CurvePoint",
    "DocumentPart",
    "EnergyUse",
    "FleetRef",
    "FunnelStep",
    "Launch",
    "Layout",
    "Life",
    "MetricLimit",
    "ModelRef",
    "Notice",
    "Number",
    "Outcome",
    "PercentileBand",
    "Period",
    "Plan",
    "PlanInputs",
    "PlannedGraph",
    "PlannedResource",
    "Pool",
    "Prediction",
    "Properties",
    "Purchase",
    "Reason",
    "ResourceChange",
    "RivalPool",
    "Role",
    "Run",
    "RunScenario",
    "Safety",
    "Shutdown",
    "SpecRef",
    "StackRef",
    "StorageSpeed",
    "TokenCost",
    "TrainingLayout",
    "Verification",
    "WorkloadRef",
]


class CatalogRef(DocumentPart, frozen=True, kw_only=True):
    """The catalog that the plan was made with."""

    sha256: Annotated[str, Meta(description="digest of the catalog's files")]
    as_of: Annotated[str, Meta(description="date of its newest price")]


class SpecRef(DocumentPart, frozen=True, kw_only=True):
    """The spec that was planned."""

    path: Annotated[str, Meta(description="as given on the command line")]
    sha256: Annotated[str, Meta(description="of the file's bytes")]
    normalized: Annotated[
        Properties, Meta(description="the spec with defaults filled in")
    ]


class ModelRef(DocumentPart, frozen=True, kw_only=True):
    """The model of a workload."""

    name: Annotated[str, Meta(description="name among the known models")]
    family: Annotated[str, Meta(description="architecture family")]
    params: Annotated[Number, Meta(description="all parameters")]
    active_params: Annotated[Number, Meta(description="used for each token")]
    source: Annotated[str, Meta(description="where the architecture is from")]


class WorkloadRef(DocumentPart, frozen=True, kw_only=True):
    """What is to be run."""

    kind: Annotated[
        str,
        Meta(description="inference, batch, training or workspace"),
    ]
    name: Annotated[str, Meta(description="name of the spec")]
    model: Annotated[
        ModelRef | None,
        Meta(
            description="the model; none for a machine that was asked for by its memory"
        ),
    ]
    weights: Annotated[
        str | None,
        Meta(
            description="where machines get the weights, as the spec says; none: they load none"
        ),
    ]


class FunnelStep(DocumentPart, frozen=True, kw_only=True):
    """How many offers a rule of the spec leaves."""

    rule: Annotated[str, Meta(description="key of the spec")]
    offers: Annotated[int, Meta(description="offers that are left after it")]


class Prediction(DocumentPart, frozen=True, kw_only=True):
    """A predicted number with its 90 % band and what it rests on."""

    value: Annotated[
        Number,
        Meta(description="the predicted number, in the unit of its name"),
    ]
    low: Annotated[Number, Meta(description="lower end of the 90 % band")]
    high: Annotated[Number, Meta(description="upper end of the 90 % band")]
    basis: Annotated[Basis, Meta(description="what it rests on")]


class MetricLimit(DocumentPart, frozen=True, kw_only=True):
    """A limit of the spec on a predicted number, in its unit."""

    limit: Annotated[Number, Meta(description="the predicted number at most")]
    headroom: Annotated[
        Number,
        Meta(description="share of the limit that the predicted number leaves"),
    ]


class Reason(DocumentPart, frozen=True, kw_only=True):
    """What a sentence of the plan says, as data."""

    code: Annotated[str, Meta(description="name of the reason")]
    key: Annotated[
        str | None, Meta(description="key of the spec that it is about")
    ]
    values: Annotated[
        dict[str, Number | str],
        Meta(
            description="its numbers and names; a unit is the end of a name: "
            "_s, _hours, _days, _usd, _gib, _share"
        ),
    ]


class Binding(DocumentPart, frozen=True, kw_only=True):
    """A constraint that costs money, and the nearest value that would cost less.

    In an infeasible plan `relax_to` is the nearest value with which a fleet exists.
    """

    constraint: Annotated[str, Meta(description="key of the spec")]
    slack: Annotated[
        Number | None, Meta(description="share of the limit that is left")
    ]
    relax_to: Annotated[
        str,
        Meta(
            description="the nearest value that costs less, or that is feasible"
        ),
    ]
    saves_usd_month: Annotated[
        Decimal | None, Meta(description="in the period of the bill")
    ]
    usd_month: Annotated[
        Decimal | None, Meta(description="what the fleet would then cost")
    ]
    fleet: Annotated[FleetRef | None, Meta(description="the fleet then")]


class Safety(DocumentPart, frozen=True, kw_only=True):
    """What it costs to meet the limits with confidence rather than as often as not."""

    confidence: Annotated[
        Number,
        Meta(
            description="share of cases in which the limits are met, in view of the bands"
        ),
    ]
    usd_month: Annotated[
        Decimal | None,
        Meta(
            description="what that costs over 0.5, in the period of the bill; null when it was "
            "not planned, as in a plan of many specs"
        ),
    ]
    fleet: Annotated[
        FleetRef | None, Meta(description="the fleet at even odds, if cheaper")
    ]


class PercentileBand(DocumentPart, frozen=True, kw_only=True):
    """A percentile of the simulation with its 95 % Monte Carlo interval."""

    value: Annotated[Number, Meta(description="ms")]
    low: Annotated[
        Number,
        Meta(
            description="lower end of the 95 % Monte Carlo interval, 0 at least"
        ),
    ]
    high: Annotated[Number, Meta(description="upper end")]


class Verification(DocumentPart, frozen=True, kw_only=True):
    """A simulation of the chosen fleet, request by request."""

    by: Annotated[
        Literal["simulation"], Meta(description="always simulation")
    ] = "simulation"
    verdict: Annotated[
        Literal["holds", "undecided"],
        Meta(
            description="holds, or undecided when other requests may not confirm it"
        ),
    ]
    requests: Annotated[int, Meta(description="requests counted")]
    requests_of: Annotated[
        Literal["trace", "drawn"], Meta(description="where requests are from")
    ]
    routing: Annotated[
        str, Meta(description="how requests are spread over replicas")
    ]
    batches: Annotated[
        int, Meta(description="batches of requests that were compared")
    ]
    decode_factor: Annotated[
        Number,
        Meta(
            description="times as slow as predicted that answers were simulated"
        ),
    ]
    prefill_factor: Annotated[
        Number,
        Meta(
            description="times as slow as predicted that prompts were simulated"
        ),
    ]
    added_groups: Annotated[
        int, Meta(description="more than the formulas asked for")
    ]
    found: Annotated[
        dict[str, PercentileBand],
        Meta(description="p50, p90, p95 and p99 of TTFT, TPOT and E2E in ms"),
    ]


class Calibration(DocumentPart, frozen=True, kw_only=True):
    """The user's own benchmark that corrected the predictions."""

    sha256: Annotated[str, Meta(description="of the calibration file")]
    accelerator: Annotated[str, Meta(description="that was measured")]
    points: Annotated[int, Meta(description="measured points")]


class EnergyUse(DocumentPart, frozen=True, kw_only=True):
    """Power and energy of the machines in the period of the bill."""

    kw: Annotated[Number, Meta(description="while all machines work")]
    kwh: Annotated[Number, Meta(description="of the hours that are paid")]
    kg_co2e: Annotated[
        Number | None, Meta(description="none where the grid is not known")
    ]


class Outcome(DocumentPart, frozen=True, kw_only=True):
    """What was decided, and what it will do."""

    status: Annotated[
        Literal["optimal", "feasible", "infeasible"],
        Meta(
            description="optimal: proved; feasible: the simulation could not decide "
            "whether it keeps its limits; infeasible: proved that nothing does"
        ),
    ]
    gap: Annotated[str | None, Meta(description="0 when proved optimal")]
    solve_ms: Annotated[
        None, Meta(description="always null: equal inputs give equal bytes")
    ] = None
    considered: Annotated[int, Meta(description="offers looked at")]
    funnel: Annotated[
        tuple[FunnelStep, ...],
        Meta(description="offers that are left after each rule"),
    ]
    pools: Annotated[
        tuple[Pool, ...],
        Meta(description="what is bought; empty when infeasible"),
    ]
    predicted: Annotated[
        dict[str, Prediction],
        Meta(
            description="predicted numbers by name; the name ends in the unit"
        ),
    ]
    limits: Annotated[
        dict[str, MetricLimit],
        Meta(description="limits of the spec by the predicted number"),
    ]
    binding: Annotated[
        tuple[Binding, ...],
        Meta(
            description="what costs money, or the nearest change that is feasible"
        ),
    ]
    safety: Annotated[
        Safety | None,
        Meta(description="what confidence costs; none without limits"),
    ]
    verified: Annotated[
        Verification | None, Meta(description="none without latency limits")
    ]
    calibration: Annotated[
        Calibration | None,
        Meta(description="none without a benchmark of the user"),
    ]
    run: Annotated[Run | None, Meta(description="of a training job")]
    energy: Annotated[
        EnergyUse | None,
        Meta(description="none when the power of an accelerator is not known"),
    ]


class Alternative(DocumentPart, frozen=True, kw_only=True):
    """A fleet that was not chosen, and what stopped it."""

    pools: Annotated[tuple[RivalPool, ...], Meta(description="its machines")]
    usd_month: Annotated[Decimal, Meta(description="in the period of the bill")]
    rejected_by: Annotated[
        str,
        Meta(description="what stops it, as a sentence"),
    ]
    reason: Annotated[Reason, Meta(description="the same as data")]


class CostLine(DocumentPart, frozen=True, kw_only=True):
    """One line of the bill; without a price, `usd` is none and `price_found` false."""

    name: Annotated[str, Meta(description="what is paid for")]
    kind: Annotated[str, Meta(description="sort of line")]
    unit: Annotated[str, Meta(description="unit of the quantity")]
    quantity: Annotated[Decimal, Meta(description="units of the period")]
    unit_price: Annotated[Decimal | None, Meta(description="USD of one unit")]
    usd: Annotated[Decimal | None, Meta(description="of the period")]
    pool: Annotated[
        str | None, Meta(description="the pool whose machines it pays for")
    ] = None
    price_source: Annotated[
        str | None, Meta(description="id of the price's source")
    ]
    price_as_of: Annotated[str | None, Meta(description="date of the price")]
    price_is_old: Annotated[
        bool,
        Meta(description="whether the catalog is more than a year younger"),
    ]
    price_found: Annotated[bool, Meta(description="whether a price is known")]


class Life(DocumentPart, frozen=True, kw_only=True):
    """What each machine is billed for from its launch to its release, hours."""

    hours: Annotated[Number, Meta(description="boot, work and tail together")]
    boot_hours: Annotated[Number, Meta(description="until it works")]
    work_hours: Annotated[Number, Meta(description="of work")]
    tail_hours: Annotated[
        Number, Meta(description="from the end of the work to the release")
    ]
    ended_by: Annotated[
        Literal["done", "idle", "window", "ttl"],
        Meta(
            description="done: the job says so; idle: the idle limit; window: the end of its "
            "day; ttl: the time to live"
        ),
    ]


class TokenCost(DocumentPart, frozen=True, kw_only=True):
    """What a million tokens cost: the total over the tokens of its period."""

    prompt_tokens: Annotated[
        Number, Meta(description="read in the period; 0 for training")
    ]
    output_tokens: Annotated[
        Number, Meta(description="written in the period; 0 for training")
    ]
    trained_tokens: Annotated[
        Number, Meta(description="trained on in the run; 0 for serving")
    ]
    usd_per_million_output: Annotated[
        Decimal | None,
        Meta(description="all cost over output tokens; none for training"),
    ]
    usd_per_million: Annotated[
        Decimal, Meta(description="all cost over all tokens, blended")
    ]


class Cost(DocumentPart, frozen=True, kw_only=True):
    """The bill of a month, of a run, or of the time to live of what stands."""

    currency: Annotated[Literal["USD"], Meta(description="always USD")] = "USD"
    period: Annotated[
        Period,
        Meta(
            description="what the total is for: a month of what does not end, the run of a job, "
            "or the life that a ttl gives"
        ),
    ]
    life: Annotated[
        Life | None, Meta(description="of each machine; none for a month")
    ]
    total: Annotated[
        Decimal,
        Meta(
            description="sum of the lines whose price is known; a month has 730 hours"
        ),
    ]
    tokens: Annotated[
        TokenCost | None,
        Meta(description="cost of a million tokens; none for workspaces"),
    ]
    usd_hour: Annotated[Decimal, Meta(description="with all machines running")]
    usd_month: Annotated[
        Decimal | None,
        Meta(description="the total, when the period is a month"),
    ]
    lines: Annotated[tuple[CostLine, ...], Meta(description="machines first")]
    excludes: Annotated[
        tuple[str, ...], Meta(description="what the total leaves out")
    ]

    @property
    def is_partial(self) -> bool:
        """Whether a line has no known price, so that the total is a lower bound."""
        return any(not cost_line.price_found for cost_line in self.lines)


class PlannedResource(DocumentPart, frozen=True, kw_only=True):
    """One cloud resource as Pulumi takes it.

    Inside inputs, `{"$ref": name, "output": path}` is an output of another resource. In texts,
    `${project}` and `${deadline.at}` (also `.rfc3339`, `.cron`, `.far`) are filled in when the
    plan is applied. The deadline counts from the first apply, so that a plan has no clock in it.
    """

    type: Annotated[str, Meta(description="Pulumi type token")]
    name: Annotated[str, Meta(description="unique in the stack")]
    inputs: Annotated[
        Properties, Meta(description="as the provider spells them")
    ]
    depends_on: Annotated[
        tuple[str, ...],
        Meta(description="resources beside those that are referred to"),
    ] = ()
    options: Annotated[
        Properties,
        Meta(
            description="delete_before_replace, delete_timeout, replace_on_changes"
        ),
    ] = field(default_factory=dict)


class PlannedGraph(DocumentPart, frozen=True, kw_only=True):
    """All resources of the stack."""

    provider: Annotated[str, Meta(description="cloud")] = ""
    region: Annotated[str, Meta(description="region of the cloud")] = ""
    resources: Annotated[
        tuple[PlannedResource, ...], Meta(description="by name")
    ] = ()
    outputs: Annotated[
        Properties, Meta(description="what the stack tells once it stands")
    ] = field(default_factory=dict)


class StackRef(DocumentPart, frozen=True, kw_only=True):
    """The stack that the plan changes, and the state that it starts from."""

    name: Annotated[str, Meta(description="name of the stack")]
    state_sha256: Annotated[
        str | None, Meta(description="none: the stack does not exist yet")
    ]


class Shutdown(DocumentPart, frozen=True, kw_only=True):
    """When machines are given back by themselves."""

    idle: Annotated[Decimal | None, Meta(description="seconds without work")]
    ttl: Annotated[Decimal | None, Meta(description="seconds from apply")]
    schedule: Annotated[str | None, Meta(description="when machines run")]
    backstop: Annotated[
        str | None, Meta(description="what enforces it from outside")
    ]


class Notice(DocumentPart, frozen=True, kw_only=True):
    """Something to know before paying, with its place in the spec where it has one."""

    code: Annotated[str, Meta(description="what it is about")]
    message: Annotated[str, Meta(description="the sentence")]
    reason: Annotated[Reason, Meta(description="the same as data")]
    path: Annotated[str | None, Meta(description="file")]
    line: Annotated[int | None, Meta(description="line in the file")]
    column: Annotated[int | None, Meta(description="column in the line")]


class Plan(DocumentPart, frozen=True, kw_only=True):
    """A plan: the decision, what it costs, and every resource that apply creates."""

    schema: Annotated[
        Literal["tonnage.plan/1"], Meta(description="version of this document")
    ] = "tonnage.plan/1"
    tool_version: Annotated[
        str, Meta(description="another version refuses to apply it")
    ]
    catalog: Annotated[CatalogRef, Meta(description="what it was priced with")]
    spec: Annotated[SpecRef, Meta(description="what was asked")]
    workload: Annotated[WorkloadRef, Meta(description="what is to be run")]
    solution: Annotated[Outcome, Meta(description="what was decided")]
    alternatives: Annotated[
        tuple[Alternative, ...], Meta(description="what was not chosen")
    ]
    cost: Annotated[Cost, Meta(description="the bill")]
    graph: Annotated[PlannedGraph, Meta(description="what apply creates")]
    launch: Annotated[Launch | None, Meta(description="of a training job")]
    stack: Annotated[StackRef, Meta(description="the stack that apply changes")]
    inputs: Annotated[
        PlanInputs, Meta(description="what was read beside spec and catalog")
    ]
    changes: Annotated[
        Changes | None,
        Meta(description="what happens to what stands; none for a new stack"),
    ] = None
    shutdown: Annotated[
        Shutdown, Meta(description="when machines are given back")
    ]
    warnings: Annotated[
        tuple[Notice, ...], Meta(description="what to know before paying")
    ]
    digest: Annotated[
        str, Meta(description="SHA-256 of the document without this field")
    ] = ""

    @property
    def is_feasible(self) -> bool:
        """Whether there is anything to build."""
        return bool(self.solution.pools)
