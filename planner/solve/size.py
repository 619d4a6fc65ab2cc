"""How many replicas a layout needs on a kind of node, or which limit it can never meet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from planner.perf import memory
from planner.perf.constant import constant
from planner.perf.layout import Layout, Node, valid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal

    from planner.facts.llm import Llm
    from planner.perf.serve import Replica
    from planner.perf.service import Service
    from planner.solve.need import Need
    from planner.spec.model import Limit

MOST_GROUPS: Final = 4096
SPANS: Final = (2, 3, 4, 6, 8)  # nodes that one replica may span
GB: Final = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A layout that meets the need.

    A group is the smallest part that is added: a node with `replicas` replicas, or the `span`
    nodes that hold one. `needed` groups carry the peak, `groups` also survive what availability
    asks. `hours` is how long a batch run takes.
    """

    layout: Layout
    replica: Replica
    replicas: int
    span: int
    needed: int
    groups: int
    service: Service
    hours: float = 0.0

    @property
    def nodes(self) -> int:
        """Nodes at the peak."""
        return self.groups * self.span


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a layout cannot do it: the key of a limit, the best it reaches, the limit."""

    layout: Layout
    key: str
    value: float
    limit: float


def layouts(llm: Llm, need: Need, node: Node, span: int) -> Iterator[Layout]:
    """Every layout of a model over `span` nodes, in the documented order of ties.

    One node: all tp * pp up to its accelerators. Several nodes: tp fills each, pp spans them.
    Experts are also spread (ep = tp). Order: precision as allowed, fewer accelerators, fewer
    stages, tensor before expert parallelism.
    """
    for precision in need.precisions:
        if not node.accelerator.runs(precision):
            continue
        for tp, pp in _shapes(llm, node, span):
            for ep in (
                (1, tp)
                if llm.experts and tp > 1 and llm.experts % tp == 0
                else (1,)
            ):
                yield Layout(
                    precision=precision,
                    kv_precision=need.kv_precision,
                    tp=tp,
                    pp=pp,
                    ep=ep,
                )


@cache
def _widths(count: int) -> tuple[int, ...]:
    return tuple(t for t in range(1, count + 1) if count % t == 0)


def _shapes(llm: Llm, node: Node, span: int) -> list[tuple[int, int]]:
    widths = [t for t in _widths(node.count) if valid(llm, t)]
    if span > 1:
        return [(t, node.count // t * span) for t in widths if t == max(widths)]
    pairs = [
        (tp, pp)
        for tp in widths
        for pp in (1, 2, 4, 8)
        if tp * pp <= node.count
    ]
    return sorted(pairs, key=lambda pair: (pair[0] * pair[1], pair[1]))


def size(need: Need, replica: Replica, span: int) -> Fit | Refusal:
    """Return the fewest groups that meet every limit, or the limit that cannot be met."""
    if not replica.max_batch:
        room = replica.memory
        held = (
            memory.kv(replica.llm, replica.layout, need.load.context)
            / memory.GIB
        )
        return Refusal(
            layout=replica.layout,
            key="memory",
            value=room.total_gib - room.kv_gib + held,
            limit=room.total_gib,
        )
    count = (
        max(1, replica.node.count // replica.layout.accelerators)
        if span == 1
        else 1
    )
    if need.mode == "batch":
        return _run(need, replica, count, span)
    for limit in need.limits:
        best = replica.idle(limit.metric, limit.percentile)
        if best > float(limit.seconds):
            return Refusal(
                layout=replica.layout,
                key=limit.key,
                value=best,
                limit=float(limit.seconds),
            )
    return _grow(need, replica, count, span)


def lowest(need: Need, replica: Replica, span: int) -> float:
    """A number of groups, perhaps fractional, below which no fit can be: the search's bound."""
    count = (
        max(1, replica.node.count // replica.layout.accelerators)
        if span == 1
        else 1
    )
    if need.mode == "batch":
        return float(need.requests) / need.deadline / (most(replica) * count)
    paces = (float(x.seconds) for x in need.limits if x.metric == "tpot")
    pace = min(paces, default=math.inf) / replica.margin("tpot")
    if need.mode == "closed":
        return need.load.concurrency / (replica.max_batch * count)
    reachable = replica.bound(pace)
    return need.load.rate / (reachable * count) if reachable else math.inf


def most(replica: Replica) -> float:
    """Requests a second of a saturated replica."""
    return replica.completion(replica.max_batch)


def broken(service: Service, limits: tuple[Limit, ...]) -> Limit | None:
    """Return the first limit that a service does not meet."""
    for limit in limits:
        if not service.meets(
            limit.metric, limit.percentile, float(limit.seconds)
        ):
            return limit
    return None


def spared(groups: int, span: int, availability: Decimal | None) -> int:
    """Groups to run so that at least `groups` are up with the availability asked for.

    A node is up with a = 1 / (1 + failures * replacement time); a group needs all its nodes.
    Smallest N > groups with P(Binomial(N, a^span) >= groups) >= availability.
    """
    if availability is None:
        return groups
    down = constant("node_failures") / 24 * constant("node_replacement")
    up = (1 / (1 + down)) ** span
    total = groups + 1
    while True:
        enough = sum(
            math.comb(total, k) * up**k * (1 - up) ** (total - k)
            for k in range(groups, total + 1)
        )
        if enough >= float(availability):
            return total
        total += 1


def _grow(need: Need, replica: Replica, count: int, span: int) -> Fit | Refusal:
    """Find the fewest groups: gallop up from the bound, then halve; delays fall with groups."""
    low = max(0, math.ceil(lowest(need, replica, span) - 1e-9) - 1)
    high, found = low + 1, None
    ceiling = max(MOST_GROUPS, 8 * high)
    while (found := _meets(need, replica, high * count)) is None:
        low, high = high, high * 2
        if high > ceiling:
            limit = need.limits[0] if need.limits else None
            return Refusal(
                layout=replica.layout,
                key=limit.key if limit else "rate",
                value=math.inf,
                limit=float(limit.seconds) if limit else need.load.rate,
            )
    while high - low > 1:
        middle = (low + high) // 2
        better = _meets(need, replica, middle * count)
        if better is None:
            low = middle
        else:
            high, found = middle, better
    return Fit(
        layout=replica.layout,
        replica=replica,
        replicas=count,
        span=span,
        needed=high,
        groups=spared(high, span, need.availability),
        service=found,
    )


def _meets(need: Need, replica: Replica, replicas: int) -> Service | None:
    service = serve(need, replica, replicas)
    return service if service and broken(service, need.limits) is None else None


def serve(need: Need, replica: Replica, replicas: int) -> Service | None:
    """Return the service when the load is spread evenly over so many replicas.

    Nothing when they cannot keep up, or cannot hold what is to be in flight at once.
    """
    if need.mode == "closed":
        each = need.load.concurrency / replicas
        return replica.closed(each) if each <= replica.max_batch else None
    return replica.at(need.load.rate / replicas, replicas)


def _run(need: Need, replica: Replica, count: int, span: int) -> Fit | Refusal:
    """Groups for a batch run: requests / rate + start-up within the deadline."""
    started = startup(replica)
    left = need.deadline - started
    if left <= 0:
        return Refusal(
            layout=replica.layout,
            key="deadline",
            value=started,
            limit=need.deadline,
        )
    rate = most(replica) * count
    groups = max(1, math.ceil(float(need.requests) / rate / left - 1e-9))
    hours = (float(need.requests) / (rate * groups) + started) / 3600
    return Fit(
        layout=replica.layout,
        replica=replica,
        replicas=count,
        span=span,
        needed=groups,
        groups=groups,
        service=replica.closed(replica.max_batch),
        hours=hours,
    )


def startup(replica: Replica) -> float:
    """Seconds from the request of a node until it serves: boot, then loading the weights."""
    bytes_held = (
        memory.weights(replica.llm, replica.layout)
        * replica.layout.accelerators
    )
    return constant("boot") + bytes_held / (constant("load_gb_s") * GB)
