"""Scenarios on the same machine type: other purchase options and networks."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.market.capacity import gang_limit
from planner.market.found_spot import found_spot
from planner.market.mix import above_base, may_be_mixed
from planner.solve.cause import because
from planner.solve.solution import Scenario
from planner.solve.training.capacity import newest_block_price, quoted_block
from planner.solve.training.cluster import P90_SHARE
from planner.solve.warning import LOW_CONFIDENCE
from planner.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.market.offer import Catalog, Offer
    from planner.market.offer_filter import OfferFilter
    from planner.solve.cause import Cause
    from planner.solve.training.cluster import Cluster
    from planner.solve.training.mixed_cluster import MixedCluster
    from planner.solve.training.search import TrainSearch

HOURS_BELOW_S: Final = 2 * SECONDS_PER_DAY  # told in hours
NEVER_FACTOR: Final = 100  # times as long is never
BASE_SHARE: Final = Decimal("0.5")
# On demand and spot stand side by side, whichever is chosen.
SIDE_BY_SIDE: Final = ("on_demand", "spot")
APART_SCENARIO: Final = "not placed together"
NO_FABRIC_SCENARIO: Final = "without its fabric"


def compare_scenarios(
    cluster: Cluster,
    market: OfferFilter,
    catalog: Catalog,
    cluster_search: TrainSearch,
) -> tuple[Scenario, ...]:
    """Return the selected scenario first, then the alternatives to it.

    Each has the expected cost in USD and the duration that holds with 90 % confidence.
    """
    scenarios = [
        _purchase_scenario(cluster, cluster_search),
        *_other_purchases(cluster, market, catalog, cluster_search),
    ]
    mixed_cluster = (
        _half_spot(cluster, market, cluster_search)
        if cluster.offer.mix is None
        else None
    )
    scenarios += (
        []
        if mixed_cluster is None
        else [
            _scenario(
                "half spot",
                mixed_cluster,
                cluster_search,
                [because("half-spot")],
            )
        ]
    )
    scenarios += _block_scenarios(cluster, catalog, cluster_search)
    for scenario_name, network_cluster in (
        (APART_SCENARIO, cluster.without_placement()),
        (NO_FABRIC_SCENARIO, cluster.without_fabric()),
    ):
        scenarios += (
            []
            if network_cluster is None
            else [_scenario(scenario_name, network_cluster, cluster_search)]
        )
    return tuple(scenarios)


def _other_purchases(
    cluster: Cluster,
    market: OfferFilter,
    catalog: Catalog,
    cluster_search: TrainSearch,
) -> list[Scenario]:
    """Return the other ways to buy the machines, on demand and spot first and always."""
    other_offers = [
        offer
        # Offers that only the purchase rule of the spec excludes are compared.
        for offer in market.cheapest("buy")
        if _same_instance(offer, cluster) and offer.mix is None
    ]
    spot = found_spot(market, catalog, cluster.offer, skipped_rule="buy")
    # A price by which the planner does not choose is told all the same.
    if spot and "spot" not in {offer.purchase for offer in other_offers}:
        other_offers.append(spot)
    scenarios = {
        offer.purchase: _purchase_scenario(
            # The best number of spares depends on the purchase option.
            cluster.bought_by(offer).with_best_spares(),
            cluster_search,
        )
        for offer in other_offers
    }
    first_scenarios = {
        purchase: scenarios.get(purchase)
        or Scenario(purchase, None, None, (because("not-sold"),))
        for purchase in SIDE_BY_SIDE
    }
    return [
        scenario
        for purchase, scenario in (first_scenarios | scenarios).items()
        if purchase != cluster.offer.purchase
    ]


def _purchase_scenario(
    cluster: Cluster, cluster_search: TrainSearch
) -> Scenario:
    purchase = cluster.offer.purchase
    price_remark = _price_remark(cluster.offer)
    if purchase != "spot":
        return _scenario(purchase, cluster, cluster_search, [price_remark])
    most_machines = gang_limit(cluster.offer, spot_by_name=True)
    # What is not to be had has no price.
    if most_machines is not None and cluster.nodes > most_machines:
        beyond = because("beyond-spot", machines=most_machines)
        return Scenario(purchase, None, None, (beyond,))
    return _scenario(
        purchase,
        cluster,
        cluster_search,
        [price_remark, _policy_remark(cluster) or _reclaim_remark(cluster)],
    )


def _price_remark(offer: Offer) -> Cause | None:
    """Return how old a price is, where that or something else makes it weak."""
    if offer.found_usd_hour is not None:
        return because(
            "upper-spot", as_of=offer.as_of, found_usd=offer.found_usd_hour
        )
    if offer.old_price is None:
        is_unsure = offer.confidence == LOW_CONFIDENCE
        return because("unsure") if is_unsure else None
    if offer.old_price.fresh_usd_hour != offer.usd_hour:
        return because("old", as_of=offer.as_of)
    return because(
        "old-ratio",
        as_of=offer.as_of,
        ratio_as_of=offer.old_price.ratio_as_of,
    )


def _policy_remark(cluster: Cluster) -> Cause | None:
    """Return from how many machines on a spec has to ask for spot, where it did not."""
    most_machines = gang_limit(
        cluster.offer, spot_by_name=cluster.requirement.spot_by_name
    )
    if most_machines is None or cluster.nodes <= most_machines:
        return None
    return because("spot-by-name", machines=most_machines)


def _scenario(
    scenario_name: str,
    cluster: Cluster,
    cluster_search: TrainSearch,
    remarks: Iterable[Cause | None] = (),
) -> Scenario:
    if (
        not cluster.ends
        or cluster.expected_s
        # Far beyond the limit an exact duration has no meaning.
        > NEVER_FACTOR * cluster_search.requirement.time_limit_s
    ):
        return Scenario(scenario_name, None, None, (because("never-in-time"),))
    return Scenario(
        scenario_name,
        cluster.expected_bill(cluster_search.price_book).total,
        cluster.with_confidence(P90_SHARE).estimated_end_s / SECONDS_PER_HOUR,
        tuple(remark for remark in remarks if remark is not None),
    )


def _reclaim_remark(cluster: Cluster) -> Cause | None:
    """Return the range of the duration over the published reclaim rates."""
    p90_cluster = cluster.with_confidence(P90_SHARE)
    # Published rates differ a hundredfold, so both ends are stated.
    earliest_s = replace(p90_cluster, reclaim_rates="low").estimated_end_s
    latest_s = replace(p90_cluster, reclaim_rates="high").estimated_end_s
    if latest_s > NEVER_FACTOR * earliest_s:
        return because("never-at-high-rate")
    in_hours = earliest_s < HOURS_BELOW_S
    unit_s = SECONDS_PER_HOUR if in_hours else SECONDS_PER_DAY
    earliest, latest = (
        round(end_s / unit_s, 1) for end_s in (earliest_s, latest_s)
    )
    # A difference below the digit that is told is none.
    if earliest == latest:
        return None
    if in_hours:
        return because(
            "reclaim-hours", earliest_hours=earliest, latest_hours=latest
        )
    return because("reclaim-days", earliest_days=earliest, latest_days=latest)


def _same_instance(offer: Offer, cluster: Cluster) -> bool:
    instance = cluster.offer.instance
    return (offer.provider, offer.instance.instance_type) == (
        instance.provider,
        instance.instance_type,
    )


def _half_spot(
    cluster: Cluster, market: OfferFilter, cluster_search: TrainSearch
) -> MixedCluster | None:
    """Return half of the machines on demand and half on spot, or `None`.

    The region is the one with the lowest sum of both prices.
    """
    # Some clouds bind a fabric to one group of machines, which are all bought in one way.
    if not may_be_mixed(cluster.offer.instance):
        return None
    offers_by_region = {
        (candidate.region, candidate.purchase): candidate
        for offer_group in market.offer_groups
        for candidate in offer_group
        if _same_instance(candidate, cluster)
        # A region must satisfy every rule except that on purchase options.
        and market.violations(candidate) <= {"buy"}
    }
    mixed_offers = [
        above_base(offers_by_region[region, "on_demand"], candidate, BASE_SHARE)
        for (region, purchase), candidate in offers_by_region.items()
        # Both kinds run in one region, since the fabric joins them.
        if purchase == "spot" and (region, "on_demand") in offers_by_region
    ]
    if not mixed_offers:
        return None
    offer = min(mixed_offers, key=lambda mixed: (mixed.usd_hour, mixed.region))
    # Half of so many machines must be known to be had on spot.
    most_machines = gang_limit(offer, spot_by_name=True)
    if most_machines is not None and cluster.nodes > most_machines:
        return None
    return cluster_search.on_base(cluster, offer)


def _block_scenarios(
    cluster: Cluster, catalog: Catalog, cluster_search: TrainSearch
) -> list[Scenario]:
    """Return the scenario of a capacity block that covers the run, or an empty list.

    The block covers `estimated_end_s` and costs the newest quoted price in the catalog.
    """
    block_offer = newest_block_price(catalog, cluster.offer)
    if block_offer is None or cluster.offer.block is not None:
        return []
    block_cluster = cluster.bought_by(
        replace(block_offer, region=cluster.offer.region)
    )
    if not block_cluster.ends:
        return []
    quote = quoted_block(
        catalog,
        cluster.offer,
        block_cluster.nodes,
        block_cluster.estimated_end_s,
    )
    if quote is None:
        return []
    run_bill = block_cluster.expected_bill(cluster_search.price_book)
    services_usd = run_bill.total - (run_bill.lines[0].usd or 0)
    # The machines are in the price of the block; the services are not.
    scenario_name = (
        f"{block_offer.purchase.replace('_', ' ')} of {quote.days} days"
    )
    return [
        Scenario(
            scenario_name,
            quote.usd + services_usd,
            block_cluster.with_confidence(P90_SHARE).estimated_end_s
            / SECONDS_PER_HOUR,
            (because("quoted", as_of=block_offer.as_of),),
        )
    ]
