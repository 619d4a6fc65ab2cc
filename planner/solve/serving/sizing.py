"""Sizes a layout on a kind of node: fewest groups, or the limit that it misses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.cost.weekly_load import NO_SPARES, SpareGroups
from planner.facts.compiler import compile_time_s
from planner.facts.serving_engine import has_gap
from planner.perf.common import memory
from planner.perf.common.constant import constant
from planner.solve.serving.spare_groups import spare_groups, spare_rule
from planner.units import (
    BYTES_PER_GB,
    BYTES_PER_GIB,
    SECONDS_PER_HOUR,
    SECONDS_PER_MINUTE,
)

if TYPE_CHECKING:
    from planner.perf.common.device_part import DevicePart
    from planner.perf.common.layout import Node, ReplicaLayout
    from planner.perf.serving.replica import Replica
    from planner.perf.serving.service import Service
    from planner.solve.serving.requirement import (
        Neighbor,
        ServingRequirement,
    )
    from planner.spec.model import LatencyLimit

MAX_GROUPS: Final = 4096
ONE_ZONE: Final = "sla.survives"  # the rule that a fleet in one zone misses
ELASTIC: Final = "elastic"  # the rule that a replica over several nodes misses
ENGINE: Final = (
    "serving.engine"  # a replica over several nodes is beyond the engine
)
SURVIVING_ZONES: Final = 2  # zones of a fleet of which one may fail
ONE_NODE: Final = (1,)
MULTI_NODE_SIZES: Final = (2, 3, 4, 6, 8)  # nodes that one replica may span
# What the formulas put beyond so many times a limit is not simulated. They agree with the
# simulation within 30 % (tests/planner/perf/serving/test_simulation.py).
SCREEN_FACTOR: Final = 1.5


class ReplicaGroup(Struct, frozen=True):
    """The unit of scaling: one node with its replicas, or the nodes of one replica.

    `nodes`  nodes of one group
    `replicas`  replicas of one group
    `zones`  zones that groups are spread over, as far as that matters
    """

    nodes: int
    replicas: int
    zones: int = 1


class FleetSizing(Struct, frozen=True, kw_only=True):
    """A layout with the number of groups that meets the requirement.

    `group`  nodes and replicas of one group
    `peak_groups`  groups that carry the peak load
    `spares`  groups for nodes that fail
    `service`  one replica at its share of the peak
    `duration_hours`  hours of a batch run, 0 for serving
    `part`  of each accelerator that a replica has, None where it has whole ones
    `beside`  services with other parts of the same accelerators
    """

    layout: ReplicaLayout
    replica: Replica
    group: ReplicaGroup
    peak_groups: int
    spares: SpareGroups
    service: Service
    duration_hours: float = 0.0
    part: DevicePart | None = None
    beside: tuple[NeighborSizing, ...] = ()

    @property
    def replicas_per_group(self) -> int:
        """Replicas of one group."""
        return self.group.replicas

    @property
    def nodes_per_group(self) -> int:
        """Nodes of one group."""
        return self.group.nodes

    @property
    def total_groups(self) -> int:
        """Groups at the peak, spares included."""
        return self.peak_groups + self.spares.count

    @property
    def nodes(self) -> int:
        """Nodes at the peak, spares included."""
        return self.total_groups * self.nodes_per_group


class NeighborSizing(Struct, frozen=True, kw_only=True):
    """A service beside another one: as many groups of it, with replicas on its own parts."""

    neighbor: Neighbor
    sizing: FleetSizing


class LayoutRejection(Struct, frozen=True, kw_only=True):
    """The limit that a layout cannot meet, by formula or by simulation.

    `constraint`  key of a latency limit, or memory, capacity, deadline or rate
    `reached`  best value: seconds, or GiB needed; infinite when no number of groups is enough
    `limit`  the limit in the same unit; for rate the requests a second
    `groups`  groups that miss it; None when any number does
    `is_undecided`  True when the simulation could not tell whether the limit is met
    `breaks_rule`  True when its memory is short and a rule on nodes or zones is not kept either
    """

    layout: ReplicaLayout
    constraint: str
    reached: float
    limit: float
    groups: int | None = None
    is_undecided: bool = False
    breaks_rule: bool = False

    @property
    def distance(self) -> float:
        """How far it is from its limit, reached / limit: 1 would meet it, none meets zero."""
        return self.reached / self.limit if self.limit else math.inf


def replica_group(
    layout: ReplicaLayout, node: Node, nodes_per_group: int, zones: int = 1
) -> ReplicaGroup:
    """Return a group of a layout over `nodes_per_group` nodes.

    replicas of one node = max(1, accelerators // (tp * pp))
    """
    return ReplicaGroup(
        nodes_per_group,
        max(1, node.accelerator_count // layout.accelerators)
        if nodes_per_group == 1
        else 1,
        zones,
    )


def unfit_rejection(
    requirement: ServingRequirement, replica: Replica, group: ReplicaGroup
) -> LayoutRejection | None:
    """Return what no number of groups has: enough memory, a second zone, or nodes that go alone.

    None when one longest sequence fits, the fleet is spread over zones if one may fail, and a
    replica is on one node where nodes come and go by the load or the engine wants it so.
    Memory comes first: without it no other rule of the spec, and no other engine, would help.
    """
    broken_rule = _broken_rule(requirement, replica, group)
    if replica.max_batch:
        return broken_rule
    memory_budget = replica.startup_memory
    kv_cache_gib = (
        memory.kv_bytes(
            replica.stored_llm,
            replica.layout,
            requirement.load.max_context_tokens,
        )
        / BYTES_PER_GIB
    )
    return LayoutRejection(
        layout=replica.layout,
        constraint="memory",
        # GiB needed: all but the KV pool, and the cache of one sequence.
        reached=memory_budget.total_gib - memory_budget.kv_gib + kv_cache_gib,
        limit=memory_budget.total_gib,
        breaks_rule=broken_rule is not None,
    )


def _broken_rule(
    requirement: ServingRequirement, replica: Replica, group: ReplicaGroup
) -> LayoutRejection | None:
    """Return the rule on zones or on nodes that a group does not keep, whatever its memory."""
    if requirement.survives == "zone" and group.zones == 1:
        return LayoutRejection(
            layout=replica.layout,
            constraint=ONE_ZONE,
            reached=group.zones,
            limit=SURVIVING_ZONES,
        )
    if group.nodes == 1:
        return None
    if requirement.elastic is not None:
        constraint = ELASTIC
    elif has_gap(requirement.load.engine, "machines"):
        constraint = ENGINE
    else:
        return None
    return LayoutRejection(
        layout=replica.layout,
        constraint=constraint,
        reached=group.nodes,
        limit=1,
    )


def idle_rejection(
    requirement: ServingRequirement,
    replica: Replica,
    limit_factor: float = 1.0,
) -> LayoutRejection | None:
    """Return the limit whose `limit_factor`-fold an idle replica misses by formula."""
    for limit in requirement.limits:
        idle_s = replica.idle_quantile(limit.metric, limit.percentile)
        # Load only adds delay: no number of groups meets this limit.
        if idle_s > float(limit.seconds) * limit_factor:
            return LayoutRejection(
                layout=replica.layout,
                constraint=limit.key,
                reached=idle_s,
                limit=float(limit.seconds),
            )
    return None


def size_fleet(
    requirement: ServingRequirement, replica: Replica, group: ReplicaGroup
) -> FleetSizing | LayoutRejection:
    """Return the fewest groups that meet every limit by formula, or the limit that is missed.

    Checks memory, then idle latency, then latency under load.
    Idle latency <= latency under load.
    """
    rejection = unfit_rejection(requirement, replica, group)
    if rejection is None and requirement.mode == "batch":
        return _size_batch_run(requirement, replica, group)
    return (
        rejection
        or idle_rejection(requirement, replica)
        or _fewest_groups(requirement, replica, group)
    )


def sized_fleet(
    requirement: ServingRequirement,
    replica: Replica,
    group: ReplicaGroup,
    peak_groups: int,
) -> FleetSizing:
    """Return so many groups of a layout, with the spares that they need.

    Groups that cannot keep up have the service of a full batch, as those of a batch run have.
    """
    if requirement.mode == "batch":
        return _sized_run(requirement, replica, group, peak_groups)
    return FleetSizing(
        layout=replica.layout,
        replica=replica,
        group=group,
        peak_groups=peak_groups,
        spares=spare_groups(
            spare_rule(requirement), peak_groups, group.nodes, group.zones
        ),
        service=predict_service(
            requirement, replica, peak_groups * group.replicas
        )
        or replica.closed_service(replica.max_batch),
    )


def group_lower_bound(
    requirement: ServingRequirement, replica: Replica, group: ReplicaGroup
) -> float:
    """Return a lower bound of the groups that a load needs; it may be fractional.

    batch:  requests / deadline / (saturation rate * replicas of a group)
    closed: concurrency / (max_batch * replicas of a group)
    open:   rate / (rate bound at the tightest TPOT limit * replicas of a group)
    bound <= groups of every fleet that meets the limits; infinite when there is none.
    """
    if requirement.mode == "batch":
        return (
            float(requirement.request_count)
            / requirement.deadline_s
            # Saturation is the highest rate, and start-up is left out.
            / (saturation_rps(replica) * group.replicas)
        )
    tpot_limits_s = (
        float(sla_limit.seconds)
        for sla_limit in requirement.limits
        if sla_limit.metric == "tpot"
    )
    # The largest mean that is simulated.
    tpot_limit_s = min(tpot_limits_s, default=math.inf) * SCREEN_FACTOR
    if requirement.mode == "closed":
        # Each user of a closed loop occupies one slot.
        return requirement.load.concurrency / (
            replica.max_batch * group.replicas
        )
    # Completion rate of the largest batch within the TPOT limit.
    reachable_rps = replica.rate_bound(tpot_limit_s)
    return (
        requirement.load.rate_per_s / (reachable_rps * group.replicas)
        if reachable_rps
        else math.inf
    )


def saturation_rps(replica: Replica) -> float:
    """Return the requests a second that a replica completes at its largest batch."""
    return replica.completion_rate(replica.max_batch)


def violated_limit(
    service: Service,
    limits: tuple[LatencyLimit, ...],
    limit_factor: float = 1.0,
) -> LatencyLimit | None:
    """Return the first limit that a service does not meet within a factor, by formula."""
    for limit in limits:
        if not service.meets(
            limit.metric,
            limit.percentile,
            float(limit.seconds) * limit_factor,
        ):
            return limit
    return None


def _fewest_groups(
    requirement: ServingRequirement, replica: Replica, group: ReplicaGroup
) -> FleetSizing | LayoutRejection:
    """Return the fewest groups that meet the limits by formula: doubling, then bisection.

    The search starts at the lower bound. Delays fall with groups, so bisection is exact.
    """

    def is_enough(groups: int) -> bool:
        service = predict_service(requirement, replica, groups * group.replicas)
        return (
            service is not None
            and violated_limit(service, requirement.limits) is None
        )

    # The largest number that the lower bound rules out.
    low_groups = groups_ruled_out(
        group_lower_bound(requirement, replica, group)
    )
    high_groups = low_groups + 1
    # Where doubling ends and the limit counts as unreachable.
    group_ceiling = max(MAX_GROUPS, 8 * high_groups)
    while not is_enough(high_groups):
        low_groups = high_groups
        # Doubling needs few predictions when the bound is loose.
        high_groups = high_groups * 2
        if high_groups > group_ceiling:
            return unreachable_rejection(requirement, replica)
    # Invariant: low_groups is too few, high_groups is enough.
    while high_groups - low_groups > 1:
        middle_groups = (low_groups + high_groups) // 2
        if is_enough(middle_groups):
            high_groups = middle_groups
        else:
            low_groups = middle_groups
    return sized_fleet(requirement, replica, group, high_groups)


def groups_ruled_out(group_bound: float) -> int:
    """Return the largest number of groups below a lower bound."""
    # 1e-9 absorbs floating-point error at whole numbers.
    return max(0, math.ceil(group_bound - 1e-9) - 1)


def unreachable_rejection(
    requirement: ServingRequirement, replica: Replica
) -> LayoutRejection:
    """Return that no number of groups is enough."""
    limit = requirement.limits[0] if requirement.limits else None
    return LayoutRejection(
        layout=replica.layout,
        constraint=limit.key if limit else "rate",
        reached=math.inf,
        limit=float(limit.seconds) if limit else requirement.load.rate_per_s,
    )


def predict_service(
    requirement: ServingRequirement, replica: Replica, replica_count: int
) -> Service | None:
    """Return the service of one of `replica_count` replicas under an even load.

    None when there is no replica, arrivals exceed the completion rate, or users the slots.
    """
    if not replica_count:
        return None
    if requirement.mode == "closed":
        replica_concurrency = requirement.load.concurrency / replica_count
        return (
            replica.closed_service(replica_concurrency)
            if replica_concurrency <= replica.max_batch
            else None
        )
    return replica.open_service(
        requirement.load.rate_per_s / replica_count,
        # Arrivals vary as they do at one of so many equal shares of all of them.
        replica_count / requirement.traffic_share,
    )


def expected_service(
    requirement: ServingRequirement, sizing: FleetSizing
) -> Service:
    """Return the service that is expected, without the margins of the confidence."""
    expected_replica = sizing.replica.predicted
    if requirement.mode == "batch":
        return expected_replica.closed_service(expected_replica.max_batch)
    replica_count = sizing.replicas_per_group * sizing.peak_groups
    return (
        predict_service(requirement, expected_replica, replica_count)
        or sizing.service
    )


def _size_batch_run(
    requirement: ServingRequirement, replica: Replica, group: ReplicaGroup
) -> FleetSizing | LayoutRejection:
    """Return the fewest groups with which a batch run meets its deadline.

    groups = ceil(requests / group rate / (deadline - start-up))

    The rate of a group is slowed by the margin, so that the deadline holds with the confidence
    asked for.
    """
    startup_s = startup_time_s(replica)
    # Time that is left for work after start-up.
    remaining_s = requirement.deadline_s - startup_s
    if remaining_s <= 0:
        return LayoutRejection(
            layout=replica.layout,
            constraint="deadline",
            reached=startup_s,
            limit=requirement.deadline_s,
        )
    group_rps = saturation_rps(replica) * group.replicas
    group_count = max(
        1,
        math.ceil(
            # 1e-9 absorbs floating-point error at whole numbers.
            float(requirement.request_count) / group_rps / remaining_s - 1e-9
        ),
    )
    return _sized_run(requirement, replica, group, group_count)


def _sized_run(
    requirement: ServingRequirement,
    replica: Replica,
    group: ReplicaGroup,
    group_count: int,
) -> FleetSizing:
    """Return so many groups of a batch run; how long it takes is without the margin."""
    expected_s = run_time_s(requirement, replica.predicted, group, group_count)
    return FleetSizing(
        layout=replica.layout,
        replica=replica,
        group=group,
        peak_groups=group_count,
        spares=NO_SPARES,
        # A batch run keeps every slot filled.
        service=replica.closed_service(replica.max_batch),
        duration_hours=expected_s / SECONDS_PER_HOUR,
    )


def run_time_s(
    requirement: ServingRequirement,
    replica: Replica,
    group: ReplicaGroup,
    group_count: int,
) -> float:
    """Return the seconds of a batch run: requests / (group rate * groups) + start-up."""
    group_rps = saturation_rps(replica) * group.replicas
    work_s = float(requirement.request_count) / (group_rps * group_count)
    return work_s + startup_time_s(replica)


def run_window_s(requirement: ServingRequirement, sizing: FleetSizing) -> int:
    """Return the seconds from midnight in which a daily batch has its machines, 0 of all else.

    window = min(deadline, run time with the margin of the confidence, up to whole minutes)
    With an idle limit it is the deadline.

    Without one nothing else gives the machines back: those that stood until a later deadline
    would be paid for nothing. With one they leave when they are done, and may as well be late.
    """
    if not requirement.runs_daily:
        return 0
    if requirement.shutdown.idle is not None:
        return int(requirement.deadline_s)
    slowest_s = run_time_s(
        requirement, sizing.replica, sizing.group, sizing.peak_groups
    )
    whole_minutes = math.ceil(slowest_s / SECONDS_PER_MINUTE)
    return int(min(requirement.deadline_s, whole_minutes * SECONDS_PER_MINUTE))


def startup_time_s(replica: Replica) -> float:
    """Return the seconds from the request of a node until its replica serves.

    start-up = boot + weight bytes of the replica / load rate + compilation
    """
    replica_bytes = (
        memory.weight_bytes(replica.llm, replica.layout)
        * replica.layout.accelerators
    )
    # Rate from object storage to a node, `load_gb_s` of constants.csv.
    load_s = replica_bytes / (constant("load_gb_s") * BYTES_PER_GB)
    compile_s = compile_time_s(replica.node.accelerator.vendor)
    return constant("boot") + load_s + compile_s


def machine_startup_s(sizing: FleetSizing) -> float:
    """Return the seconds from the request of a node until all of its engines serve.

    boot + what each engine takes after it: they start one after the other
    """
    # The machine boots once, and its engines load and compile in turn.
    boot_s = constant("boot")
    return startup_time_s(sizing.replica) + sum(
        startup_time_s(each.sizing.replica) - boot_s for each in sizing.beside
    )


def machine_lead(requirement: ServingRequirement, sizing: FleetSizing) -> int:
    """Return how many minutes before an hour of more load its machines are asked for.

    the time until they serve, in whole minutes
    A batch has no such hours, and an elastic fleet asks for machines by what it measures.
    """
    if requirement.mode == "batch" or requirement.elastic is not None:
        return 0
    return math.ceil(machine_startup_s(sizing) / SECONDS_PER_MINUTE)
