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
# Properties of a resource, or of a document of somebody else, under their own names.
Properties: TypeAlias = dict[str, Any]
Role: TypeAlias = Literal["serve", "batch", "train", "workspace"]
Period: TypeAlias = Literal["month", "run"]


class DocumentPart(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a document: it cannot change, and what it does not know it refuses."""


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


class FunnelStep(DocumentPart, frozen=True, kw_only=True):
    """How many offers a rule of the spec leaves."""

    rule: Annotated[str, Meta(description="key of the spec")]
    offers: Annotated[int, Meta(description="offers that are left after it")]


class Layout(DocumentPart, frozen=True, kw_only=True):
    """How one replica is spread over accelerators: the degree of each kind of parallelism."""

    precision: Annotated[str, Meta(description="of weights and products")]
    kv_precision: Annotated[str, Meta(description="of the KV cache")]
    tp: Annotated[int, Meta(description="tensor parallel")]
    pp: Annotated[int, Meta(description="pipeline parallel")]
    ep: Annotated[int, Meta(description="expert parallel")]
    dp: Annotated[int, Meta(description="attention data parallel")]
    cp: Annotated[int, Meta(description="context parallel")]
    max_batch: Annotated[int, Meta(description="requests at a time")]


class Purchase(DocumentPart, frozen=True, kw_only=True):
    """Some of a pool's machines, bought in one way."""

    purchase: Annotated[
        str, Meta(description="on_demand, spot, reserved_1y, …")
    ]
    nodes: Annotated[int, Meta(description="nodes bought in this way")]
    usd_per_hour: Annotated[Decimal, Meta(description="of one node")]
    term: Annotated[
        str | None, Meta(description="1y or 3y, for a commitment")
    ] = None
    reservation: Annotated[
        str | None, Meta(description="id of a reservation that is owned")
    ] = None


class Pool(DocumentPart, frozen=True, kw_only=True):
    """Machines of one type in one region that do the same work."""

    name: Annotated[str, Meta(description="unique in the plan")]
    provider: Annotated[str, Meta(description="cloud")]
    region: Annotated[str, Meta(description="region of the cloud")]
    zones: Annotated[
        tuple[str, ...], Meta(description="zones that may be used")
    ]
    instance_type: Annotated[str, Meta(description="machine type of the cloud")]
    accelerator: Annotated[
        str, Meta(description="name among the known accelerators")
    ]
    accelerators_per_node: Annotated[
        int, Meta(description="accelerators of one node")
    ]
    nodes: Annotated[int, Meta(description="at the peak, over all purchases")]
    min_nodes: Annotated[int, Meta(description="in the quietest running hour")]
    purchase: Annotated[str, Meta(description="the one there is, or mixed")]
    purchases: Annotated[
        tuple[Purchase, ...], Meta(description="how the nodes are bought")
    ]
    role: Annotated[Role, Meta(description="what the machines do")]
    replicas: Annotated[
        int, Meta(description="copies of the model at the peak")
    ]
    layout: Annotated[
        Layout | None,
        Meta(description="how one replica is spread; none for workspaces"),
    ]
    usd_per_hour: Annotated[Decimal, Meta(description="mean of a node")]

    @property
    def purchase_text(self) -> str:
        """How the nodes are bought, such as "spot" or "2 on_demand + 1 spot"."""
        if self.purchase != "mixed":
            return self.purchase
        return " + ".join(
            f"{part.nodes} {part.purchase}" for part in self.purchases
        )


class Prediction(DocumentPart, frozen=True, kw_only=True):
    """A predicted number with its 90 % band and what it rests on."""

    value: Annotated[
        Number,
        Meta(description="the predicted number, in the unit of its name"),
    ]
    low: Annotated[Number, Meta(description="lower end of the 90 % band")]
    high: Annotated[Number, Meta(description="upper end of the 90 % band")]
    basis: Annotated[Basis, Meta(description="what it rests on")]


class FleetRef(DocumentPart, frozen=True, kw_only=True):
    """A fleet that is named and not bought."""

    provider: Annotated[str, Meta(description="cloud")]
    region: Annotated[str, Meta(description="empty where it is open")]
    instance_type: Annotated[str, Meta(description="machine type")]
    nodes: Annotated[int, Meta(description="0 where it is open")]


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
        Decimal | None, Meta(description="a month, or a training run")
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
    usd_month: Annotated[Decimal, Meta(description="what that costs over 0.5")]
    fleet: Annotated[
        FleetRef | None, Meta(description="the fleet at even odds, if cheaper")
    ]


class PercentileBand(DocumentPart, frozen=True, kw_only=True):
    """A percentile of the simulation with its 90 % Monte Carlo band."""

    value: Annotated[Number, Meta(description="ms")]
    low: Annotated[
        Number, Meta(description="lower end of the 90 % Monte Carlo band")
    ]
    high: Annotated[Number, Meta(description="upper end")]


class Verification(DocumentPart, frozen=True, kw_only=True):
    """A simulation of the chosen fleet, request by request."""

    by: Annotated[
        Literal["simulation"], Meta(description="always simulation")
    ] = "simulation"
    passed: Annotated[
        bool, Meta(description="every limit holds in the simulation")
    ]
    requests: Annotated[int, Meta(description="requests counted")]
    requests_of: Annotated[
        Literal["trace", "drawn"], Meta(description="where requests are from")
    ]
    routing: Annotated[
        str, Meta(description="how requests are spread over replicas")
    ]
    seeds: Annotated[int, Meta(description="independent runs")]
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


class StorageSpeed(DocumentPart, frozen=True, kw_only=True):
    """Where data and checkpoints lie, and how fast that is."""

    kind: Annotated[
        Literal["object", "parallel"],
        Meta(description="object storage, or a parallel file system"),
    ]
    gib: Annotated[
        int | None, Meta(description="capacity of a parallel file system")
    ] = None
    mb_s_tib: Annotated[
        int | None, Meta(description="MB/s that each TiB of it brings")
    ] = None
    wanted_mb_s: Annotated[Number, Meta(description="what the job reads")]
    given_mb_s: Annotated[Number, Meta(description="what storage gives")]
    checkpoint_write_s: Annotated[
        Number, Meta(description="seconds to write one checkpoint")
    ]


class TrainingLayout(DocumentPart, frozen=True, kw_only=True):
    """A layout of a training job with its step time and memory."""

    tp: Annotated[int, Meta(description="tensor parallel")]
    pp: Annotated[int, Meta(description="pipeline parallel")]
    vpp: Annotated[int, Meta(description="chunks of a pipeline stage")]
    cp: Annotated[int, Meta(description="context parallel")]
    ep: Annotated[int, Meta(description="expert parallel")]
    dp: Annotated[int, Meta(description="data parallel")]
    sharding: Annotated[
        str, Meta(description="none, zero1, zero2 or zero3 (FSDP)")
    ]
    shard: Annotated[
        int | None, Meta(description="ranks that share states; none is all")
    ]
    micro_batch: Annotated[Number, Meta(description="sequences")]
    recompute: Annotated[str, Meta(description="none, layer or full")]
    precision: Annotated[str, Meta(description="of products")]
    step_time_s: Annotated[Number, Meta(description="seconds of a step")]
    peak_gib: Annotated[
        Number, Meta(description="GiB of the fullest accelerator")
    ]
    limit: Annotated[str, Meta(description="what costs most time")]


class RunScenario(DocumentPart, frozen=True, kw_only=True):
    """Another way to run the same job; without a price it would never end."""

    way: Annotated[str, Meta(description="name of the way to run")]
    usd: Annotated[Decimal | None, Meta(description="of the run")]
    hours_p90: Annotated[
        Number | None, Meta(description="90 % of the runs end within")
    ]
    remark: Annotated[str, Meta(description="what to know about it")]


class Run(DocumentPart, frozen=True, kw_only=True):
    """How a training job runs: the whole of it."""

    method: Annotated[str, Meta(description="training method")]
    tokens: Annotated[Number, Meta(description="tokens that are trained")]
    steps: Annotated[int, Meta(description="optimizer steps")]
    sequence: Annotated[int, Meta(description="tokens of a sequence")]
    global_batch: Annotated[int, Meta(description="sequences of a step")]
    checkpoint_interval_s: Annotated[
        Number, Meta(description="seconds from one checkpoint to the next")
    ]
    checkpoint_blocks_s: Annotated[
        Number, Meta(description="seconds that each one stops the job")
    ]
    checkpoint_gb: Annotated[Number, Meta(description="GB of one checkpoint")]
    stops: Annotated[Number, Meta(description="expected interruptions")]
    spares: Annotated[int, Meta(description="nodes that wait for a failure")]
    hours_p50: Annotated[
        Number, Meta(description="half of 1,000 simulated runs end within")
    ]
    hours_p90: Annotated[Number, Meta(description="90 % of them end within")]
    usd_p50: Annotated[
        Decimal, Meta(description="half of the runs cost at most")
    ]
    usd_p90: Annotated[Decimal, Meta(description="90 % of them cost at most")]
    storage: Annotated[
        StorageSpeed, Meta(description="where data and checkpoints lie")
    ]
    layouts: Annotated[
        tuple[TrainingLayout, ...],
        Meta(description="the best layouts, the chosen one first"),
    ]
    ways: Annotated[
        tuple[RunScenario, ...],
        Meta(description="other ways to run on the same machines"),
    ]


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
            description="optimal: proved; infeasible: proved that nothing does"
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


class RivalPool(DocumentPart, frozen=True, kw_only=True):
    """The machines of a fleet that was not chosen."""

    provider: Annotated[str, Meta(description="cloud")]
    region: Annotated[str, Meta(description="region of the cloud")]
    instance_type: Annotated[str, Meta(description="machine type")]
    accelerator: Annotated[
        str, Meta(description="name among the known accelerators")
    ]
    nodes: Annotated[int, Meta(description="nodes at the peak")]
    purchase: Annotated[str, Meta(description="how they would be bought")]
    usd_per_hour: Annotated[Decimal, Meta(description="of one node")]


class Alternative(DocumentPart, frozen=True, kw_only=True):
    """A fleet that was not chosen, and what stopped it."""

    pools: Annotated[tuple[RivalPool, ...], Meta(description="its machines")]
    usd_month: Annotated[
        Decimal, Meta(description="a month, or a training run")
    ]
    rejected_by: Annotated[
        str,
        Meta(description="key of the limit or rule that it breaks, or price"),
    ]


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
    price_found: Annotated[bool, Meta(description="whether a price is known")]


class Cost(DocumentPart, frozen=True, kw_only=True):
    """The bill of a month, or of a whole training run."""

    currency: Annotated[Literal["USD"], Meta(description="always USD")] = "USD"
    period: Annotated[Period, Meta(description="what the total is for")]
    total: Annotated[
        Decimal,
        Meta(
            description="sum of the lines whose price is known; a month has 730 hours"
        ),
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
            description="delete_before_replace, delete_timeout, replace_on_changes, ignore_changes"
        ),
    ] = {}


class PlannedGraph(DocumentPart, frozen=True, kw_only=True):
    """All resources of the stack."""

    provider: Annotated[str, Meta(description="cloud")] = ""
    region: Annotated[str, Meta(description="region of the cloud")] = ""
    resources: Annotated[
        tuple[PlannedResource, ...], Meta(description="by name")
    ] = ()
    outputs: Annotated[
        Properties, Meta(description="what the stack tells once it stands")
    ] = {}


class Launch(DocumentPart, frozen=True, kw_only=True):
    """How a training job is started, also on a cluster of one's own."""

    world_size: Annotated[int, Meta(description="ranks")]
    nodes: Annotated[int, Meta(description="nodes that work")]
    ranks_per_node: Annotated[int, Meta(description="one for each accelerator")]
    environment: Annotated[
        dict[str, str], Meta(description="variables of NCCL on the fabric")
    ]
    arguments: Annotated[tuple[str, ...], Meta(description="of the trainer")]
    slurm: Annotated[str, Meta(description="a batch script")]


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
