"""A second way to the cheapest fleet: try every machine, layout and number, one by one.

Shares the performance model and the price list with the product, but none of its search: no
bounds, no dominance, no halving, no memory of earlier answers.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING

from planner.perf.common.layout import ReplicaLayout, can_shard
from planner.perf.serving.replica import Replica

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.market.offer import Offer
    from planner.solve.serving.requirement import ServingRequirement

MOST_NODES = 60


def machines_cost(
    need: ServingRequirement, offers: Iterable[Offer]
) -> Decimal | None:
    """The least that the machines alone cost in a month, over single-machine replicas."""
    best: Decimal | None = None
    for offer in offers:
        nodes = _fewest(need, offer)
        if nodes is None:
            continue
        cost = _cost(need, offer, nodes)
        best = cost if best is None else min(best, cost)
    return best


def _cost(need: ServingRequirement, offer: Offer, nodes: int) -> Decimal:
    if offer.purchase.startswith("reserved"):
        return offer.usd_hour * nodes * 730
    running = sum(
        (Decimal(max(1, math.ceil(nodes * w - 1e-9))) * r if r else Decimal(0))
        for w, r in zip(
            need.week.relative_load, need.week.running_share, strict=True
        )
    )
    return offer.usd_hour * running / 168 * 730


def _fewest(need: ServingRequirement, offer: Offer) -> int | None:
    """The smallest number of machines with any layout."""
    node = offer.instance.node
    found = None
    for precision in need.precisions:
        if not node.accelerator.supports(precision):
            continue
        for tp in range(1, node.accelerator_count + 1):
            for pp in (1, 2, 4, 8):
                if (
                    node.accelerator_count % tp
                    or tp * pp > node.accelerator_count
                    or not can_shard(need.llm, tp)
                ):
                    continue
                for ep in (
                    {1, tp}
                    if need.llm.experts and need.llm.experts % tp == 0
                    else {1}
                ):
                    layout = ReplicaLayout(
                        precision=precision,
                        kv_precision=need.kv_precision,
                        tp=tp,
                        pp=pp,
                        ep=ep,
                    )
                    found = _least(
                        found,
                        _nodes(
                            need,
                            Replica(
                                need.llm,
                                layout,
                                node,
                                need.load,
                                need.confidence,
                            ),
                        ),
                    )
    return found


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _nodes(need: ServingRequirement, replica: Replica) -> int | None:
    if not replica.max_batch:
        return None
    copies = replica.node.accelerator_count // replica.layout.accelerators
    for nodes in range(1, MOST_NODES):
        service = replica.open_service(
            need.load.rate_per_s / (nodes * copies), nodes * copies
        )
        if service is not None and all(
            service.assured_quantile(x.metric, x.percentile)
            <= float(x.seconds) * 1.000001
            for x in need.limits
        ):
            return nodes
    return None
