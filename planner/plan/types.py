"""The plan document as types: what is reviewed, saved, compared and carried out.

The types are the contract. The JSON Schema of `tonnage schema plan` and docs/plan-document.md are
generated from them. Decimals are written as text, so that money stays exact.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from planner.facts.small_cloud import small_clouds
from planner.facts.software import missing_software
from planner.plan.change import Changes, PlanInputs, ResourceChange, Stay
from planner.plan.cost import (
    CommitmentOption,
    CommitmentRegret,
    Cost,
    CostBand,
    CostCause,
    CostLine,
    ElsewhereCost,
    HostedCost,
    Life,
    OwnedCost,
    PriceOrigin,
    TokenCost,
    UsedAmount,
)
from planner.plan.fallback import Fallback
from planner.plan.graph import PlannedGraph, PlannedResource
from planner.plan.layout import Layout
from planner.plan.part import (
    Basis,
    DocumentPart,
    Number,
    Period,
    Properties,
    Role,
)
from planner.plan.pool import FleetRef, Pool, Purchase, RivalPool
from planner.plan.prediction import (
    MetricLimit,
    PercentileBand,
    Prediction,
    Verification,
)
from planner.plan.quota_shortfall import (
    QuotaShortfall,  # noqa: TC001 - msgspec reads the annotations
)
from planner.plan.run import (
    BilledTime,
    CheckpointRule,
    CurvePoint,
    Launch,
    LoaderSpeed,
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
    "CommitmentOption",
    "CommitmentRegret",
    "Cost",
    "CostBand",
    "CostCause",
    "CostLine",
    "CurvePoint",
    "DocumentPart",
    "ElsewhereCost",
    "EnergyUse",
    "Fallback",
    "FleetRef",
    "FunnelStep",
    "HostedCost",
    "Launch",
    "Layout",
    "Life",
    "LoaderSpeed",
    "MetricLimit",
    "ModelRef",
    "Notice",
    "Number",
    "Outcome",
    "OwnedCost",
    "PercentileBand",
    "Period",
    "Plan",
    "PlanInputs",
    "PlannedGraph",
    "PlannedResource",
    "Pool",
    "Prediction",
    "PriceOrigin",
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
    "Stay",
    "StorageSpeed",
    "TokenCost",
    "TrainingLayout",
    "UsedAmount",
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
    unpriced: Annotated[
        tuple[str, ...],
        Meta(
            description="lines of the bill of that fleet without a known price: with any, "
            "`usd_month` is the least that it costs, and `saves_usd_month` the most that is saved"
        ),
    ] = ()


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
    unpriced: Annotated[
        tuple[str, ...],
        Meta(
            description="lines of the bill of that fleet without a known price: with any, "
            "`usd_month` is the most that confidence costs"
        ),
    ] = ()


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
            description="optimal: proved; feasible: nothing cheaper passes the simulation, "
            "which could not decide whether this keeps its limits, or not all fleets were looked "
            "at; infeasible: proved that nothing does"
        ),
    ]
    gap: Annotated[
        str | None,
        Meta(
            description="share of the bill that fleets may cost less which were not looked at; 0 "
            "when proved optimal, none where the simulation alone is undecided"
        ),
    ]
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
    stays: Annotated[
        Stay | None,
        Meta(
            description="the cheapest fleet, where what stands is not moved to it"
        ),
    ] = None


class Alternative(DocumentPart, frozen=True, kw_only=True):
    """A fleet that was not chosen, and what stopped it."""

    pools: Annotated[tuple[RivalPool, ...], Meta(description="its machines")]
    usd_month: Annotated[Decimal, Meta(description="in the period of the bill")]
    unpriced: Annotated[
        tuple[str, ...],
        Meta(
            description="lines of its bill without a known price: with any, `usd_month` is the "
            "least that it costs"
        ),
    ] = ()
    is_bound: Annotated[
        bool,
        Meta(
            description="whether it was ruled out before it had a bill: `usd_month` is the least "
            "that it costs"
        ),
    ] = False
    rejected_by: Annotated[
        str,
        Meta(description="what stops it, as a sentence"),
    ]
    reason: Annotated[Reason, Meta(description="the same as data")]

    @property
    def is_partial(self) -> bool:
        """Whether it costs that much or more."""
        return bool(self.unpriced) or self.is_bound


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
    fallbacks: Annotated[
        tuple[Fallback, ...],
        Meta(
            description="what apply may buy instead, in this order, where a cloud refuses"
        ),
    ] = ()
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
    quota_shortfalls: Annotated[
        tuple[QuotaShortfall, ...],
        Meta(description="quotas that keep the account from a cheaper fleet"),
    ] = ()
    digest: Annotated[
        str, Meta(description="SHA-256 of the document without this field")
    ] = ""

    @property
    def is_feasible(self) -> bool:
        """Whether there is anything to build."""
        return bool(self.solution.pools)

    @property
    def unbuilt_clouds(self) -> tuple[str, ...]:
        """Clouds of its machines on which nothing is built, as people write them."""
        return tuple(
            small_clouds()[pool.provider]
            for pool in self.solution.pools
            if pool.provider in small_clouds()
        )

    @property
    def unbuilt_accelerators(self) -> dict[str, str]:
        """Accelerators of its machines without software that is built, with what they lack."""
        missing = {
            pool.accelerator: missing_software(pool.provider, pool.accelerator)
            for pool in self.solution.pools
        }
        return {
            accelerator: rule.told
            for accelerator, rule in missing.items()
            if rule is not None
        }

    @property
    def is_compared_only(self) -> bool:
        """Whether nothing is built of it: `apply` refuses it by name."""
        return bool(self.unbuilt_clouds or self.unbuilt_accelerators)

    @property
    def most_usd_hour(self) -> Decimal:
        """USD an hour at most: every machine is the dearest that its group may start."""
        return self.cost.usd_hour + sum(
            (pool.stand_in_usd_hour for pool in self.solution.pools),
            Decimal(0),
        )

    def on_rung(self, rung: int) -> Plan:
        """Return the plan as apply carries it out on a rung: 1 is its first fallback.

        0 is the plan itself. The digest stays that of the reviewed document.
        """
        if rung == 0:
            return self
        fallback = self.fallbacks[rung - 1]
        return replace(
            self,
            solution=replace(
                self.solution,
                pools=fallback.pools,
                predicted=fallback.predicted,
                verified=fallback.verified,
            ),
            cost=fallback.cost,
            graph=fallback.graph,
        )
