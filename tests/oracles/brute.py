"""A second way to the cheapest fleet: try every machine, layout and number, one by one.

Shares the performance model, the judge and the price list with the product, but none of its
search: no formulas of a fleet's size, no bounds, no brackets, no memory of earlier answers.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING

from planner.perf.common.layout import ReplicaLayout, can_shard
from planner.perf.serving.replica import Replica
from planner.solve.serving.sizing import (
    FleetSizing,
    ReplicaGroup,
    sized_fleet,
)
from planner.solve.serving.verify import FleetJudge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner.market.offer import Offer
    from planner.solve.serving.requirement import ServingRequirement


def machines_cost(
    need: ServingRequirement, offers: Iterable[Offer], ceiling: Decimal
) -> Decimal | None:
    """The least that the machines alone cost in a month, over single-machine replicas.

    None when nothing passes for `ceiling` dollars: what costs more is not played.
    """
    judge = FleetJudge()
    costs = [
        cost
        for offer in offers
        for replica in _replicas(need, offer)
        if (cost := _cheapest(need, offer, replica, judge, ceiling)) is not None
    ]
    return min(costs, default=None)


def _cheapest(
    need: ServingRequirement,
    offer: Offer,
    replica: Replica,
    judge: FleetJudge,
    ceiling: Decimal,
) -> Decimal | None:
    """The machines of the smallest number that passes, counted up from one."""
    copies = replica.node.accelerator_count // replica.layout.accelerators
    nodes = 0
    while True:
        nodes += 1
        fleet = sized_fleet(need, replica, ReplicaGroup(1, copies), nodes)
        cost = _cost(need, offer, fleet)
        if cost > ceiling:
            return None
        if judge.missed_limit(need, fleet) is None:
            return cost


def _cost(
    need: ServingRequirement, offer: Offer, fleet: FleetSizing
) -> Decimal:
    if offer.purchase.startswith("reserved"):
        return offer.usd_hour * fleet.nodes * 730
    spares = fleet.spares
    running = sum(
        (
            (
                Decimal(max(1, math.ceil(fleet.peak_groups * w - 1e-9)))
                + spares.count
                - (w < spares.from_load)
            )
            * r
            if r
            else Decimal(0)
        )
        for w, r in zip(
            need.week.relative_load, need.week.running_share, strict=True
        )
    )
    return offer.usd_hour * running / 168 * 730


def _replicas(need: ServingRequirement, offer: Offer) -> Iterator[Replica]:
    """Every layout on one machine that has room for a request.

    So many accelerators are cut into as few pipeline stages as the model allows.
    """
    node = offer.instance.node
    for precision in need.precisions:
        if not node.accelerator.supports(precision):
            continue
        cuts: dict[int, tuple[int, int]] = {}
        for tp in range(1, node.accelerator_count + 1):
            for pp in (8, 4, 2, 1):
                if (
                    node.accelerator_count % tp == 0
                    and tp * pp <= node.accelerator_count
                    and can_shard(need.llm, tp)
                ):
                    stages, _ = cuts.get(tp * pp, (99, 0))
                    cuts[tp * pp] = min((pp, tp), (stages, tp * pp // stages))
        for pp, tp in cuts.values():
            for ep in (
                {1, tp}
                if need.llm.experts and need.llm.experts % tp == 0
                else {1}
            ):
                replica = Replica(
                    need.llm,
                    ReplicaLayout(
                        precision=precision,
                        kv_precision=need.kv_precision,
                        tp=tp,
                        pp=pp,
                        ep=ep,
                    ),
                    node,
                    need.load.shape,
                    need.confidence,
                    metrics=need.metrics,
                )
                if replica.max_batch:
                    yield replica
