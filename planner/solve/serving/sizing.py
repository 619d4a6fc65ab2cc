"""How many replicas a layout needs on a kind of node, or which limit it can never meet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from planner.perf.common import memory
from planner.perf.common.constant import constant
from planner.perf.common.layout import Node, ReplicaLayout, can_shard

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
BYTES_PER_GB: Final = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSizing:
    """A layout that meets the need.

    A group is the smallest part that is added: a node with `replicas_per_group` replicas, or the `nodes_per_group`
    nodes that hold one. `peak_groups` groups carry the peak, `total_groups` also survive what availability
    asks. `duration_hours` is how long a batch run takes.
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
        """Nodes at the peak."""
        return self.total_groups * self.nodes_per_group


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRejection:
    """Why a layout cannot do it: the key of a limit, the best it reaches, the limit."""

    layout: ReplicaLayout
    constraint: str
    reached: float
    limit: float


def serving_layouts(
    llm: Llm, requirement: ServingRequirement, node: Node, nodes_per_group: int
) -> Iterator[ReplicaLayout]:
    """Every layout of a model over `nodes_per_group` nodes, in the documented order of ties.

    One node: all tp * pp up to its accelerators. Several nodes: tp fills each, pp spans them.
    Experts are also spread (ep = tp). Order: precision as allowed, fewer accelerators, fewer
    stages, tensor before expert parallelism.
    """
    for precision in requirement.precisions:
        if not node.accelerator.supports(precision):
            continue
        for tp, pp in _tp_pp_pairs(llm, node, nodes_per_group):
            for ep in (
                (1, tp)
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
            degree_pair[0] * degree_pair[1],
            degree_pair[1],
        ),
    )


def size_fleet(
    requirement: ServingRequirement, replica: Replica, nodes_per_group: int
) -> FleetSizing | LayoutRejection:
    """Return the fewest groups that meet every limit, or the limit that cannot be met."""
    if not replica.max_batch:
        memory_budget = replica.startup_memory
        kv_cache_gib = (
            memory.kv_bytes(
                replica.llm, replica.layout, requirement.load.max_context_tokens
            )
            / memory.GIB
        )
        return LayoutRejection(
            layout=replica.layout,
            constraint="memory",
            reached=memory_budget.total_gib
            - memory_budget.kv_gib
            + kv_cache_gib,
            limit=memory_budget.total_gib,
        )
    replicas_per_group = (
        max(1, replica.node.accelerator_count // replica.layout.accelerators)
        if nodes_per_group == 1
        else 1
    )
    if requirement.mode == "batch":
        return _size_batch_run(
            requirement, replica, replicas_per_group, nodes_per_group
        )
    for limit in requirement.limits:
        idle_s = replica.idle_quantile(limit.metric, limit.percentile)
        if idle_s > float(limit.seconds):
            return LayoutRejection(
                layout=replica.layout,
                constraint=limit.key,
                reached=idle_s,
                limit=float(limit.seconds),
            )
    return _fewest_groups(
        requirement, replica, replicas_per_group, nodes_per_group
    )


def group_lower_bound(
    requirement: ServingRequirement, replica: Replica, nodes_per_group: int
) -> float:
    """A number of groups, perhaps fractional, below which no fit can be: the search's bound."""
    replicas_per_group = (
        max(1, replica.node.accelerator_count // replica.layout.accelerators)
        if nodes_per_group == 1
        else 1
    )
    if requirement.mode == "batch":
        return (
            float(requirement.request_count)
            / requirement.deadline_s
            / (saturation_rps(replica) * replicas_per_group)
        )
    tpot_limits_s = (
        float(sla_limit.seconds)
        for sla_limit in requirement.limits
        if sla_limit.metric == "tpot"
    )
    tpot_limit_s = min(tpot_limits_s, default=math.inf) / replica.margin("tpot")
    if requirement.mode == "closed":
        return requirement.load.concurrency / (
            replica.max_batch * replicas_per_group
        )
    reachable_rps = replica.rate_bound(tpot_limit_s)
    return (
        requirement.load.rate_per_s / (reachable_rps * replicas_per_group)
        if reachable_rps
        else math.inf
    )


def saturation_rps(replica: Replica) -> float:
    """Requests a second of a saturated replica."""
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
    """Groups to run so that at least `peak_groups` are up with the availability asked for.

    A node is up with a = 1 / (1 + failures * replacement time); a group needs all its nodes.
    Smallest N > groups with P(Binomial(N, a^span) >= groups) >= availability.
    """
    if availability is None:
        return peak_groups
    downtime_ratio = (
        constant("node_failures") / 24 * constant("node_replacement")
    )
    group_availability = (1 / (1 + downtime_ratio)) ** nodes_per_group
    total_groups = peak_groups + 1
    while True:
        quorum_probability = sum(
            math.comb(total_groups, groups_up)
            * group_availability**groups_up
            * (1 - group_availability) ** (total_groups - groups_up)
            for groups_up in range(peak_groups, total_groups + 1)
        )
        if quorum_probability >= float(availability):
            return total_groups
        total_groups += 1


def _fewest_groups(
    requirement: ServingRequirement,
    replica: Replica,
    replicas_per_group: int,
    nodes_per_group: int,
) -> FleetSizing | LayoutRejection:
    """Find the fewest groups: gallop up from the bound, then halve; delays fall with groups."""
    low_groups = max(
        0,
        math.ceil(
            group_lower_bound(requirement, replica, nodes_per_group) - 1e-9
        )
        - 1,
    )
    high_groups = low_groups + 1
    service = None
    group_ceiling = max(MAX_GROUPS, 8 * high_groups)
    while (
        service := _adequate_service(
            requirement, replica, high_groups * replicas_per_group
        )
    ) is None:
        low_groups = high_groups
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
    while high_groups - low_groups > 1:
        middle_groups = (low_groups + high_groups) // 2
        middle_service = _adequate_service(
            requirement, replica, middle_groups * replicas_per_group
        )
        if middle_service is None:
            low_groups = middle_groups
        else:
            high_groups = middle_groups
            service = middle_service
    return FleetSizing(
        layout=replica.layout,
        replica=replica,
        replicas_per_group=replicas_per_group,
        nodes_per_group=nodes_per_group,
        peak_groups=high_groups,
        total_groups=groups_with_spares(
            high_groups, nodes_per_group, requirement.availability
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
    """Return the service when the load is spread evenly over so many replicas.

    Nothing when they cannot keep up, or cannot hold what is to be in flight at once.
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
    requirement: ServingRequirement,
    replica: Replica,
    replicas_per_group: int,
    nodes_per_group: int,
) -> FleetSizing | LayoutRejection:
    """Groups for a batch run: requests / rate + start-up within the deadline."""
    startup_s = startup_time_s(replica)
    remaining_s = requirement.deadline_s - startup_s
    if remaining_s <= 0:
        return LayoutRejection(
            layout=replica.layout,
            constraint="deadline",
            reached=startup_s,
            limit=requirement.deadline_s,
        )
    group_rps = saturation_rps(replica) * replicas_per_group
    group_count = max(
        1,
        math.ceil(
            float(requirement.request_count) / group_rps / remaining_s - 1e-9
        ),
    )
    duration_hours = (
        float(requirement.request_count) / (group_rps * group_count) + startup_s
    ) / 3600
    return FleetSizing(
        layout=replica.layout,
        replica=replica,
        replicas_per_group=replicas_per_group,
        nodes_per_group=nodes_per_group,
        peak_groups=group_count,
        total_groups=group_count,
        service=replica.closed_service(replica.max_batch),
        duration_hours=duration_hours,
    )


def startup_time_s(replica: Replica) -> float:
    """Seconds from the request of a node until it serves: boot, then loading the weights."""
    replica_bytes = (
        memory.weight_bytes(replica.llm, replica.layout)
        * replica.layout.accelerators
    )
    return constant("boot") + replica_bytes / (
        constant("load_gb_s") * BYTES_PER_GB
    )
