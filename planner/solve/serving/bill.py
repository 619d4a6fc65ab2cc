"""Bill of a serving fleet or a batch: machines first, then all other lines."""

from __future__ import annotations

from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from planner.cost.bill import Bill, sum_bill
from planner.cost.bill_line import (
    Usage,
    cache_disk_gb,
    service_lines,
)
from planner.cost.lifetime import (
    committed_hours,
    daily_hours,
    daily_window_s,
    job_lifetime,
    life_hours,
    standing_hours,
    standing_lifetime,
)
from planner.cost.weekly_load import weekly_starts
from planner.facts.cloud import way_out
from planner.market.mix import mix_of, settled_mix
from planner.market.offer import PurchaseMix
from planner.market.purchase import (
    COMMITTED_PURCHASES,
    machine_line,
    tier_offer,
)
from planner.perf.reliability.spot_pool import billed_share
from planner.solve.serving.committed_quota import most_committed_groups
from planner.solve.serving.service_usage import (
    answers_gb,
    beside_usage,
    checkpoint_gb,
    monthly_requests,
    prompts_gb,
)
from planner.solve.serving.sizing import (
    machine_lead,
    run_window_s,
    startup_time_s,
)
from planner.solve.serving.spot_promise import SpotPromise, has_promise
from planner.units import (
    HOURS_PER_MONTH,
    HOURS_PER_WEEK,
    SECONDS_PER_HOUR,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from planner.cost.bill_line import BillLine
    from planner.cost.lifetime import Lifetime
    from planner.cost.service_price import PriceBook
    from planner.cost.weekly_load import Week
    from planner.market.offer import Offer, PurchaseTier
    from planner.perf.reliability.spot_pool import RateEnd
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing
    from planner.spec.model import ShutdownRule


def fleet_lifetime(
    requirement: ServingRequirement, sizing: FleetSizing
) -> Lifetime | None:
    """Return what each machine is billed for, None when the bill is that of a month.

    A batch that runs once lives from its boot until every line of its input has an answer, or
    until an idle limit or the time to live ends it before. Everything else stands for its time
    to live.
    """
    if requirement.mode == "batch" and not requirement.runs_daily:
        return _run_lifetime(sizing, requirement.shutdown)
    return standing_lifetime(requirement.shutdown)


def _run_lifetime(
    sizing: FleetSizing,
    shutdown: ShutdownRule,
    window_s: float | None = None,
) -> Lifetime | None:
    """Return the life of the machines of one batch run.

    With a window it is a run of every day, which never knows that its input is complete.
    """
    boot_s = startup_time_s(sizing.replica)
    return job_lifetime(
        boot_s,
        sizing.duration_hours * SECONDS_PER_HOUR - boot_s,
        shutdown,
        says_done=window_s is None,
        window_s=window_s,
    )


def _hourly_nodes(
    requirement: ServingRequirement, sizing: FleetSizing
) -> tuple[int, ...]:
    """Return the nodes of each hour of the week."""
    return requirement.week.hourly_nodes(
        sizing.peak_groups, sizing.nodes_per_group, sizing.spares
    )


def _machine_week(requirement: ServingRequirement, sizing: FleetSizing) -> Week:
    """Return the week in which machines are started before the hours that need them."""
    return requirement.week.with_lead(machine_lead(requirement, sizing))


def _level_hours(
    requirement: ServingRequirement, sizing: FleetSizing
) -> Mapping[int, Decimal]:
    """Return the hours in the period of the bill in which at least so many groups run."""
    if requirement.shutdown.ttl is None:
        return _machine_week(requirement, sizing).level_hours(
            sizing.peak_groups, sizing.spares
        )
    hourly_groups = [
        nodes // sizing.nodes_per_group
        for nodes in _hourly_nodes(requirement, sizing)
    ]
    return {
        level: standing_hours(
            tuple(map(level.__le__, hourly_groups)),
            requirement.shutdown,
            machine_lead(requirement, sizing),
        )
        for level in set(hourly_groups)
        if level
    }


class BoughtPart(Struct, frozen=True):
    """The machines of a fleet that are bought in one way, and their hours in the period."""

    tier: PurchaseTier
    nodes: int
    node_hours: Decimal


def bought_parts(
    requirement: ServingRequirement, sizing: FleetSizing, offer: Offer
) -> Iterator[BoughtPart]:
    """Yield the parts of a fleet by how they are bought, with the node-hours that are paid.

    commitment:  nodes * 730, or all hours of a longer life, whether they run or not
    batch:       nodes * billed hours of the run: boot, work, and the tail until the release
    daily batch: the same for each day of a month, or of the time to live
    serving:     node-hours that follow the weekly load, with starts and spare groups
    spot:        those of serving, without the hours until a cloud brings back what it took, in the
                 mean of a long time
    """
    mix = mix_of(offer)
    for tier, (start, end) in zip(
        mix.tiers,
        mix.spans(sizing.nodes, sizing.nodes_per_group),
        strict=True,
    ):
        if end == start:
            continue
        if tier.purchase in COMMITTED_PURCHASES:
            life = fleet_lifetime(requirement, sizing)
            node_hours = committed_hours(life) * (end - start)
        elif requirement.mode == "batch":
            # What a batch on spot loses is done later: the hours of its work are the same.
            life = fleet_lifetime(requirement, sizing)
            machine_hours = _batch_hours(requirement, sizing, life)
            node_hours = machine_hours * (end - start)
        else:
            node_hours = span_hours(requirement, sizing, (start, end))
            if tier.purchase == "spot":
                node_hours *= _spot_share(sizing, offer)
        yield BoughtPart(tier, end - start, node_hours)


def _spot_share(sizing: FleetSizing, offer: Offer) -> Decimal:
    """Return for which share of the hours in which it should run a spot machine is billed."""
    return Decimal(
        billed_share(
            offer.provider,
            offer.instance.family,
            startup_time_s(sizing.replica),
        )
    )


def span_hours(
    requirement: ServingRequirement,
    sizing: FleetSizing,
    span: tuple[int, int],
    load_share: float = 1.0,
) -> Decimal:
    """Return the node-hours in which the machines of a span run, at a share of the planned load.

    The machines are numbered: a span is from one and below another.
    """
    peak_groups = sizing.peak_groups * load_share
    if requirement.shutdown.ttl is None:
        return _machine_week(requirement, sizing).node_hours(
            peak_groups, sizing.nodes_per_group, sizing.spares, span
        )
    start, end = span
    hourly_nodes = requirement.week.hourly_nodes(
        peak_groups, sizing.nodes_per_group, sizing.spares
    )
    return standing_hours(
        tuple(max(0, min(nodes, end) - start) for nodes in hourly_nodes),
        requirement.shutdown,
        machine_lead(requirement, sizing),
    )


def settled_fleet(
    requirement: ServingRequirement,
    sizing: FleetSizing,
    offer: Offer,
    price_book: PriceBook,
    reclaims: RateEnd = "high",
) -> tuple[FleetSizing, Offer]:
    """Return a fleet with the spare groups that a promise needs, and its offer as it is bought.

    Only machines on spot change anything beside commitments: of the fleets that keep the promise
    of availability it is the cheapest. With more spare groups fewer machines have to stay.
    """
    if not has_promise(requirement, offer):
        return sizing, settled_offer(requirement, sizing, offer)
    promise = SpotPromise(requirement, sizing, offer, reclaims)
    # A fleet that cannot keep it is not offered: see `cloud_limit.obtainable`.
    best, best_offer = sizing, offer
    best_usd: Decimal | None = None
    least_machines_usd = Decimal("Infinity")
    for fleet, above_base in promise.fleets():
        bought = settled_offer(requirement, fleet, above_base)
        machines_usd = sum(
            (
                part.node_hours * part.tier.usd_hour
                for part in bought_parts(requirement, fleet, bought)
            ),
            Decimal(0),
        )
        # Of other lines more machines have more.
        if machines_usd >= least_machines_usd:
            continue
        least_machines_usd = machines_usd
        usd = bought_bill(requirement, fleet, bought, price_book).total
        if best_usd is None or usd < best_usd:
            best, best_offer, best_usd = fleet, bought, usd
    return best, best_offer


def settled_offer(
    requirement: ServingRequirement, sizing: FleetSizing, offer: Offer
) -> Offer:
    """Return an offer whose commitment is for as many groups as cost the least.

    Only that depends on the hours; every other offer is as it was. Tiers that have no machine are
    left out, and machines of one tier alone are bought in one way.
    """
    if offer.mix is None:
        return offer
    mix = offer.mix
    if not mix.is_settled:
        mix = settled_mix(
            mix,
            _level_hours(requirement, sizing),
            committed_hours(fleet_lifetime(requirement, sizing)),
            sizing.nodes_per_group,
            most_groups=most_committed_groups(requirement, sizing, offer),
        )
    spans = mix.spans(sizing.nodes, sizing.nodes_per_group)
    tiers = tuple(
        tier
        for tier, (start, end) in zip(mix.tiers, spans, strict=True)
        if end > start
    )
    # How many are owned is no matter of a price.
    if len(tiers) == 1 and tiers[0].owned is None:
        return tier_offer(offer, tiers[0])
    return replace(offer, mix=PurchaseMix(tiers))


def _batch_hours(
    requirement: ServingRequirement, sizing: FleetSizing, life: Lifetime | None
) -> Decimal:
    """Hours that one machine of a batch is paid for."""
    daily_life = _daily_lifetime(requirement, sizing)
    if daily_life is not None:
        return daily_hours(daily_life, requirement.shutdown)
    return max(life_hours(life), Decimal(sizing.duration_hours))


def _daily_lifetime(
    requirement: ServingRequirement, sizing: FleetSizing
) -> Lifetime | None:
    """Return what each machine of a daily batch is billed for every day; None for what is none."""
    if not requirement.runs_daily:
        return None
    return _run_lifetime(
        sizing,
        # The time to live counts from apply, not from each day.
        replace(requirement.shutdown, ttl=None),
        daily_window_s(run_window_s(requirement, sizing)),
    )


def _scheduled_starts(
    requirement: ServingRequirement, sizing: FleetSizing
) -> Decimal:
    """Return the starts of machines in a month that the hours of the week cause."""
    if requirement.mode == "batch":
        return Decimal(0)
    return (
        weekly_starts(_hourly_nodes(requirement, sizing))
        * HOURS_PER_MONTH
        / HOURS_PER_WEEK
    )


def _nat_gateways(requirement: ServingRequirement, offer: Offer) -> int:
    """Return how many NAT gateways there are: one, or one in each zone where a zone may fail."""
    if requirement.survives != "zone" or way_out(offer.provider) != "zone":
        return 1
    return offer.zone_count(together=False)


def _public_addresses(requirement: ServingRequirement, offer: Offer) -> int:
    """Return how many addresses of a balancer face the internet: one, or one in each zone."""
    if not requirement.is_public:
        return 0
    if way_out(offer.provider) != "zone":
        return 1
    return offer.zone_count(together=False)


def _all_requests(
    pools: tuple[BilledPool, ...], whole: ServingRequirement | None
) -> Decimal:
    """Return how many requests all pools answer in a month."""
    # Pools that may get the same requests count them twice.
    if whole is not None:
        return whole.requests_per_month
    return sum(
        (
            monthly_requests(pool.requirement, pool.sizing)
            for pool in pools
            # Each request goes to both parts, and its answer comes from one.
            if pool.requirement.part != "prompts"
        ),
        Decimal(0),
    )


def serving_bill(
    requirement: ServingRequirement,
    sizing: FleetSizing,
    offer: Offer,
    price_book: PriceBook,
) -> Bill:
    """Return the bill of a fleet bought in the cheapest way that an offer has."""
    sizing, offer = settled_fleet(requirement, sizing, offer, price_book)
    return bought_bill(requirement, sizing, offer, price_book)


class BilledPool(Struct, frozen=True, kw_only=True):
    """Machines of one type, as they are bought, and what they have to carry."""

    name: str
    requirement: ServingRequirement
    sizing: FleetSizing
    offer: Offer


class _PaidPool(Struct, frozen=True):
    """A pool with the hours of its machines in the period, and the lines of them."""

    pool: BilledPool
    node_hours: Decimal
    lines: tuple[BillLine, ...]

    @property
    def spot_hours(self) -> Decimal:
        """Its node-hours that are bought on spot."""
        return sum(
            (line.quantity for line in self.lines if line.purchase == "spot"),
            Decimal(0),
        )


def _paid_pool(pool: BilledPool) -> _PaidPool:
    """Return what is paid for the machines of a pool; those of the first tiers serve first."""
    offer = pool.offer
    parts = tuple(bought_parts(pool.requirement, pool.sizing, offer))
    node_hours = sum((part.node_hours for part in parts), Decimal(0))
    if offer.mix is None:
        line = machine_line(
            offer, pool.sizing.nodes, node_hours, pool=pool.name
        )
        return _PaidPool(pool, node_hours, (line,))
    return _PaidPool(
        pool,
        node_hours,
        tuple(
            machine_line(
                tier_offer(offer, part.tier),
                part.nodes,
                part.node_hours,
                pool=pool.name,
            )
            for part in parts
        ),
    )


def bought_bill(
    requirement: ServingRequirement,
    sizing: FleetSizing,
    offer: Offer,
    price_book: PriceBook,
) -> Bill:
    """Return the bill of a fleet whose offer is settled, of a month or of its life."""
    pool = BilledPool(
        name=requirement.role,
        requirement=requirement,
        sizing=sizing,
        offer=offer,
    )
    return pools_bill((pool,), price_book)


def pools_bill(
    pools: tuple[BilledPool, ...],
    price_book: PriceBook,
    whole: ServingRequirement | None = None,
) -> Bill:
    """Return the bill of the pools of one stack; what is not of machines is paid once.

    All pools live equally long. The first one stands for what they have in common. `whole` has
    the requests where the pools are planned for more of them than there are.
    """
    requirement, sizing = pools[0].requirement, pools[0].sizing
    paid = tuple(map(_paid_pool, pools))
    bill = sum_bill(
        [
            *chain.from_iterable(pool.lines for pool in paid),
            *service_lines(_usage(paid, price_book, whole), price_book),
        ],
        sum(
            (
                pool.offer.fleet_usd_hour(
                    pool.sizing.nodes, pool.sizing.nodes_per_group
                )
                for pool in pools
            ),
            Decimal(0),
        ),
        requirement.period,
        fleet_lifetime(requirement, sizing),
        surcharges=price_book.surcharges,
    )
    return replace(bill, day=_daily_lifetime(requirement, sizing))


def _usage(
    paid: tuple[_PaidPool, ...],
    price_book: PriceBook,
    whole: ServingRequirement | None,
) -> Usage:
    """Return what pools use besides their machines.

    Services beside the first one add their weights and their traffic.
    Traffic and storage of a life are those of a month * its hours / 730.
    """
    pools = tuple(each.pool for each in paid)
    requirement, offer = whole or pools[0].requirement, pools[0].offer
    hours = life_hours(fleet_lifetime(requirement, pools[0].sizing))
    months = hours / HOURS_PER_MONTH
    weights_gb = max(
        checkpoint_gb(pool.requirement, pool.sizing) for pool in pools
    )
    beside = beside_usage(pools[0].sizing.beside, price_book)
    # Weights that the account has already are paid for without the stack.
    stored_gb = beside.stored_gb + (
        weights_gb if requirement.weights == "bucket" else Decimal(0)
    )
    fetched_gb = beside.fetched_gb + (
        weights_gb if requirement.weights == "hub" else Decimal(0)
    )
    weights_gb += beside.weights_gb
    requests = _all_requests(pools, whole)
    sent_gb = beside.sent_gb + answers_gb(requirement, requests, price_book)
    received_gb = beside.received_gb + prompts_gb(
        requirement, requests, price_book
    )
    zones = max(
        pool.offer.zone_count(together=pool.sizing.nodes_per_group > 1)
        for pool in pools
    )
    nodes = sum(pool.sizing.nodes for pool in pools)
    # With random routing over equal machines the balancer alone spreads requests.
    is_routed = requirement.load.routing != "random" or len(pools) > 1
    # A batch run has no load balancer and no internet traffic.
    serves_traffic = requirement.mode != "batch"
    return Usage(
        provider=offer.provider,
        node_hours=sum((pool.node_hours for pool in paid), Decimal(0)),
        cache_gb=_cache_gb(paid, weights_gb),
        stored_gb_months=stored_gb * months,
        scheduled_starts=sum(
            (
                _scheduled_starts(pool.requirement, pool.sizing)
                for pool in pools
            ),
            Decimal(0),
        )
        * months,
        fetched_gb=fetched_gb,
        sent_gb=sent_gb * months if serves_traffic else Decimal(0),
        received_gb=received_gb * months if serves_traffic else Decimal(0),
        serves_traffic=serves_traffic,
        has_own_network=requirement.has_own_network,
        has_machine_addresses=requirement.has_addresses,
        spot_hours=sum((pool.spot_hours for pool in paid), Decimal(0)),
        nat_gateways=_nat_gateways(requirement, offer),
        public_addresses=_public_addresses(requirement, offer),
        endpoint_needs=requirement.endpoint_needs,
        zones=zones,
        proxied_zones=min(zones, nodes) if is_routed else 1,
        network_hours=hours,
    )


def _cache_gb(paid: tuple[_PaidPool, ...], weights_gb: Decimal) -> Decimal:
    """Return the disk for weights of a node, GB: the mean over the node-hours of all pools."""
    sizes = [
        cache_disk_gb(each.pool.offer.instance.nvme_gb, weights_gb)
        for each in paid
    ]
    if len(set(sizes)) == 1:
        return sizes[0]
    weighted = sum(
        (
            size * pool.node_hours
            for size, pool in zip(sizes, paid, strict=True)
        ),
        Decimal(0),
    )
    return weighted / sum((pool.node_hours for pool in paid), Decimal(0))
