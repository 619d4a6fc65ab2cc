"""A second way to the cheapest fleet: try every machine, layout and number, one by one.

Shares the performance model, the judge and the price list with the product, but none of its
search: no formulas of a fleet's size, no bounds, no brackets, no memory of earlier answers.
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING

import numpy as np

from planner.perf.common.layout import ReplicaLayout, can_shard
from planner.perf.serving.replica import Replica
from planner.solve.serving.sizing import (
    FleetSizing,
    ReplicaGroup,
    sized_fleet,
    startup_time_s,
)
from planner.solve.serving.verify import FleetJudge
from planner.spec.schedule import open_minutes
from tests.oracles.standing import WEEK_MINUTES
from tests.oracles.stated import constant, reclaims

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from planner.facts.accelerator import Accelerator
    from planner.market.offer import Offer
    from planner.solve.serving.requirement import ServingRequirement


SPANS = (1, 2, 3, 4, 6, 8)  # machines of a replica
HOUR_S = 3600


def machines_cost(
    need: ServingRequirement, offers: Iterable[Offer], ceiling: Decimal
) -> Decimal | None:
    """The least that the machines alone cost in a month.

    None when nothing passes for `ceiling` dollars: what costs more is not played.
    """
    judge = FleetJudge()
    costs = [
        cost
        for offer in offers
        for span in (SPANS if offer.instance.fabric != "none" else (1,))
        for replica in replicas(need, offer, span)
        if (cost := _cheapest(need, offer, replica, span, judge, ceiling))
        is not None
    ]
    return min(costs, default=None)


def _cheapest(
    need: ServingRequirement,
    offer: Offer,
    replica: Replica,
    span: int,
    judge: FleetJudge,
    ceiling: Decimal,
) -> Decimal | None:
    """The machines of the smallest number that passes, counted up from one."""
    copies = replica.node.accelerator_count // replica.layout.accelerators or 1
    groups = 0
    while True:
        groups += 1
        fleet = sized_fleet(need, replica, ReplicaGroup(span, copies), groups)
        cost = _cost(need, offer, fleet)
        if cost > ceiling:
            return None
        if judge.missed_limit(need, fleet) is None:
            return cost


def _cost(
    need: ServingRequirement, offer: Offer, fleet: FleetSizing
) -> Decimal:
    if offer.purchase.startswith("reserved"):
        return line_usd(Decimal(fleet.nodes * 730), offer.usd_hour)
    running = sum(
        standing(need, fleet, lambda load: running_nodes(fleet, load))
    )
    there = Decimal(1)
    if offer.purchase == "spot":
        startup_h = startup_time_s(fleet.replica) / HOUR_S
        there = Decimal(_paid_share(offer, startup_h))
    hours = running * there / WEEK_MINUTES * 730
    return line_usd(hours, offer.usd_hour)


def standing(
    need: ServingRequirement,
    fleet: FleetSizing,
    nodes_at: Callable[[float], int],
) -> tuple[int, ...]:
    """Machines of each minute of a week: what any minute needs until those asked for now serve.

    `nodes_at` says what an hour of a load needs.

    Nothing needs machines while the service is closed, and nothing has them.
    """
    start_minutes = math.ceil(startup_time_s(fleet.replica) / 60)
    is_open = np.array(open_minutes(need.week.schedule))
    hourly = [
        nodes_at(load) if share else 0
        for load, share in zip(
            need.week.relative_load, need.week.running_share, strict=True
        )
    ]
    needed = np.repeat(hourly, 60) * is_open
    ahead = [np.roll(needed, -minute) for minute in range(start_minutes + 1)]
    return tuple(map(int, np.max(ahead, axis=0) * is_open))


def running_nodes(fleet: FleetSizing, load: float) -> int:
    """Machines of an hour: whole groups for the load, one at least, and those to spare."""
    groups = max(1, math.ceil(fleet.peak_groups * load - 1e-9))
    spares = fleet.spares.count - (load < fleet.spares.from_load)
    return (groups + spares) * fleet.nodes_per_group


def line_usd(hours: Decimal, usd_hour: Decimal) -> Decimal:
    """A line of a bill: hours to four decimals, and what they cost to the cent."""
    quantity = hours.quantize(Decimal("0.0001"), ROUND_HALF_UP)
    return (quantity * usd_hour).quantize(Decimal("0.01"), ROUND_HALF_UP)


def _paid_share(offer: Offer, startup_h: float) -> float:
    """A machine is there, or waits for a new one unpaid, or starts: shares of a renewal process.

    It is taken back with its zone and by itself, which happen independently.
    """
    rate = reclaims(offer.provider, offer.instance.instance_type, "monthly")
    absence_h = rate.wait_h + startup_h
    together = constant("reclaim_together")
    there = math.prod(
        1 / share / (1 / share + absence_h)
        for share in (
            rate.hourly * together,
            rate.hourly * (1 - together),
        )
    )
    return there + (1 - there) * startup_h / absence_h


def _cuts(
    need: ServingRequirement, accelerators: int, span: int
) -> Iterator[tuple[int, int]]:
    """Stages and width of each way to cut a model.

    So many accelerators of a machine are cut into as few stages as the model allows. Over
    several machines all accelerators work on one replica, each machine as widely as it can.
    """
    widths = [
        tp
        for tp in range(1, accelerators + 1)
        if accelerators % tp == 0 and can_shard(need.llm, tp)
    ]
    if span > 1:
        yield accelerators // widths[-1] * span, widths[-1]
        return
    cuts: dict[int, tuple[int, int]] = {}
    for tp in widths:
        for pp in (8, 4, 2, 1):
            if tp * pp <= accelerators:
                stages, _ = cuts.get(tp * pp, (99, 0))
                cuts[tp * pp] = min((pp, tp), (stages, tp * pp // stages))
    yield from cuts.values()


def replicas(
    need: ServingRequirement, offer: Offer, span: int
) -> Iterator[Replica]:
    """Every layout on so many machines that has room for a request."""
    node = offer.instance.node
    for precision in need.precisions:
        if not node.accelerator.supports(precision):
            continue
        for pp, tp in _cuts(need, node.accelerator_count, span):
            for ep in (
                {1, tp}
                if need.llm.experts and need.llm.experts % tp == 0
                else {1}
            ):
                for kv_precision in _caches(need, node.accelerator, precision):
                    replica = Replica(
                        need.llm,
                        ReplicaLayout(
                            precision=precision,
                            kv_precision=kv_precision,
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


def _caches(
    need: ServingRequirement, accelerator: Accelerator, precision: str
) -> tuple[str, ...]:
    """Formats of the cache beside weights in a precision, as docs/spec.md has the rule."""
    first = need.kv_precisions[0]
    model = need.llm
    plain = not (model.sparse or model.state_layers or model.window_layers)
    try:
        capability = float(accelerator.compute_capability)
    except ValueError:
        return (first,)
    if model.kv_lora_rank:
        plain = plain and 9.0 <= capability <= 10.3
    if (
        plain
        and 8.9 <= capability <= 12.1
        and precision not in {"bf16", "fp16", "fp32"}
    ):
        return need.kv_precisions
    return (first,)
