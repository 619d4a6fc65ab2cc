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
    requirement: TrainNeed,
    market: Market,
    catalog: Catalog,
    alternative_count: int,
) -> Solution:
    """Return the cheapest cluster that finishes in time, or the fastest within a budget.

    When there is none: the shortest time, or the lowest cost, that there is.
    """
    by_time = requirement.budget is not None and requirement.deadline is None
    cluster_search, allowed_offers = (
        TrainSearch(requirement, catalog.book, by_time=by_time),
        market.best(),
    )
    for cluster_limit in (alternative_count + 1, len(allowed_offers)):
        ranking = cluster_search.solve(allowed_offers, cluster_limit)
        selection = next(
            (
                candidate
                for candidate in ranking.found
                if _in_time(candidate.cluster)
            ),
            None,
        )
        if selection is not None or len(ranking.found) < cluster_limit:
            break
    if selection is None:
        return _nothing(
            requirement,
            market,
            nearest(requirement, allowed_offers, catalog.book),
        )
    cluster, parallel_layout = (
        selection.cluster,
        selection.cluster.laid.job.spread,
    )
    pool_layout = Layout(
        precision=cluster.laid.job.software.precision,
        kv_precision="bf16",
        tp=parallel_layout.tp,
        pp=parallel_layout.pp,
        ep=parallel_layout.ep,
        dp=parallel_layout.dp,
        cp=parallel_layout.cp,
    )
    training_pool = Pool(
        offer=cluster.offer,
        nodes=cluster.nodes + cluster.spares,
        least=cluster.nodes,
        span=cluster.nodes,
        replicas=1,
        role="train",
        layout=pool_layout,
        max_batch=0,
        spare=cluster.spares,
        context=requirement.sequence,
        window=0,
    )
    return Solution(
        status="optimal",
        pools=(training_pool,),
        predicted=predict(cluster),
        binding=(),
        alternatives=_others(
            ranking, selection, cluster_search, alternative_count
        ),
        bill=selection.bill,
        warnings=_warnings(requirement, cluster, catalog.book),
        week=week("flat", None),
        llm=requirement.llm,
        funnel=market.funnel,
        considered=market.allowed,
        run=_run(cluster, market, catalog, cluster_search),
    )


def _in_time(cluster: Cluster) -> bool:
    """Whether simulated runs keep the deadline: formulas choose, they decide."""
    return cluster.within(cluster.need.confidence) <= cluster.need.limit


def _run(
    cluster: Cluster,
    market: Market,
    catalog: Catalog,
    cluster_search: TrainSearch,
) -> Run:
    requirement = cluster.need
    median_cluster, p90_cluster = cluster.usual, cluster.at(SURE)
    return Run(
        method=requirement.method,
        tokens=requirement.tokens,
        sequence=requirement.sequence,
        batch=requirement.batch,
        steps=math.ceil(
            requirement.tokens / (requirement.batch * requirement.sequence)
        ),
        interval=cluster.interval,
        save=cluster.save,
        checkpoint=run.checkpoint_bytes(cluster.laid.job),
        stops=cluster.trials.stops,
        spares=cluster.spares,
        disk=int(cluster.disk),
        storage=_storage(cluster),
        hours=(
            median_cluster.within(EVEN) / HOUR,
            p90_cluster.within(SURE) / HOUR,
        ),
        usd=(
            median_cluster.within_bill(cluster_search.book, EVEN).usd_month,
            p90_cluster.within_bill(cluster_search.book, SURE).usd_month,
        ),
        layouts=cluster.layouts(),
        ways=ways(cluster, market, catalog, cluster_search),
    )


def _storage(cluster: Cluster) -> Storage:
    return Storage(
        files=cluster.store,
        wanted=cluster.need.data_bytes / cluster.steps,
        given=cluster.nodes * cluster.wire,
        written=cluster.written,
    )


def _others(
    ranking: Result,
    selection: Found,
    cluster_search: TrainSearch,
    alternative_count: int,
) -> tuple[Alternative, ...]:
    """Dearer clusters, one for each machine type, and cheaper machines that are too slow."""
    seen_types = {selection.cluster.offer.instance.instance_type}
    alternatives: list[Alternative] = []
    for candidate in ranking.found:
        instance_type = candidate.cluster.offer.instance.instance_type
        if (
            instance_type not in seen_types
            and len(alternatives) < alternative_count
        ):
            seen_types.add(instance_type)
            alternatives.append(
                _alternative(
                    candidate, "time" if cluster_search.fast else "price"
                )
            )
    late_offers = [
        (cluster_search.least(ranked_offer.offer), ranked_offer)
        for ranked_offer in ranking.missed
        if ranked_offer.seconds < math.inf
    ]
    unfit_offers = [
        (cluster_search.least(ranked_offer.offer), ranked_offer)
        for ranked_offer in ranking.missed
        if ranked_offer.seconds == math.inf
    ]
    for offer_group in (late_offers, unfit_offers):
        for bound_usd, rejected_offer in sorted(
            offer_group,
            key=lambda ranked_offer: (
                ranked_offer[0],
                ranked_offer[1].offer.key,
            ),
        )[:alternative_count]:
            alternatives.append(_slow(rejected_offer, bound_usd))
    return tuple(alternatives)


def _alternative(candidate: Found, rejected_by: str) -> Alternative:
    cluster = candidate.cluster
    return Alternative(
        offer=cluster.offer,
        nodes=cluster.nodes,
        usd_month=candidate.bill.usd_month,
        rejected_by=rejected_by,
    )


def _slow(rejected_offer: Missed, bound_usd: Decimal) -> Alternative:
    rejected_by = rejected_offer.reason
    if rejected_offer.seconds < math.inf:
        duration_days = rejected_offer.seconds / DAY
        rejected_by += (
            f": {duration_days:,.1f} days at best"
            if duration_days < CENTURY
            else ": never"
        )
    return Alternative(
        offer=rejected_offer.offer,
        nodes=max(1, rejected_offer.nodes),
        usd_month=bound_usd.quantize(Decimal("0.01")),
        rejected_by=rejected_by,
    )


def _warnings(
    requirement: TrainNeed, cluster: Cluster, price_book: PriceBook
) -> tuple[Warn, ...]:
    warnings = [
        Warn(code="assumed", message=assumption)
        for assumption in requirement.notes
    ]
    warnings += _starved(cluster, price_book)
    if cluster.offer.purchase == "spot":
        message = "spot machines can be taken back at short notice, all of them at once"
        warnings.append(Warn(code="spot", message=message))
    block_limit, total_nodes = (
        block.most(cluster.offer.provider),
        cluster.nodes + cluster.spares,
    )
    if block_limit is not None and total_nodes > block_limit:
        message = f"{total_nodes:,} machines are more than blocks hold ({block_limit}): agree on the capacity"
        warnings.append(
            Warn(code="size", message=f"{message} before you apply")
        )
    if requirement.home not in (None, cluster.offer.provider):
        message = f"the data lie on {requirement.home}: bring them to {cluster.offer.provider} before, "
        message += "or reading them across the internet may starve the job"
        warnings.append(Warn(code="moved", message=message))
    if cluster.offer.confidence == "low":
        message = f"the price of {cluster.offer.instance.instance_type} has low confidence"
        warnings.append(Warn(code="price", message=message))
    return tuple(warnings)


def _fed(cluster: Cluster, price_book: PriceBook) -> str:
    """What a file system is worth and costs; nothing when none is faster."""
    parallel_requirement = replace(cluster.need, storage="parallel")
    faster_clusters = [
        candidate
        for candidate in replace(
            cluster, need=parallel_requirement, store=None
        ).stored()
        if candidate.expected < cluster.expected
    ]
    if not faster_clusters:
        return ""
    cheapest = min(
        faster_clusters,
        key=lambda candidate: candidate.bill(price_book).usd_month,
    )
    extra_usd = (
        cheapest.bill(price_book).usd_month - cluster.bill(price_book).usd_month
    )
    saved_hours = (cluster.expected - cheapest.expected) / HOUR
    return f"take data.storage: parallel ({saved_hours:,.1f} h sooner, {extra_usd:+,.0f} USD), "


def _starved(cluster: Cluster, price_book: PriceBook) -> list[Warn]:
    """What the path of the data cannot give, with the fix and its price."""
    warnings, instance = [], cluster.offer.instance
    if cluster.read > cluster.steps:
        waiting_share = 1 - cluster.steps / cluster.read
        warnings.append(
            Warn(
                code="data",
                message=(
                    "reading the dataset is slower than training: "
                    f"accelerators wait {waiting_share:.0%} of the time; "
                    f"compress the data, {_fed(cluster, price_book)}or take more machines"
                ),
            )
        )
    if not cluster.staged:
        warnings.append(
            Warn(
                code="staging",
                message=(
                    f"host memory holds no copy of a checkpoint: each one stops the job for "
                    f"{cluster.save:,.0f} s; more machines hold smaller parts"
                ),
            )
        )
    if instance.vcpu < constant("train_cores") * instance.accelerators:
        warnings.append(
            Warn(
                code="cores",
                message=(
                    f"{instance.vcpu / instance.accelerators:.0f} CPU cores for each accelerator: "
                    "tokenize and pack the data beforehand"
                ),
            )
        )
    return warnings


def _nothing(
    requirement: TrainNeed, market: Market, relaxations: tuple[Binding, ...]
) -> Solution:
    """Infeasible, with what would be the nearest."""
    return Solution(
        status="infeasible",
        pools=(),
        predicted={},
        binding=relaxations,
        alternatives=(),
        bill=None,
        warnings=(),
        week=week("flat", None),
        llm=requirement.llm,
        funnel=market.funnel,
        considered=market.allowed,
    )
