"""The solution of a training job: the cheapest cluster in time, and what else was possible."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner.cost import block
from planner.cost.week import week
from planner.perf.constant import constant
from planner.perf.layout import Layout
from planner.perf.train import run
from planner.solve.solution import (
    Alternative,
    Pool,
    Run,
    Solution,
    Storage,
    Warn,
)
from planner.solve.train.cluster import DAY, EVEN, HOUR, SURE
from planner.solve.train.nearest import nearest
from planner.solve.train.predict import predict
from planner.solve.train.search import Found, Missed, Result, TrainSearch
from planner.solve.train.way import ways

if TYPE_CHECKING:
    from planner.cost.price import PriceBook
    from planner.solve.offer import Catalog
    from planner.solve.rule import Market
    from planner.solve.solution import Binding
    from planner.solve.train.cluster import Cluster
    from planner.solve.train.need import TrainNeed

CENTURY: Final = 36_500.0  # days


def answer(
    need: TrainNeed, market: Market, catalog: Catalog, keep: int
) -> Solution:
    """Return the cheapest cluster that finishes in time, or the fastest within a budget.

    When there is none: the shortest time, or the lowest cost, that there is.
    """
    fast = need.budget is not None and need.deadline is None
    search, offers = TrainSearch(need, catalog.book, fast=fast), market.best()
    for wide in (keep + 1, len(offers)):
        result = search.solve(offers, wide)
        chosen = next((f for f in result.found if _in_time(f.cluster)), None)
        if chosen is not None or len(result.found) < wide:
            break
    if chosen is None:
        return _nothing(need, market, nearest(need, offers, catalog.book))
    cluster, s = chosen.cluster, chosen.cluster.laid.job.spread
    layout = Layout(
        precision=cluster.laid.job.software.precision,
        kv_precision="bf16",
        tp=s.tp,
        pp=s.pp,
        ep=s.ep,
        dp=s.dp,
        cp=s.cp,
    )
    pool = Pool(
        offer=cluster.offer,
        nodes=cluster.nodes + cluster.spares,
        least=cluster.nodes,
        span=cluster.nodes,
        replicas=1,
        role="train",
        layout=layout,
        max_batch=0,
        spare=cluster.spares,
        context=need.sequence,
        window=0,
    )
    return Solution(
        status="optimal",
        pools=(pool,),
        predicted=predict(cluster),
        binding=(),
        alternatives=_others(result, chosen, search, keep),
        bill=chosen.bill,
        warnings=_warnings(need, cluster, catalog.book),
        week=week("flat", None),
        llm=need.llm,
        funnel=market.funnel,
        considered=market.allowed,
        run=_run(cluster, market, catalog, search),
    )


def _in_time(cluster: Cluster) -> bool:
    """Whether simulated runs keep the deadline: formulas choose, they decide."""
    return cluster.within(cluster.need.confidence) <= cluster.need.limit


def _run(
    cluster: Cluster, market: Market, catalog: Catalog, search: TrainSearch
) -> Run:
    need = cluster.need
    usual, late = cluster.usual, cluster.at(SURE)
    return Run(
        method=need.method,
        tokens=need.tokens,
        sequence=need.sequence,
        batch=need.batch,
        steps=math.ceil(need.tokens / (need.batch * need.sequence)),
        interval=cluster.interval,
        save=cluster.save,
        checkpoint=run.checkpoint_bytes(cluster.laid.job),
        stops=cluster.trials.stops,
        spares=cluster.spares,
        disk=int(cluster.disk),
        storage=_storage(cluster),
        hours=(usual.within(EVEN) / HOUR, late.within(SURE) / HOUR),
        usd=(
            usual.within_bill(search.book, EVEN).usd_month,
            late.within_bill(search.book, SURE).usd_month,
        ),
        layouts=cluster.layouts(),
        ways=ways(cluster, market, catalog, search),
    )


def _storage(cluster: Cluster) -> Storage:
    return Storage(
        files=cluster.store,
        wanted=cluster.need.data_bytes / cluster.steps,
        given=cluster.nodes * cluster.wire,
        written=cluster.written,
    )


def _others(
    result: Result, chosen: Found, search: TrainSearch, keep: int
) -> tuple[Alternative, ...]:
    """Dearer clusters, one for each machine type, and cheaper machines that are too slow."""
    seen = {chosen.cluster.offer.instance.instance_type}
    found: list[Alternative] = []
    for other in result.found:
        kind = other.cluster.offer.instance.instance_type
        if kind not in seen and len(found) < keep:
            seen.add(kind)
            found.append(
                _alternative(other, "time" if search.fast else "price")
            )
    late = [
        (search.least(x.offer), x)
        for x in result.missed
        if x.seconds < math.inf
    ]
    small = [
        (search.least(x.offer), x)
        for x in result.missed
        if x.seconds == math.inf
    ]
    for group in (late, small):
        for least, missed in sorted(
            group, key=lambda x: (x[0], x[1].offer.key)
        )[:keep]:
            found.append(_slow(missed, least))
    return tuple(found)


def _alternative(found: Found, reason: str) -> Alternative:
    cluster = found.cluster
    return Alternative(
        offer=cluster.offer,
        nodes=cluster.nodes,
        usd_month=found.bill.usd_month,
        rejected_by=reason,
    )


def _slow(missed: Missed, least: Decimal) -> Alternative:
    reason = missed.reason
    if missed.seconds < math.inf:
        days = missed.seconds / DAY
        reason += f": {days:,.1f} days at best" if days < CENTURY else ": never"
    return Alternative(
        offer=missed.offer,
        nodes=max(1, missed.nodes),
        usd_month=least.quantize(Decimal("0.01")),
        rejected_by=reason,
    )


def _warnings(
    need: TrainNeed, cluster: Cluster, book: PriceBook
) -> tuple[Warn, ...]:
    found = [Warn(code="assumed", message=note) for note in need.notes]
    found += _starved(cluster, book)
    if cluster.offer.purchase == "spot":
        message = "spot machines can be taken back at short notice, all of them at once"
        found.append(Warn(code="spot", message=message))
    most, every = (
        block.most(cluster.offer.provider),
        cluster.nodes + cluster.spares,
    )
    if most is not None and every > most:
        message = f"{every:,} machines are more than blocks hold ({most}): agree on the capacity"
        found.append(Warn(code="size", message=f"{message} before you apply"))
    if need.home not in (None, cluster.offer.provider):
        message = f"the data lie on {need.home}: bring them to {cluster.offer.provider} before, "
        message += "or reading them across the internet may starve the job"
        found.append(Warn(code="moved", message=message))
    if cluster.offer.confidence == "low":
        message = f"the price of {cluster.offer.instance.instance_type} has low confidence"
        found.append(Warn(code="price", message=message))
    return tuple(found)


def _fed(cluster: Cluster, book: PriceBook) -> str:
    """What a file system is worth and costs; nothing when none is faster."""
    wish = replace(cluster.need, storage="parallel")
    every = [
        c
        for c in replace(cluster, need=wish, store=None).stored()
        if c.expected < cluster.expected
    ]
    if not every:
        return ""
    best = min(every, key=lambda c: c.bill(book).usd_month)
    more = best.bill(book).usd_month - cluster.bill(book).usd_month
    sooner = (cluster.expected - best.expected) / HOUR
    return f"take data.storage: parallel ({sooner:,.1f} h sooner, {more:+,.0f} USD), "


def _starved(cluster: Cluster, book: PriceBook) -> list[Warn]:
    """What the path of the data cannot give, with the fix and its price."""
    found, kind = [], cluster.offer.instance
    if cluster.read > cluster.steps:
        share = 1 - cluster.steps / cluster.read
        found.append(
            Warn(
                code="data",
                message=(
                    "reading the dataset is slower than training: "
                    f"accelerators wait {share:.0%} of the time; "
                    f"compress the data, {_fed(cluster, book)}or take more machines"
                ),
            )
        )
    if not cluster.staged:
        found.append(
            Warn(
                code="staging",
                message=(
                    f"host memory holds no copy of a checkpoint: each one stops the job for "
                    f"{cluster.save:,.0f} s; more machines hold smaller parts"
                ),
            )
        )
    if kind.vcpu < constant("train_cores") * kind.accelerators:
        found.append(
            Warn(
                code="cores",
                message=(
                    f"{kind.vcpu / kind.accelerators:.0f} CPU cores for each accelerator: "
                    "tokenize and pack the data beforehand"
                ),
            )
        )
    return found


def _nothing(
    need: TrainNeed, market: Market, found: tuple[Binding, ...]
) -> Solution:
    """Infeasible, with what would be the nearest."""
    return Solution(
        status="infeasible",
        pools=(),
        predicted={},
        binding=found,
        alternatives=(),
        bill=None,
        warnings=(),
        week=week("flat", None),
        llm=need.llm,
        funnel=market.funnel,
        considered=market.allowed,
    )
