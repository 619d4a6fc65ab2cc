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
    cluster: Cluster, market: Market, catalog: Catalog, search: TrainSearch
) -> tuple[Way, ...]:
    """The chosen way first, then others with what each costs and when it ends."""
    found = [_bought(cluster, search)]
    found += [
        _bought(replace(cluster, offer=offer, spares=0).spared(), search)
        for offer in market.best("buy")
        if offer.purchase != cluster.offer.purchase and _same(offer, cluster)
    ]
    mixed = _mixed(cluster, market, search)
    found += (
        [] if mixed is None else [_way("half spot", mixed, search, ELASTIC)]
    )
    found += _blocks(cluster, catalog, search)
    for name, joined in ((APART, cluster.apart()), (PLAIN, cluster.without())):
        found += [] if joined is None else [_way(name, joined, search)]
    return tuple(found)


def _bought(cluster: Cluster, search: TrainSearch) -> Way:
    purchase = cluster.offer.purchase
    return _way(
        purchase,
        cluster,
        search,
        _reclaimed(cluster) if purchase == "spot" else "",
    )


def _way(
    name: str, cluster: Cluster, search: TrainSearch, remark: str = ""
) -> Way:
    if cluster.expected > MANY * search.need.limit:
        return Way(name, None, None, "never in time")
    return Way(
        name,
        cluster.bill(search.book).usd_month,
        cluster.at(SURE).ends / HOUR,
        remark,
    )


def _reclaimed(cluster: Cluster) -> str:
    """When a run on spot ends at the least and at the most reclaims that are published."""
    sure = cluster.at(SURE)
    least, most = (
        replace(sure, rates="low").ends,
        replace(sure, rates="high").ends,
    )
    if most > MANY * least:
        return "never ends at the highest published reclaim rate"
    unit, name = (HOUR, "h") if least < SHORT else (DAY, "days")
    ends = [f"{x / unit:,.1f}" for x in (least, most)]
    return (
        ""
        if ends[0] == ends[1]
        else f"{' to '.join(ends)} {name} at published reclaim rates"
    )


def _same(offer: Offer, cluster: Cluster) -> bool:
    kind = cluster.offer.instance
    return (offer.provider, offer.instance.instance_type) == (
        kind.provider,
        kind.instance_type,
    )


def _mixed(
    cluster: Cluster, market: Market, search: TrainSearch
) -> Mixed | None:
    """Half of the machines on demand, the others on spot, in the region where that is cheapest.

    An InfiniBand fabric of Azure is that of one scale set, and so of one priority.
    """
    kind, base = cluster.offer.instance, cluster.nodes // HALF
    if not base or (kind.provider == "azure" and kind.fabric == "infiniband"):
        return None
    part = search.cluster(cluster.offer, base)
    if part is None:
        return None
    sold = {
        (o.region, o.purchase): o
        for group in market.kinds
        for o in group
        if _same(o, cluster) and market.breaks(o) <= {"buy"}
    }
    pairs = [
        (o, sold[region, "on_demand"])
        for (region, purchase), o in sold.items()
        if purchase == "spot" and (region, "on_demand") in sold
    ]
    if not pairs:
        return None
    spot, fixed = min(
        pairs, key=lambda p: (p[0].usd_hour + p[1].usd_hour, p[0].region)
    )
    return Mixed(
        cluster.need,
        spot,
        cluster.nodes,
        cluster.laid,
        store=cluster.store,
        fixed=fixed,
        base=base,
        meanwhile=cluster.laid.step.total / part.laid.step.total,
    )


def _blocks(
    cluster: Cluster, catalog: Catalog, search: TrainSearch
) -> list[Way]:
    """A block of days that holds the run with the wished confidence, at its newest price."""
    known = [
        o
        for o in catalog.unlisted
        if o.purchase in BLOCKS and _same(o, cluster)
    ]
    if not known:
        return []
    newest = max(known, key=lambda o: (o.as_of, -o.usd_hour, o.region))
    steady = replace(
        cluster, offer=replace(newest, region=cluster.offer.region), spares=0
    )
    length = block.days(
        newest.purchase, newest.provider, steady.nodes, steady.ends
    )
    if length is None:
        return []
    bill = steady.bill(search.book)
    paid: Decimal = (
        newest.usd_hour * steady.nodes * length * block.HOURS
    ).quantize(CENT)
    rest = bill.usd_month - (bill.lines[0].usd_month or 0)
    name = f"{newest.purchase.replace('_', ' ')} of {length} days"
    return [
        Way(
            name,
            paid + rest,
            steady.at(SURE).ends / HOUR,
            QUOTED.format(as_of=newest.as_of),
        )
    ]
