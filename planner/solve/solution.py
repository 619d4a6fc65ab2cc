"""The answer to a spec: what to buy, what it will do, what it costs and why not less."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from planner.facts.cloud import clouds
from planner.facts.software import missing_software
from planner.market.bought import PoolPurchase
from planner.solve.rival import ranked_rivals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.cost.bill import Bill
    from planner.cost.energy import Energy
    from planner.cost.file_system import FileSystem
    from planner.cost.weekly_load import SpareGroups, Week
    from planner.errors import Place
    from planner.facts.llm import Llm
    from planner.market.bought import CommitmentSaving
    from planner.market.offer import Instance, Offer
    from planner.market.owned import OwnedUse
    from planner.perf.common.device_part import DevicePart
    from planner.perf.common.layout import ReplicaLayout
    from planner.perf.serving.correction import Correction
    from planner.perf.serving.drafting import Drafting
    from planner.perf.serving.load import Routing
    from planner.perf.serving.request_class import RequestClass
    from planner.perf.training.layout_search import TimedLayout
    from planner.solve.cause import Cause
    from planner.solve.rival import RivalFleet
    from planner.spec.model import LatencyLimit, ModelSpec

# What is other about a fleet that may be bought instead of the cheapest one.
FallbackKind: TypeAlias = Literal["zone", "type", "region", "purchase", "cloud"]


class TokenVolume(Struct, frozen=True):
    """Requests and tokens in the period of a bill; a share of the prompts is in a prefix cache."""

    requests: Decimal
    prompt_tokens: Decimal
    answer_tokens: Decimal
    cached_share: Decimal


class StandInType(Struct, frozen=True):
    """A machine type that a group starts while there is none of its own, USD an hour of one."""

    instance_type: str
    usd_hour: Decimal


class ElasticRange(Struct, frozen=True, kw_only=True):
    """How far the machines of a pool follow what is asked of them.

    `least_share`  of the load planned for an hour, for which machines run whatever is asked
    `most_share`  machines that run at most, as a multiple of those at the peak
    `target_requests`  requests that a machine runs or queues, above which another one comes
    `spare_nodes`  machines beyond those that the load takes, for those that fail
    `linger_s`  time for which fewer have to be enough before one leaves, seconds
    """

    least_share: float
    most_share: float
    target_requests: float
    spare_nodes: int
    linger_s: int


class SizedService(Struct, frozen=True, kw_only=True):
    """A service with an engine on each accelerator of a pool.

    Its requests go to `path`, `part` is what each engine has of an accelerator, and `memory_share`
    what it fills of that, or of its slice. All else is as in a pool of its own.
    """

    name: str
    path: str
    model: ModelSpec
    llm: Llm
    part: DevicePart
    layout: ReplicaLayout
    max_batch: int
    context_tokens: int
    token_budget: int
    memory_share: float
    predictions: dict[str, BandedPrediction]
    limits: tuple[LatencyLimit, ...]
    simulation_check: SimulationCheck | None


class SizedPool(Struct, frozen=True, kw_only=True):
    """Machines of one type in one region that do the same work, bought in one or several ways.

    `zones` are those that may be used. `nodes_per_group` nodes hold one replica when a node is too
    small. `min_nodes` run in the quietest hour, `spares` the groups that availability adds, or the
    spare nodes of a training job, `context_tokens` the longest sequence in tokens, `run_window_s`
    the seconds of a daily batch run, 0 for everything else. `token_budget` is the most tokens of
    one step of a serving engine, 0 without one. `drafting` is its speculative decoding, None
    without it. `engine` is its name, and `memory_share` the share of memory that it is told to
    fill. `startup_s` is the time from the request of a node until its replica serves, else 0, and
    `lead_minutes` how long before an hour of more load its nodes are requested.
    `elastic` says how far its nodes follow the load, None when they follow the hours alone: those
    of `week`, None for those of the service. `stand_ins` are started where a cloud has none of the
    type, the first first. `weight` is that of a group where a router shares requests among pools,
    else 0. `requests` come where their lengths decide, else None, and `judged` is what the pool
    does with them. `part` is what of a request its machines do, empty for all of it. `services`
    share its accelerators, its own first.
    """

    name: str
    instance: Instance
    region: str
    zones: tuple[str, ...]
    purchases: tuple[PoolPurchase, ...]
    min_nodes: int
    nodes_per_group: int
    replicas: int
    role: Literal["serve", "batch", "train", "workspace"]
    layout: ReplicaLayout | None
    max_batch: int
    spares: SpareGroups
    context_tokens: int
    run_window_s: int
    token_budget: int = 0
    drafting: Drafting | None = None
    engine: str = ""
    memory_share: float = 0.0
    startup_s: float = 0.0
    lead_minutes: int = 0
    elastic: ElasticRange | None = None
    stand_ins: tuple[StandInType, ...] = ()
    weight: int = 0
    requests: RequestClass | None = None
    judged: JudgedPool | None = None
    part: Literal["", "prompts", "answers"] = ""
    services: tuple[
        SizedService, ...
    ] = ()  # on its accelerators, its own first
    week: Week | None = None

    @property
    def summary(self) -> FleetSummary:
        """Cloud, region, machine type and nodes."""
        return FleetSummary(
            self.instance.provider,
            self.region,
            self.instance.instance_type,
            self.nodes,
        )

    @property
    def nodes(self) -> int:
        """Nodes at the peak, over all purchases."""
        return sum(part.nodes for part in self.purchases)

    @property
    def peak_groups(self) -> int:
        """Groups that carry the load of the peak: all but the spare ones."""
        return self.nodes // self.nodes_per_group - self.spares.count

    @property
    def usd_hour(self) -> Decimal:
        """Mean price of a node, USD an hour: that of all nodes over their number."""
        all_usd = [part.nodes * part.usd_hour for part in self.purchases]
        return sum(all_usd, Decimal(0)) / self.nodes


class BoughtOffer(TypedDict):
    """The fields of a pool that its offer settles."""

    instance: Instance
    region: str
    zones: tuple[str, ...]
    purchases: tuple[PoolPurchase, ...]


def bought_offer(offer: Offer, nodes: int, group_nodes: int = 1) -> BoughtOffer:
    """Return the fields of a pool whose nodes are all bought by one offer, in whole groups."""
    return BoughtOffer(
        instance=offer.instance,
        region=offer.region,
        zones=offer.zones,
        purchases=_purchases(offer, nodes, group_nodes),
    )


def _purchases(
    offer: Offer, nodes: int, group_nodes: int
) -> tuple[PoolPurchase, ...]:
    mix = offer.mix
    if mix is None:
        reservation = offer.reservation.id if offer.reservation else ""
        return (
            PoolPurchase(
                offer.purchase, nodes, offer.usd_hour, reservation, offer.form
            ),
        )
    return tuple(
        PoolPurchase(tier.purchase, end - start, tier.usd_hour, form=tier.form)
        for tier, (start, end) in zip(
            mix.tiers, mix.spans(nodes, group_nodes), strict=True
        )
        if end > start
    )


class JudgedPool(Struct, frozen=True):
    """What one pool does with its part of the requests, and how that was judged."""

    predictions: dict[str, BandedPrediction]
    check: SimulationCheck | None


class BandedPrediction(Struct, frozen=True):
    """A predicted number with its 90 % band and what it rests on."""

    value: float
    low: float
    high: float
    basis: Literal["measured", "calibrated", "physics", "spec"]


class LoadPoint(Struct, frozen=True):
    """What a fleet does at a load: requests a second, or requests in flight of a closed loop.

    `share`  of the load at the peak
    """

    load: float
    share: float
    predictions: dict[str, BandedPrediction]


class FleetSummary(Struct, frozen=True):
    """A fleet that is named and not bought; region or nodes are empty where they are open."""

    provider: str
    region: str
    instance_type: str
    nodes: int


def joint_summary(fleets: Sequence[FleetSummary]) -> FleetSummary:
    """Return the name of a fleet whose machines are of one type, or of several in one region.

    That of several has their numbers beside their types, and no number of its own.
    """
    first, *others = fleets
    if not others:
        return first
    return FleetSummary(
        first.provider,
        first.region,
        " + ".join(f"{each.nodes} x {each.instance_type}" for each in fleets),
        0,
    )


class BindingLimit(Struct, frozen=True, kw_only=True):
    """A constraint: its slack, and what moving it to `relax_to` would save a month.

    In an infeasible solution `relax_to` is the nearest value with which a fleet exists, and
    `usd` what that fleet costs. `unpriced` are lines of its bill without a known price.
    """

    constraint: str
    slack: float | None
    relax_to: Cause
    saves_usd: Decimal | None
    usd: Decimal | None
    fleet: FleetSummary | None
    unpriced: tuple[str, ...] = ()


class SimulationCheck(Struct, frozen=True, kw_only=True):
    """A simulation of the fleet: how many requests, and each percentile with its interval.

    `request_source` says where they are from, drawn or a trace, `routing` how they were spread.
    Keys and units are those of the predicted numbers; intervals are Monte Carlo's, 95 %.
    `decode_factor` and `prefill_factor` are by how much decoding and prompts were slowed, so that
    the limits hold with the confidence asked for.
    `verdict` is undecided when another run of requests may not confirm that the limits hold.
    """

    request_count: int
    batch_count: int
    decode_factor: float
    prefill_factor: float
    added_groups: int
    request_source: Literal["trace", "drawn"]
    routing: Routing
    percentile_bands: dict[str, tuple[float, float, float]]
    verdict: Literal["holds", "undecided"]


class ConfidenceCost(Struct, frozen=True):
    """With which confidence limits are met, what that costs a month, and the fleet without it.

    `extra_usd_month`  None while the fleet at even odds is not planned
    `unpriced`  lines of the bill of that fleet without a known price
    """

    confidence: float
    extra_usd_month: Decimal | None = None
    even_odds_fleet: FleetSummary | None = None
    unpriced: tuple[str, ...] = ()


class PlanWarning(Struct, frozen=True, kw_only=True):
    """Something to know before paying: what it is about, and the reason."""

    code: str
    reason: Cause
    place: Place | None = None


class Scenario(Struct, frozen=True):
    """One way of running the same job: what it is, what the run costs, and when it ends.

    Hours; nothing when it would never end. `remarks` are what to know about it.
    """

    name: str
    usd: Decimal | None
    duration_hours: float | None
    remarks: tuple[Cause, ...] = ()


class TradeOff(Struct, frozen=True, kw_only=True):
    """A point of the curve of time against cost: the cheapest cluster that is as fast.

    `duration_hours` holds with the required confidence, `usd` is the expected bill, `mfu` a share
    of the dense 16-bit peak. `violates` is the key of a limit of the spec that it is beyond, empty
    within all of them.
    """

    fleet: FleetSummary
    purchase: str
    accelerators: int
    duration_hours: float
    usd: Decimal
    mfu: float
    is_chosen: bool
    is_knee: bool
    violates: str


class MachineLife(Struct, frozen=True, kw_only=True):
    """What one machine of a training job is billed for in the mean run, seconds.

    `start_s`  boot, and the loading of weights and data
    `steps_s`  training, at the speed of the required confidence
    `lost_s`  checkpoints that stop the job, and failures: work that is repeated, and restarts
    `closing_s`  the last checkpoint
    `release_s`  from the end of the job until the machine is given back
    """

    start_s: float
    steps_s: float
    lost_s: float
    closing_s: float
    release_s: float

    @property
    def billed_s(self) -> float:
        """Seconds that are billed of each machine."""
        return (
            self.start_s
            + self.steps_s
            + self.lost_s
            + self.closing_s
            + self.release_s
        )


class KeptCheckpoints(Struct, frozen=True, kw_only=True):
    """The checkpoints that are kept: the newest, and one of each span of so many steps.

    `left` of them lie in storage when the run has ended, `left_bytes` in all, and cost
    `left_usd_month` until they are deleted; None without a price.
    """

    keep_last: int
    keep_every_s: float
    span_steps: int
    left: int
    left_bytes: float
    left_usd_month: Decimal | None


class JobStorage(Struct, frozen=True, kw_only=True):
    """Where data and checkpoints lie: `file_system` is a parallel file system, or objects do.

    Bytes/s that the job reads and that storage gives; seconds to write a checkpoint, and to load
    one after a stop.
    """

    file_system: FileSystem | None
    required_bytes_per_s: float
    supplied_bytes_per_s: float
    checkpoint_write_s: float
    checkpoint_load_s: float


class JobLoader(Struct, frozen=True, kw_only=True):
    """How host cores feed a job that tokenizes or decodes while it trains.

    form      text or images
    cores     of a machine that loaders have
    workers   processes of each rank that loads data
    wanted_s  tokens of text, or images, that a machine trains on in a second
    given_s   of these that its cores prepare in a second
    """

    form: str
    cores: float
    workers: int
    wanted_s: float
    given_s: float


class RunBase(Struct, frozen=True, kw_only=True):
    """How a job goes on while its machines on spot are away.

    nodes   machines on demand
    speed   of them alone, as a fraction of that of all machines
    layout  of the job on them
    """

    nodes: int
    speed: float
    layout: TimedLayout


class TrainingRun(Struct, frozen=True, kw_only=True):
    """How a training job runs. Hours, bytes and USD of the whole run.

    `hours_p50_p90` and `usd_p50_p90`: half of the runs, and 90 % of them, take at most this, each
    at the speed that holds as often. 90 % of the runs cost between the two of `usd_band`.
    `step_pace_s` is the time of the run over its steps, without stops. `data_disk_gb` is GB of the
    disk beside the boot disk, 0 where local NVMe does. `scenarios` compare purchase options and
    the fabric. `layouts` has the chosen one first, `curve` the slowest; `base` is of a mix alone.
    """

    method: str
    total_tokens: float
    optimizer_steps: int
    sequence_tokens: int
    global_batch: int
    step_pace_s: float
    checkpoint_interval_s: float
    checkpoint_stall_s: float
    checkpoint_bytes: float
    checkpoints_kept: KeptCheckpoints
    machine_life: MachineLife
    interruptions: float
    spare_nodes: int
    data_disk_gb: int
    storage: JobStorage
    loader: JobLoader | None
    hours_p50_p90: tuple[float, float]
    usd_p50_p90: tuple[Decimal, Decimal]
    usd_band: tuple[Decimal, Decimal]
    layouts: tuple[TimedLayout, ...]
    scenarios: tuple[Scenario, ...]
    curve: tuple[TradeOff, ...]
    base: RunBase | None = None


class Reasons(Struct, frozen=True, kw_only=True):
    """What the wishes of a spec cost, each found by planning without it.

    `alternatives`  other fleets that this brought to light
    `warnings`  what the plan costs without what the search has chosen
    """

    bindings: tuple[BindingLimit, ...] = ()
    alternatives: tuple[RivalFleet, ...] = ()
    warnings: tuple[PlanWarning, ...] = ()
    confidence_cost: ConfidenceCost | None = None


class Solution(Struct, frozen=True, kw_only=True):
    """The whole answer. Without pools it is infeasible, and `bindings` says what would do.

    `gap`  share of the bill that a fleet may cost less which was not looked at
    `find_reasons`  plans what each wish costs; None when that is known
    `find_load_curve`  predicts the fleet at other loads than the peak; None without a latency
    """

    status: Literal["optimal", "feasible", "infeasible"]
    pools: tuple[SizedPool, ...]
    predictions: dict[str, BandedPrediction]
    bindings: tuple[BindingLimit, ...]
    alternatives: tuple[RivalFleet, ...]
    bill: Bill | None
    warnings: tuple[PlanWarning, ...]
    week: Week
    llm: Llm | None
    funnel: tuple[tuple[str, int], ...]
    offers_considered: int
    gap: Decimal = Decimal(0)
    confidence_cost: ConfidenceCost | None = None
    simulation_check: SimulationCheck | None = None
    training_run: TrainingRun | None = None
    calibration: Correction | None = None
    energy: Energy | None = None
    token_volume: TokenVolume | None = None
    commitments: tuple[CommitmentSaving, ...] = ()
    owned: tuple[OwnedUse, ...] = ()
    find_reasons: Callable[[], Reasons] | None = None
    find_load_curve: Callable[[], tuple[LoadPoint, ...]] | None = None

    @property
    def summary(self) -> FleetSummary:
        """Its fleet by name; there has to be one."""
        return joint_summary([pool.summary for pool in self.pools])

    @property
    def is_built(self) -> bool:
        """Whether a stack is built of it: it has machines, each at a cloud that is built on.

        The software of their accelerators is built, too.
        """
        return bool(self.pools) and all(
            pool.instance.provider in clouds()
            and missing_software(
                pool.instance.provider, pool.instance.accelerator
            )
            is None
            for pool in self.pools
        )

    def explained(self) -> Solution:
        """Return the solution with what each wish of the spec costs."""
        if self.find_reasons is None:
            return self
        reasons = self.find_reasons()
        return replace(
            self,
            bindings=reasons.bindings,
            alternatives=ranked_rivals(
                [*self.alternatives, *reasons.alternatives]
            ),
            warnings=(*self.warnings, *reasons.warnings),
            confidence_cost=reasons.confidence_cost,
            find_reasons=None,
        )


class Counterfactual(Struct, frozen=True):
    """What another machine type or another load would take.

    `fleet`  the fleet or machine type, None when there is none
    `usd`  its cost for a month or a run; None when nothing meets the request
    `reason`  why it is not chosen, None when a changed load can be served
    `users`  people of a workspace
    `binding`  what one group less of the fleet misses, None when it is the smallest there is
    `is_partial`  whether a price of it is unknown, so that `usd` is a lower bound
    """

    fleet: FleetSummary | None
    usd: Decimal | None
    reason: Cause | None
    users: int = 0
    binding: Cause | None = None
    is_partial: bool = False


def infeasible_solution(
    nearest: tuple[BindingLimit, ...],
    *,
    week: Week,
    llm: Llm | None,
    funnel: tuple[tuple[str, int], ...],
    offers_considered: int,
    rejected: tuple[RivalFleet, ...] = (),
) -> Solution:
    """Return that nothing meets a spec, what would, and what each of the `rejected` misses."""
    return Solution(
        status="infeasible",
        pools=(),
        predictions={},
        bindings=nearest,
        alternatives=rejected,
        bill=None,
        warnings=(),
        week=week,
        llm=llm,
        funnel=funnel,
        offers_considered=offers_considered,
    )
