"""Between which amounts 90 % of the bills of a plan are, and what moves them."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.cost.bill_line import (
    CENT,
    CROSS_ZONE,
    EGRESS_KIND,
    MACHINE_KIND,
    STANDING_KINDS,
    SURCHARGE_KINDS,
    egress_lines,
    sum_lines,
)
from planner.cost.calendar_month import month_factors
from planner.cost.capacity_block import BLOCK_PURCHASE
from planner.cost.traffic_change import traffic_ratios
from planner.market.offer import OWNED_PURCHASE
from planner.market.price_age import YEAR_DIGITS, age_days
from planner.market.price_change import price_ratios
from planner.market.purchase import COMMITTED_PURCHASES
from planner.numeric import BAND_END, nearest_rank
from planner.perf.reliability.spot_pool import billed_share
from planner.plan import cost as types
from planner.plan.number import plain_money
from planner.solve.capacity import minute_nodes, most_nodes
from planner.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Literal

    from planner.cost.bill import Bill
    from planner.cost.bill_line import BillLine
    from planner.cost.lifetime import Lifetime
    from planner.cost.service_price import PriceBook
    from planner.market.offer import Catalog
    from planner.perf.reliability.spot_pool import RateEnd
    from planner.solve.solution import SizedPool, Solution
    from planner.spec.model import ShutdownRule

# Lines of machines that are billed while a machine exists.
MACHINE_TIME_KINDS: Final = (MACHINE_KIND, "disk")
# Lines that are paid by the gigabyte that clients and machines send each other.
TRAFFIC_KINDS: Final = (CROSS_ZONE, "load_balancer_data", "load_balancer_unit")
# Lines that cost the same however many machines run: a stack has so many metrics of them all.
STEADY_KINDS: Final = STANDING_KINDS | {"metric"}
# Nothing changes what is paid for already, or was quoted.
SETTLED_PURCHASES: Final = (OWNED_PURCHASE, BLOCK_PURCHASE)


class _Range(Struct, frozen=True):
    """Two totals, one of them below and one above what is planned, USD."""

    low: Decimal
    high: Decimal


def cost_band(
    solution: Solution, bill: Bill, catalog: Catalog, shutdown: ShutdownRule
) -> types.CostBand | None:
    """Return the 90 % band of a bill around its total; None where nothing can move it.

    low  = total - sqrt(sum over causes of (total - low of the cause)^2), and high likewise
    Causes are independent. Of each the bill is known at its 5th and 95th percentile with
    everything else as planned.
    """
    found: list[
        tuple[
            Literal["work", "prices", "months", "traffic", "reclaims"], _Range
        ]
    ] = [("prices", _price_range(solution, bill, catalog))]
    work_range = _work_range(solution, bill, shutdown)
    if work_range is not None:
        found.append(("work", work_range))
    month_totals: list[Decimal] = []
    if bill.period == "month":
        month_totals = _month_totals(solution, bill, catalog, shutdown)
        found.append(("months", _middle_of(month_totals)))
    if solution.pools[0].role == "serve":
        found += [
            ("traffic", _traffic_range(solution, bill, catalog, shutdown)),
            ("reclaims", _reclaim_range(solution, bill, catalog)),
        ]
    causes = [
        types.CostCause(
            cause=cause, low=plain_money(ends.low), high=plain_money(ends.high)
        )
        for cause, ends in found
        if ends.low < ends.high
    ]
    if not causes:
        return None
    causes.sort(key=lambda one: (one.low - one.high, one.cause))
    below = _together(bill.total - one.low for one in causes)
    above = _together(one.high - bill.total for one in causes)
    return types.CostBand(
        low=plain_money(bill.total - below),
        high=plain_money(bill.total + above),
        causes=tuple(causes),
        dearest_month_usd=plain_money(month_totals[-1])
        if month_totals
        else None,
    )


def _together(distances: Iterator[Decimal]) -> Decimal:
    """Return the distance of all causes together; what is beyond the total adds none."""
    return Decimal(
        math.hypot(*(max(0.0, float(distance)) for distance in distances))
    ).quantize(CENT)


def _changed_total(
    bill: Bill, factor_of: Callable[[BillLine], float]
) -> Decimal:
    """Return the total when each line costs so many times as much, and what is on top with it."""
    factors = [
        (line.usd, factor_of(line))
        for line in bill.lines
        if line.usd is not None and line.kind not in SURCHARGE_KINDS
    ]
    planned_usd = sum((usd for usd, _ in factors), Decimal(0))
    if not planned_usd:
        return bill.total
    changed_usd = sum(
        (usd * Decimal(factor) for usd, factor in factors), Decimal(0)
    )
    return (bill.total * changed_usd / planned_usd).quantize(CENT)


def _price_range(solution: Solution, bill: Bill, catalog: Catalog) -> _Range:
    """Return the totals at the prices of the catalog's day, which may have moved since theirs.

    All prices are taken to move in one direction.
    """
    pools = {pool.name: pool for pool in solution.pools}
    cloud = solution.pools[0].instance.provider

    def ratios(line: BillLine) -> tuple[float, float]:
        # What has no date at all is of a contract.
        if line.purchase in SETTLED_PURCHASES or not line.as_of:
            return 1.0, 1.0
        days = age_days(line.as_of, catalog.as_of)
        if line.purchase != "spot" or line.pool not in pools:
            return price_ratios(cloud, "on_demand", days)
        return _spot_ratios(line, pools[line.pool], catalog, days)

    return _Range(
        _changed_total(bill, lambda line: ratios(line)[0]),
        _changed_total(bill, lambda line: ratios(line)[1]),
    )


def _spot_ratios(
    line: BillLine, pool: SizedPool, catalog: Catalog, days: int | None
) -> tuple[float, float]:
    """Return how far a price of spot may be from that of a line.

    It is as far as such prices move, and as far as this one was seen to move. It is never above
    the price on demand: nobody has to buy it then.
    """
    machine = pool.instance
    # A slice costs what the machines do of which it is made.
    sold_type = machine.host_type or machine.instance_type
    offers = catalog.offers_by_place.get(
        (machine.provider, sold_type, pool.region), {}
    )
    low, high = price_ratios(machine.provider, "spot", days)
    planned_usd = float(line.unit_price or 0) / machine.machines
    spot, on_demand = offers.get("spot"), offers.get("on_demand")
    if planned_usd and spot is not None:
        # Where an old price is planned at its upper end, the band is that of the price itself.
        found_share = min(1.0, float(spot.usd_hour) / planned_usd)
        low, high = low * found_share, high * found_share
    if planned_usd and spot is not None and spot.price_range is not None:
        low = min(low, float(spot.price_range.low_usd) / planned_usd)
        high = max(high, float(spot.price_range.high_usd) / planned_usd)
    if planned_usd and on_demand is not None:
        high = min(high, float(on_demand.usd_hour) / planned_usd)
    return min(1.0, low), max(1.0, high)


def _month_totals(
    solution: Solution, bill: Bill, catalog: Catalog, shutdown: ShutdownRule
) -> list[Decimal]:
    """Return the totals of the months of the calendar, against one of 730 hours, ascending."""
    nodes = tuple(
        map(
            sum,
            zip(
                *(
                    minute_nodes(
                        pool.week or solution.week, pool, shutdown.schedule
                    )
                    for pool in solution.pools
                ),
                strict=True,
            ),
        )
    )
    first_year = int(catalog.as_of[:YEAR_DIGITS])
    return sorted(
        _changed_total(bill, partial(_month_factor, factors))
        for factors in month_factors(first_year, nodes)
    )


def _middle_of(totals: list[Decimal]) -> _Range:
    """Return the 5th and the 95th percentile of ascending totals."""
    return _Range(
        nearest_rank(totals, 1 - BAND_END), nearest_rank(totals, BAND_END)
    )


def _month_factor(factors: tuple[float, float], line: BillLine) -> float:
    """Return a line of a month against one of 730 hours, of the factors of hours and node-hours.

    What stands is billed for every hour, and so is what is committed to.
    """
    hours, node_hours = factors
    stands = line.kind in STEADY_KINDS or line.purchase in COMMITTED_PURCHASES
    return hours if stands else node_hours


def _traffic_range(
    solution: Solution, bill: Bill, catalog: Catalog, shutdown: ShutdownRule
) -> _Range:
    """Return the totals at little and at much traffic, with the machines that were planned.

    What goes to and fro costs in proportion. Machines that follow the hours of the week alone
    stay as they are, and those of an elastic service come and go.
    """
    return _Range(
        *(
            _changed_total(
                bill,
                _traffic_factor(solution, bill, catalog, shutdown, ratio),
            )
            for ratio in traffic_ratios()
        )
    )


def _traffic_factor(
    solution: Solution,
    bill: Bill,
    catalog: Catalog,
    shutdown: ShutdownRule,
    ratio: float,
) -> Callable[[BillLine], float]:
    """Return what a line costs at so many times the traffic, against what was planned."""
    cloud = solution.pools[0].instance.provider
    egress = _egress_factor(bill, cloud, catalog.price_book, ratio)
    nodes = _nodes_factor(solution, shutdown, ratio)

    def factor_of(line: BillLine) -> float:
        if line.kind == EGRESS_KIND:
            return egress
        if line.kind in TRAFFIC_KINDS:
            return ratio
        stands = (
            line.kind in STEADY_KINDS or line.purchase in COMMITTED_PURCHASES
        )
        return 1.0 if stands else nodes

    return factor_of


def _reclaim_range(solution: Solution, bill: Bill, catalog: Catalog) -> _Range:
    """Return the totals of a service where a cloud takes back many machines on spot, and few.

    Nobody pays for a machine until the cloud has one again, so many cost less.
    """
    pools = {pool.name: pool for pool in solution.pools}

    def factor_of(end: RateEnd, line: BillLine) -> float:
        pool = pools.get(line.pool)
        if pool is None or line.purchase != "spot":
            return 1.0
        return _billed_factor(pool, end, catalog)

    return _Range(
        _changed_total(bill, partial(factor_of, "high")),
        _changed_total(bill, partial(factor_of, "low")),
    )


def _billed_factor(pool: SizedPool, end: RateEnd, catalog: Catalog) -> float:
    """Return the billed hours of machines on spot at one rate of reclaims, against the mean."""
    machine = pool.instance
    place = (machine.provider, machine.instance_type, pool.region)
    spot = catalog.offers_by_place.get(place, {}).get("spot")
    known = spot.reclaim_band if spot is not None else None
    billed_at = partial(
        billed_share, machine.provider, machine.family, pool.startup_s
    )
    band = (known.low_share, known.high_share) if known is not None else None
    return billed_at(end=end, band=band) / billed_at()


def _egress_factor(
    bill: Bill, cloud: str, price_book: PriceBook, ratio: float
) -> float:
    """Return what the way to the internet costs at so many times the traffic.

    Its tiers are those of the price list, so that twice the traffic may cost more than twice as
    much: the first gigabytes are free.
    """
    planned = [line for line in bill.lines if line.kind == EGRESS_KIND]
    planned_usd, unpriced = sum_lines(planned)
    if not planned_usd or unpriced:
        return ratio
    tiers = [tier for tier in price_book.find(cloud, "egress") if tier.usd]
    # Each tier that is reached has a line.
    last_from_gb = tiers[len(planned) - 1].from_gb or Decimal(0)
    sent_gb = last_from_gb + planned[-1].quantity
    changed_usd, _ = sum_lines(
        egress_lines(cloud, sent_gb * Decimal(ratio), price_book)
    )
    return float(changed_usd / planned_usd)


def _nodes_factor(
    solution: Solution, shutdown: ShutdownRule, ratio: float
) -> float:
    """Return the node-hours at so many times the traffic, against those that were planned.

    nodes = those that the load takes, between the least and the most of an elastic pool
    """
    planned = changed = 0
    for pool in solution.pools:
        wanted_at = partial(
            minute_nodes,
            pool.week or solution.week,
            pool,
            shutdown.schedule,
        )
        wanted = wanted_at(1.0)
        planned += sum(wanted)
        if pool.elastic is None:
            changed += sum(wanted)
            continue
        most = most_nodes(pool.nodes, pool.elastic.most_share)
        changed += sum(
            min(most, max(least, nodes))
            for least, nodes in zip(
                wanted_at(pool.elastic.least_share),
                wanted_at(ratio),
                strict=True,
            )
        )
    return changed / planned


def _work_range(
    solution: Solution, bill: Bill, shutdown: ShutdownRule
) -> _Range | None:
    """Return the totals of fast and slow work; None where its speed changes no bill.

    training   simulated runs with their speeds, failures and reclaims
    batch      the life of its machines, or that of each day, at the ends of the predicted time
    """
    if solution.training_run is not None:
        return _Range(*solution.training_run.usd_band)
    duration = solution.predictions.get("duration_days")
    # The time to live of a daily batch is none of its days.
    ttl_s = None if bill.day is not None else shutdown.ttl
    life = bill.day or bill.life
    if duration is not None and life is not None:
        return _Range(
            *(
                _machine_time_total(
                    bill, _billed_s(life, days, ttl_s) / life.billed_s
                )
                for days in (duration.low, duration.high)
            )
        )
    return None


def _machine_time_total(bill: Bill, factor: float) -> Decimal:
    """Return the total when machines exist for so many times the time."""
    return _changed_total(
        bill,
        lambda line: (
            factor
            if line.kind in MACHINE_TIME_KINDS
            and line.purchase not in COMMITTED_PURCHASES
            else 1.0
        ),
    )


def _billed_s(life: Lifetime, days: float, ttl_s: Decimal | None) -> float:
    """Return what a machine is billed for when boot and work take so many days, seconds.

    What a time to live or a window ends is billed until then; everything else waits as long after
    its work as planned.
    """
    if life.release in ("ttl", "window"):
        return life.billed_s
    end_s = days * SECONDS_PER_DAY + life.tail_s
    return end_s if ttl_s is None else min(end_s, float(ttl_s))
