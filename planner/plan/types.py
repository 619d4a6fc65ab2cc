"""The plan document as types: what is reviewed, saved, compared and carried out.

The types are the contract. The JSON Schema of `tonnage schema plan` and docs/plan-document.md are
generated from them. Decimals are written as text, so that money stays exact.
"""

from __future__ import annotations

from decimal import Decimal  # noqa: TC003 - msgspec reads the annotations
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

# Predicted numbers have six significant digits; whole ones are written without a point.
Number: TypeAlias = int | float
Basis: TypeAlias = Literal["measured", "calibrated", "physics", "spec"]
Role: TypeAlias = Literal["serve", "batch", "train", "workspace"]
WorkloadKind: TypeAlias = Literal["inference", "batch", "training", "workspace"]
Period: TypeAlias = Literal["month", "run"]


class _Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a document: it cannot change, and what it does not know it refuses."""


class CatalogRef(_Part, frozen=True, kw_only=True):
    """The catalog that the plan was made with."""

    sha256: Annotated[str, Meta(description="digest of the catalog's files")]
    as_of: Annotated[str, Meta(description="date of its newest price")]


class SpecRef(_Part, frozen=True, kw_only=True):
    """The spec that was planned."""

    path: Annotated[str, Meta(description="as given on the command line")]
    sha256: Annotated[str, Meta(description="of the file's bytes")]
    normalized: Annotated[
        dict[str, Any], Meta(description="the spec with defaults filled in")
    ]


class ModelRef(_Part, frozen=True, kw_only=True):
    """The model of a workload."""

    name: str
    family: str
    params: Annotated[Number, Meta(description="all parameters")]
    active_params: Annotated[Number, Meta(description="used for each token")]
    source: Annotated[str, Meta(description="where the architecture is from")]


class Workload(_Part, frozen=True, kw_only=True):
    """What is to be run."""

    kind: WorkloadKind
    name: str
    model: ModelRef | None


class FunnelStep(_Part, frozen=True, kw_only=True):
    """How many offers a rule of the spec leaves."""

    rule: str
    offers: int


class Layout(_Part, frozen=True, kw_only=True):
    """How one replica is spread over accelerators: the degree of each kind of parallelism."""

    precision: str
    kv_precision: str
    tp: Annotated[int, Meta(description="tensor parallel")]
    pp: Annotated[int, Meta(description="pipeline parallel")]
    ep: Annotated[int, Meta(description="expert parallel")]
    dp: Annotated[int, Meta(description="attention data parallel")]
    cp: Annotated[int, Meta(description="context parallel")]
    max_batch: Annotated[int, Meta(description="requests at a time")]


class Purchase(_Part, frozen=True, kw_only=True):
    """Some of a pool's machines, bought in one way."""

    purchase: Annotated[
        str, Meta(description="on_demand, spot, reserved_1y, …")
    ]
    nodes: int
    usd_per_hour: Annotated[Decimal, Meta(description="of one node")]
    term: Annotated[
        str | None, Meta(description="1y or 3y, for a commitment")
    ] = None
    reservation: Annotated[
        str | None, Meta(description="id of a reservation that is owned")
    ] = None


class Pool(_Part, frozen=True, kw_only=True):
    """Machines of one type in one region that do the same work."""

    name: Annotated[str, Meta(description="unique in the plan")]
    provider: str
    region: str
    zones: tuple[str, ...]
    instance_type: str
    accelerator: str
    accelerators_per_node: int
    nodes: Annotated[int, Meta(description="at the peak, over all purchases")]
    min_nodes: Annotated[int, Meta(description="in the quietest running hour")]
    purchase: Annotated[str, Meta(description="the one there is, or mixed")]
    purchases: tuple[Purchase, ...]
    role: Role
    replicas: int
    layout: Layout | None
    usd_per_hour: Annotated[Decimal, Meta(description="mean of a node")]


class Prediction(_Part, frozen=True, kw_only=True):
    """A predicted number with its 90 % band and what it rests on."""

    value: Number
    low: Number
    high: Number
    basis: Basis


class FleetRef(_Part, frozen=True, kw_only=True):
    """A fleet that is named and not bought."""

    provider: str
    region: str
    instance_type: str
    nodes: int


class Binding(_Part, frozen=True, kw_only=True):
    """A constraint that costs money, and the nearest value that would cost less.

    In an infeasible plan `relax_to` is the nearest value with which a fleet exists.
    """

    constraint: Annotated[str, Meta(description="key of the spec")]
    slack: Annotated[
        Number | None, Meta(description="share of the limit that is left")
    ]
    relax_to: str
    saves_usd_month: Annotated[
        Decimal | None, Meta(description="a month, or a training run")
    ]
    usd_month: Annotated[
        Decimal | None, Meta(description="what the fleet would then cost")
    ]
    fleet: FleetRef | None


class Safety(_Part, frozen=True, kw_only=True):
    """What it costs to meet the limits with confidence rather than as often as not."""

    confidence: Number
    usd_month: Decimal
    fleet: Annotated[
        FleetRef | None, Meta(description="the fleet at even odds, if cheaper")
    ]


class SimulatedPercentile(_Part, frozen=True, kw_only=True):
    """A percentile of the simulation with its 90 % Monte Carlo band."""

    value: Number
    low: Number
    high: Number


class Verification(_Part, frozen=True, kw_only=True):
    """A simulation of the chosen fleet, request by request."""

    by: Literal["simulation"] = "simulation"
    passed: bool
    requests: int
    requests_of: Annotated[
        Literal["trace", "drawn"], Meta(description="where requests are from")
    ]
    routing: str
    seeds: int
    added_groups: Annotated[
        int, Meta(description="more than the formulas asked for")
    ]
    found: dict[str, SimulatedPercentile]


class Calibration(_Part, frozen=True, kw_only=True):
    """The user's own benchmark that corrected the predictions."""

    sha256: str
    accelerator: str
    points: int


class StorageSpeed(_Part, frozen=True, kw_only=True):
    """Where data and checkpoints lie, and how fast that is."""

    kind: Literal["object", "parallel"]
    gib: Annotated[
        int | None, Meta(description="capacity of a parallel file system")
    ] = None
    mb_s_tib: Annotated[
        int | None, Meta(description="MB/s that each TiB of it brings")
    ] = None
    wanted_mb_s: Annotated[Number, Meta(description="what the job reads")]
    given_mb_s: Annotated[Number, Meta(description="what storage gives")]
    checkpoint_write_s: Number


class TrainingLayout(_Part, frozen=True, kw_only=True):
    """A layout of a training job with its step time and memory."""

    tp: int
    pp: int
    vpp: Annotated[int, Meta(description="chunks of a pipeline stage")]
    cp: int
    ep: int
    dp: int
    sharding: str
    shard: Annotated[
        int | None, Meta(description="ranks that share states; none is all")
    ]
    micro_batch: Number
    recompute: str
    precision: str
    step_time_s: Number
    peak_gib: Number
    limit: Annotated[str, Meta(description="what costs most time")]


class RunScenario(_Part, frozen=True, kw_only=True):
    """Another way to run the same job; without a price it would never end."""

    way: str
    usd: Decimal | None
    hours_p90: Number | None
    remark: str


class Run(_Part, frozen=True, kw_only=True):
    """How a training job runs: the whole of it."""

    method: str
    tokens: Number
    steps: int
    sequence: int
    global_batch: int
    checkpoint_interval_s: Number
    checkpoint_blocks_s: Number
    checkpoint_gb: Number
    stops: Annotated[Number, Meta(description="expected interruptions")]
    spares: Annotated[int, Meta(description="nodes that wait for a failure")]
    hours_p50: Number
    hours_p90: Number
    usd_p50: Decimal
    usd_p90: Decimal
    storage: StorageSpeed
    layouts: tuple[TrainingLayout, ...]
    ways: tuple[RunScenario, ...]


class EnergyUse(_Part, frozen=True, kw_only=True):
    """Power and energy of the machines in the period of the bill."""

    kw: Number
    kwh: Number
    kg_co2e: Annotated[
        Number | None, Meta(description="none where the grid is not known")
    ]


class Outcome(_Part, frozen=True, kw_only=True):
    """What was decided, and what it will do."""

    status: Literal["optimal", "feasible", "infeasible"]
    gap: Annotated[str | None, Meta(description="0 when proved optimal")]
    solve_ms: Annotated[
        None, Meta(description="always null: equal inputs give equal bytes")
    ] = None
    considered: Annotated[int, Meta(description="offers looked at")]
    funnel: tuple[FunnelStep, ...]
    pools: tuple[Pool, ...]
    predicted: dict[str, Prediction]
    binding: tuple[Binding, ...]
    safety: Safety | None
    verified: Verification | None
    calibration: Calibration | None
    run: Run | None
    energy: EnergyUse | None


class RivalPool(_Part, frozen=True, kw_only=True):
    """The machines of a fleet that was not chosen."""

    provider: str
    region: str
    instance_type: str
    accelerator: str
    nodes: int
    purchase: str
    usd_per_hour: Decimal


class Alternative(_Part, frozen=True, kw_only=True):
    """A fleet that was not chosen, and what stopped it."""

    pools: tuple[RivalPool, ...]
    usd_month: Annotated[
        Decimal, Meta(description="a month, or a training run")
    ]
    rejected_by: str


class CostLine(_Part, frozen=True, kw_only=True):
    """One line of the bill; without a price, `usd` is none and `price_found` false."""

    name: str
    kind: str
    unit: str
    quantity: Decimal
    unit_price: Decimal | None
    usd: Annotated[Decimal | None, Meta(description="of the period")]
    pool: Annotated[
        str | None, Meta(description="the pool whose machines it pays for")
    ] = None
    price_source: str | None
    price_as_of: str | None
    price_found: bool


class Cost(_Part, frozen=True, kw_only=True):
    """The bill of a month, or of a whole training run."""

    currency: Literal["USD"] = "USD"
    period: Period
    total: Decimal
    usd_hour: Annotated[Decimal, Meta(description="with all machines running")]
    usd_month: Annotated[
        Decimal | None,
        Meta(description="the total, when the period is a month"),
    ]
    lines: tuple[CostLine, ...]
    excludes: Annotated[
        tuple[str, ...], Meta(description="what the total leaves out")
    ]

    @property
    def is_partial(self) -> bool:
        """Whether a line has no known price, so that the total is a lower bound."""
        return any(not cost_line.price_found for cost_line in self.lines)


class PlannedResource(_Part, frozen=True, kw_only=True):
    """One cloud resource as Pulumi takes it; `{"$ref": name, "output": path}` refers to another."""

    type: str
    name: str
    inputs: dict[str, Any]
    depends_on: tuple[str, ...] = ()
    options: dict[str, Any] = {}


class PlannedGraph(_Part, frozen=True, kw_only=True):
    """All resources of the stack."""

    provider: str = ""
    region: str = ""
    resources: tuple[PlannedResource, ...] = ()
    outputs: dict[str, Any] = {}


class Launch(_Part, frozen=True, kw_only=True):
    """How a training job is started, also on a cluster of one's own."""

    world_size: int
    nodes: int
    ranks_per_node: int
    environment: dict[str, str]
    arguments: tuple[str, ...]
    slurm: Annotated[str, Meta(description="a batch script")]


class StackRef(_Part, frozen=True, kw_only=True):
    """The stack that the plan changes, and the state that it starts from."""

    name: str
    state_sha256: Annotated[
        str | None, Meta(description="none: the stack does not exist yet")
    ]


class Shutdown(_Part, frozen=True, kw_only=True):
    """When machines are given back by themselves."""

    idle: Annotated[Decimal | None, Meta(description="seconds without work")]
    ttl: Annotated[Decimal | None, Meta(description="seconds from apply")]
    schedule: str | None
    backstop: Annotated[
        str | None, Meta(description="what enforces it from outside")
    ]


class Notice(_Part, frozen=True, kw_only=True):
    """Something to know before paying, with its place in the spec where it has one."""

    code: str
    message: str
    path: str | None
    line: int | None
    column: int | None


class Plan(_Part, frozen=True, kw_only=True):
    """A plan: the decision, what it costs, and every resource that apply creates."""

    schema: Literal["tonnage.plan/1"] = "tonnage.plan/1"
    tool_version: str
    catalog: CatalogRef
    spec: SpecRef
    workload: Workload
    solution: Outcome
    alternatives: tuple[Alternative, ...]
    cost: Cost
    graph: PlannedGraph
    launch: Launch | None
    stack: StackRef
    shutdown: Shutdown
    warnings: tuple[Notice, ...]
    digest: Annotated[
        str, Meta(description="SHA-256 of the document without this field")
    ] = ""

    @property
    def is_feasible(self) -> bool:
        """Whether there is anything to build."""
        return bool(self.solution.pools)


class StackFacts(_Part, frozen=True, kw_only=True):
    """What a standing stack was applied with, for its status."""

    provider: str
    region: str
    pools: tuple[Pool, ...]
    cost_period: Period
    total: Decimal
    usd_hour: Decimal
    workload: Workload
    shutdown: Shutdown

    @classmethod
    def of(cls, plan: Plan) -> StackFacts:
        """Take the facts of the plan that is applied."""
        return cls(
            provider=plan.graph.provider,
            region=plan.graph.region,
            pools=plan.solution.pools,
            cost_period=plan.cost.period,
            total=plan.cost.total,
            usd_hour=plan.cost.usd_hour,
            workload=plan.workload,
            shutdown=plan.shutdown,
        )


class ResourceRef(_Part, frozen=True, kw_only=True):
    """A resource of a standing stack."""

    type: str
    name: str


class StackStatus(_Part, frozen=True, kw_only=True):
    """A stack as its state has it, and what it was made by."""

    schema: Literal["tonnage.status/1"] = "tonnage.status/1"
    stack: str
    plan: Annotated[str, Meta(description="digest of the plan applied last")]
    state_sha256: str
    complete: Annotated[bool, Meta(description="the last apply did not fail")]
    resources: tuple[ResourceRef, ...]
    outputs: dict[str, Any]
    facts: StackFacts | None
