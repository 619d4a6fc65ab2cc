"""Sizes a layout on a kind of node: fewest groups, or the limit that it misses."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.perf.common import memory
from planner.perf.common.constant import constant
from planner.perf.common.layout import Node, ReplicaLayout, can_shard
from planner.units import BYTES_PER_GB, BYTES_PER_GIB, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal

    from planner.facts.llm import Llm
    from planner.perf.serving.replica import Replica
    from planner.perf.serving.service import Service
    from planner.solve.serving.requirement import ServingRequirement
    from planner.spec.model import LatencyLimit

MAX_GROUPS: Final = 4096
MULTI_NODE_SIZES: Final = (2, 3, 4, 6, 8)  # nodes that one replica may span


class ReplicaGroup(Struct, frozen=True):
    """The unit of scaling: one node with its replicas, or the nodes of one replica.

    `nodes`  nodes of one group
    `replicas`  replicas of one group
    """

    nodes: int
    replicas: int


class FleetSizing(Struct, frozen=True, kw_only=True):
    """A layout with the number of groups that meets the requirement.

    `replicas_per_group`  replicas of one group
    `nodes_per_group`  nodes of one group
    `peak_groups`  groups that carry the peak load
    `total_groups`  peak groups and the spares for availability
    `service`  one replica at its share of the peak
    `duration_hours`  hours of a batch run, 0 for serving
    """

    layout: ReplicaLayout
    replica: Replica
    replicas_per_group: int
    nodes_per_group: int
    peak_groups: int
    total_groups: int
    service: Service
    duration_hours: float = 0.0

    @property
    def nodes(self) -> int:
        """Nodes at the peak, spares included."""
        return self.total_groups * self.nodes_per_group


class LayoutRejection(Struct, frozen=True, kw_only=True):
    """The limit that a layout cannot meet.

    `constraint`  key of a latency limit, or memory, deadline or rate
    `reached`  best value: seconds, or GiB needed; infinite when no number of groups is enough
    `limit`  the limit in the same unit; for rate the requests a second
    """

    layout: ReplicaLayout
    constraint: str
    reached: float
    limit: float


def serving_layouts(
    llm: Llm, requirement: ServingRequirement, node: Node, nodes_per_group: int
) -> Iterator[ReplicaLayout]:
    """Yield the layouts of a model over `nodes_per_group` nodes, in order of ties.

    One node: all tp * pp up to its accelerators.
    Several nodes: the largest tp of a node, pp over all other accelerators.
    MoE models also get ep = tp.
    Order: precision as allowed, fewer accelerators, fewer pipeline stages, ep = 1 first.
    """
    for precision in requirement.precisions:
        if not node.accelerator.supports(precision):
            continue
        for tp, pp in _tp_pp_pairs(llm, node, nodes_per_group):
            for ep in (
                (1, tp)
                # Whole experts per accelerator: tp divides their number.
                if llm.experts and tp > 1 and llm.experts % tp == 0
                else (1,)
            ):
                yield ReplicaLayout(
                    precision=precision,
                    kv_precision=requirement.kv_precision,
                    tp=tp,
                    pp=pp,
                    ep=ep,
                )


@cache
def _divisors(accelerator_count: int) -> tuple[int, ...]:
    return tuple(
        divisor
        for divisor in range(1, accelerator_count + 1)
        if accelerator_count % divisor == 0
    )


def _tp_pp_pairs(
    llm: Llm, node: Node, nodes_per_group: int
) -> list[tuple[int, int]]:
    tp_degrees = [
        tp_degree
        for tp_degree in _divisors(node.accelerator_count)
        if can_shard(llm, tp_degree)
    ]
    # tp all-reduces in every layer, so it stays within a node.
    if nodes_per_group > 1:
        return [
            (tp_degree, node.accelerator_count // tp_degree * nodes_per_group)
            for tp_degree in tp_degrees
            if tp_degree == max(tp_degrees)
        ]
    degree_pairs = [
        (tp, pp)
        for tp in tp_degrees
        for pp in (1, 2, 4, 8)
        if tp * pp <= node.accelerator_count
    ]
    return sorted(
        degree_pairs,
        key=lambda degree_pair: (
            # Order of ties: accelerators of a replica, then stages.
            degree_pair[0] * degree_pair[1],
            degree_pair[1],
        ),
    )


def replica_group(
    layout: ReplicaLayout, node: Node, nodes_per_group: int
) -> ReplicaGroup:
    """Return a group of a layout over `nodes_per_group` nodes.

    replicas of one node = max(1, accelerators // (tp * pp))
    """
    return ReplicaGroup(
        nodes_per_group,
        max(1, node.accelerator_count // layout.accelerators)
        if nodes_per_group == 1
        else 1,
    )


def size_fleet(
    requirement: ServingRequirement, replica: Replica, group: ReplicaGroup
) -> FleetSizing | LayoutRejection:
    """Return the fewest groups that meet every limit, or the limit that is missed.

    Checks memory, then idle latency, then latency under load.
    Idle latency <= latency under load.
    """
    # Weights and one sequence of the longest context do not fit.
    if not replica.max_batch:
        memory_budget = replica.startup_memory
        kv_cache_gib = (
            memory.kv_bytes(
                replica.llm, replica.layout, requirement.load.max_context_tokens
            )
            / BYTES_PER_GIB
        )
        return LayoutRejection(
            layout=replica.layout,
            constraint="memory",
            # GiB needed: all but the KV pool, and the cache of one sequence.
            reached=memory_budget.total_gib
            - memory_budget.kv_gib
            + kv_cache_gib,
            limit=memory_budget.total_gib,
        )
    if requirement.mode == "batch":
        return _size_batch_run(requirement, replica, group)
    for limit in requirement.limits:
        idle_s = replica.idle_quantile(limit.metric, limit.percentile)
        # Load only adds delay: no number of groups meets this limit.
        if idle_s > float(limit.seconds):
            return LayoutRejection(
                layout=replica.layout,
                constraint=limit.key,
                reached=idle_s,
                limit=float(limit.seconds),
            )
    return _fewest_groups(requirement, replica, group)


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
    # Limit / margin: the largest prediction that still meets the limit.
    tpot_limit_s = min(tpot_limits_s, default=math.inf) / replica.margin("tpot")
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
    service: Service, limits: tuple[LatencyLimit, ...]
) -> LatencyLimit | None:
    """Return the first limit that a service does not meet."""
    for limit in limits:
        if not service.meets(
            limit.metric, limit.percentile, float(limit.seconds)
        ):
            return limit
    return None


def groups_with_spares(
    peak_groups: int, nodes_per_group: int, availability: Decimal | None
) -> int:
    """Return the groups to run so that `peak_groups` are up with the availability.

    a = 1 / (1 + failures an hour * hours of replacement), availability of a node
    p = a ^ nodes_per_group, availability of a group, which needs all its nodes
    N = smallest N > peak_groups with P(Binomial(N, p) >= peak_groups) >= availability
    Failures are independent. Rates: `node_failures` and `node_replacement` of constants.csv.
    """
    if availability is None:
        return peak_groups
    downtime_ratio = (
        # Failures a day / 24 * hours to replace = downtime / uptime.
        constant("node_failures") / 24 * constant("node_replacement")
    )
    # A group is up when all its nodes are up.
    group_availability = (1 / (1 + downtime_ratio)) ** nodes_per_group
    # At least one spare: the loss of one node is survived.
    total_groups = peak_groups + 1
    while True:
        quorum_probability = sum(
            # Binomial probability that exactly `groups_up` groups are up.
            math.comb(total_groups, groups_up)
            * group_availability**groups_up
            * (1 - group_availability) ** (total_groups - groups_up)
            for groups_up in range(peak_groups, total_groups + 1)
        )
        if quorum_probability >= float(availability):
            return total_groups
        total_groups += 1


def _fewest_groups(
    requirement: ServingRequirement, replica: Replica, group: ReplicaGroup
) -> FleetSizing | LayoutRejection:
    """Return the fewest groups that meet the limits: doubling, then bisection.

    The search starts at the lower bound. Delays fall with groups, so bisection is exact.
    """
    # The largest number that the lower bound rules out.
    low_groups = max(
        0,
        math.ceil(group_lower_bound(requirement, replica, group) - 1e-9) - 1,
    )
    high_groups = low_groups + 1
    service = None
    # Where doubling ends and the limit counts as unreachable.
    group_ceiling = max(MAX_GROUPS, 8 * high_groups)
    while (
        service := _adequate_service(
            requirement, replica, high_groups * group.replicas
        )
    ) is None:
        low_groups = high_groups
        # Doubling needs few predictions when the bound is loose.
        high_groups = high_groups * 2
        if high_groups > group_ceiling:
            limit = requirement.limits[0] if requirement.limits else None
            return LayoutRejection(
                layout=replica.layout,
                constraint=limit.key if limit else "rate",
                reached=math.inf,
                limit=float(limit.seconds)
                if limit
                else requirement.load.rate_per_s,
            )
    # Invariant: low_groups is too few, high_groups is enough.
    while high_groups - low_groups > 1:
        middle_groups = (low_groups + high_groups) // 2
        middle_service = _adequate_service(
            requirement, replica, middle_groups * group.replicas
        )
        if middle_service is None:
            low_groups = middle_groups
        else:
            high_groups = middle_groups
            service = middle_service
    return FleetSizing(
        layout=replica.layout,
        replica=replica,
        replicas_per_group=group.replicas,
        nodes_per_group=group.nodes,
        peak_groups=high_groups,
        total_groups=groups_with_spares(
            high_groups, group.nodes, requirement.availability
        ),
        service=service,
    )


def _adequate_service(
    requirement: ServingRequirement, replica: Replica, replica_count: int
) -> Service | None:
    service = predict_service(requirement, replica, replica_count)
    return (
        service
        if service and violated_limit(service, requirement.limits) is None
        else None
    )


def predict_service(
    requirement: ServingRequirement, replica: Replica, replica_count: int
) -> Service | None:
    """Return the service of one of `replica_count` replicas under an even load.

    None when arrivals exceed the completion rate, or users exceed the slots.
    """
    if requirement.mode == "closed":
        replica_concurrency = requirement.load.concurrency / replica_count
        return (
            replica.closed_service(replica_concurrency)
            if replica_concurrency <= replica.max_batch
            else None
        )
    return replica.open_service(
        requirement.load.rate_per_s / replica_count, replica_count
    )


def _size_batch_run(
    requirement: ServingRequirement, replica: Replica, group: ReplicaGroup
) -> FleetSizing | LayoutRejection:
    """Return the fewest groups with which a batch run meets its deadline.

    groups   = ceil(requests / group rate / (deadline - start-up))
    duration = requests / (group rate * groups) + start-up
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
    duration_hours = (
        float(requirement.request_count) / (group_rps * group_count) + startup_s
    ) / SECONDS_PER_HOUR
    return FleetSizing(
        layout=replica.layout,
        replica=replica,
        replicas_per_group=group.replicas,
        nodes_per_group=group.nodes,
        peak_groups=group_count,
        total_groups=group_count,
        # A batch run keeps every slot filled.
        service=replica.closed_service(replica.max_batch),
        duration_hours=duration_hours,
    )


def startup_time_s(replica: Replica) -> float:
    """Return the seconds from the request of a node until its replica serves.

    start-up = boot + weight bytes of the replica / load rate
    """
    replica_bytes = (
        memory.weight_bytes(replica.llm, replica.layout)
        * replica.layout.accelerators
    )
    return constant("boot") + replica_bytes / (
        # Rate from object storage to a node, `load_gb_s` of constants.csv.
        constant("load_gb_s") * BYTES_PER_GB
    )
