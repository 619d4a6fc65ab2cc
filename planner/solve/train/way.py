"""Other ways to run a job on the same machines: bought otherwise, or joined otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from planner.cost import block
from planner.cost.line import CENT
from planner.solve.solution import Way
from planner.solve.train.cluster import DAY, HOUR, SURE
from planner.solve.train.mix import Mixed

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.solve.offer import Catalog, Offer
    from planner.solve.rule import Market
    from planner.solve.train.cluster import Cluster
    from planner.solve.train.search import TrainSearch

SHORT: Final = 2 * DAY  # told in hours
MANY: Final = 100  # times as long is never
HALF: Final = 2
BLOCKS: Final = ("capacity_block", "dws_calendar")
QUOTED: Final = "price of {as_of}, quoted when bought"
ELASTIC: Final = "needs an elastic job"
APART: Final = "not placed together"
PLAIN: Final = "without its fabric"


def ways(
    cluster: Cluster,
    market: Market,
    catalog: Catalog,
    cluster_search: TrainSearch,
) -> tuple[Way, ...]:
    """The chosen way first, then others with what each costs and when it ends."""
    scenarios = [_bought(cluster, cluster_search)]
    scenarios += [
        _bought(
            replace(cluster, offer=offer, spares=0).with_best_spares(), cluster_search
        )
        for offer in market.cheapest("buy")
        if offer.purchase != cluster.offer.purchase and _same(offer, cluster)
    ]
    mixed_cluster = _mixed(cluster, market, cluster_search)
    scenarios += (
        []
        if mixed_cluster is None
        else [_way("half spot", mixed_cluster, cluster_search, ELASTIC)]
    )
    scenarios += _blocks(cluster, catalog, cluster_search)
    for scenario_name, network_cluster in (
        (APART, cluster.without_placement()),
        (PLAIN, cluster.without_fabric()),
    ):
        scenarios += (
            []
            if network_cluster is None
            else [_way(scenario_name, network_cluster, cluster_search)]
        )
    return tuple(scenarios)


def _bought(cluster: Cluster, cluster_search: TrainSearch) -> Way:
    purchase = cluster.offer.purchase
    return _way(
        purchase,
        cluster,
        cluster_search,
        _reclaimed(cluster) if purchase == "spot" else "",
    )


def _way(
    scenario_name: str,
    cluster: Cluster,
    cluster_search: TrainSearch,
    remark: str = "",
) -> Way:
    if cluster.expected_s > MANY * cluster_search.requirement.time_limit_s:
        return Way(scenario_name, None, None, "never in time")
    return Way(
        scenario_name,
        cluster.expected_bill(cluster_search.price_book).usd_month,
        cluster.with_confidence(SURE).estimated_end_s / HOUR,
        remark,
    )


def _reclaimed(cluster: Cluster) -> str:
    """When a run on spot ends at the least and at the most reclaims that are published."""
    p90_cluster = cluster.with_confidence(SURE)
    earliest_s, latest_s = (
        replace(p90_cluster, reclaim_rates="low").estimated_end_s,
        replace(p90_cluster, reclaim_rates="high").estimated_end_s,
    )
    if latest_s > MANY * earliest_s:
        return "never ends at the highest published reclaim rate"
    unit_s, unit_name = (HOUR, "h") if earliest_s < SHORT else (DAY, "days")
    end_texts = [f"{end_s / unit_s:,.1f}" for end_s in (earliest_s, latest_s)]
    return (
        ""
        if end_texts[0] == end_texts[1]
        else f"{' to '.join(end_texts)} {unit_name} at published reclaim rates"
    )


def _same(offer: Offer, cluster: Cluster) -> bool:
    instance = cluster.offer.instance
    return (offer.provider, offer.instance.instance_type) == (
        instance.provider,
        instance.instance_type,
    )


def _mixed(
    cluster: Cluster, market: Market, cluster_search: TrainSearch
) -> Mixed | None:
    """Half of the machines on demand, the others on spot, in the region where that is cheapest.

    An InfiniBand fabric of Azure is that of one scale set, and so of one priority.
    """
    instance, on_demand_nodes = cluster.offer.instance, cluster.nodes // HALF
    if not on_demand_nodes or (
        instance.provider == "azure" and instance.fabric == "infiniband"
    ):
        return None
    on_demand_cluster = cluster_search.build_cluster(cluster.offer, on_demand_nodes)
    if on_demand_cluster is None:
        return None
    offers_by_region = {
        (candidate.region, candidate.purchase): candidate
        for offer_group in market.offer_groups
        for candidate in offer_group
        if _same(candidate, cluster) and market.violations(candidate) <= {"buy"}
    }
    offer_pairs = [
        (candidate, offers_by_region[region, "on_demand"])
        for (region, purchase), candidate in offers_by_region.items()
        if purchase == "spot" and (region, "on_demand") in offers_by_region
    ]
    if not offer_pairs:
        return None
    spot_offer, on_demand_offer = min(
        offer_pairs,
        key=lambda offer_pair: (
            offer_pair[0].usd_hour + offer_pair[1].usd_hour,
            offer_pair[0].region,
        ),
    )
    return Mixed(
        cluster.requirement,
        spot_offer,
        cluster.nodes,
        cluster.timed_layout,
        file_system=cluster.file_system,
        on_demand_offer=on_demand_offer,
        on_demand_nodes=on_demand_nodes,
        on_demand_speed=cluster.timed_layout.step_time.total / on_demand_cluster.timed_layout.step_time.total,
    )


def _blocks(
    cluster: Cluster, catalog: Catalog, cluster_search: TrainSearch
) -> list[Way]:
    """A block of days that holds the run with the wished confidence, at its newest price."""
    block_offers = [
        candidate
        for candidate in catalog.unlisted
        if candidate.purchase in BLOCKS and _same(candidate, cluster)
    ]
    if not block_offers:
        return []
    newest_offer = max(
        block_offers,
        key=lambda candidate: (
            candidate.as_of,
            -candidate.usd_hour,
            candidate.region,
        ),
    )
    block_cluster = replace(
        cluster,
        offer=replace(newest_offer, region=cluster.offer.region),
        spares=0,
    )
    block_days = block.days(
        newest_offer.purchase,
        newest_offer.provider,
        block_cluster.nodes,
        block_cluster.estimated_end_s,
    )
    if block_days is None:
        return []
    run_bill = block_cluster.expected_bill(cluster_search.price_book)
    block_usd: Decimal = (
        newest_offer.usd_hour * block_cluster.nodes * block_days * block.HOURS
    ).quantize(CENT)
    services_usd = run_bill.usd_month - (run_bill.lines[0].usd_month or 0)
    scenario_name = (
        f"{newest_offer.purchase.replace('_', ' ')} of {block_days} days"
    )
    return [
        Way(
            scenario_name,
            block_usd + services_usd,
            block_cluster.with_confidence(SURE).estimated_end_s / HOUR,
            QUOTED.format(as_of=newest_offer.as_of),
        )
    ]
