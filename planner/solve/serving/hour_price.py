"""What groups cost in each hour that they run, told by the bills of some fleets of them.

A bill is a sum of what is fixed, and of what grows with the hours and the starts of groups. So
the bills of three fleets, which differ in one of these, tell all prices that a search needs.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from planner.market.mix import mix_of
from planner.market.purchase import tier_offer
from planner.market.term import TERM_PURCHASES
from planner.solve.serving.bill import bought_bill
from planner.solve.serving.cloud_limit import most_nodes
from planner.solve.serving.hour_fleet import pool_week
from planner.solve.serving.hour_program import HourKind
from planner.solve.serving.replica_capacity import groups_for
from planner.solve.serving.sizing import machine_lead, sized_fleet
from planner.solve.serving.spare_groups import group_availability
from planner.solve.serving.spot_promise import least_usd_hour
from planner.units import HOURS_PER_MONTH, HOURS_PER_WEEK, MINUTES_PER_HOUR

if TYPE_CHECKING:
    from planner.cost.service_price import PriceBook
    from planner.market.offer import Offer
    from planner.solve.serving.mixed_fleet import PoolKind
    from planner.solve.serving.requirement import ServingRequirement

# Where nobody says how many machines there are.
MOST_NODES: Final = 100_000
# Kinds of one offer, nodes and precision cost the same: they have the same weights to bring.
_Alike: TypeAlias = "tuple[Offer, int, str]"


class GroupPrices(Struct, frozen=True):
    """What groups of a kind cost in hours that they run, USD in the period.

    What they carry is no matter of a price.

    kind       without what a start costs
    once_usd   bill of one group
    run_usd    a group in one hour of each week, beside what is paid in all hours
    fixed_usd  a fleet beside its groups
    """

    kind: HourKind
    once_usd: float
    run_usd: float
    fixed_usd: float


class HourPrices:
    """Prices of groups for one requirement, each asked for once."""

    def __init__(
        self, requirement: ServingRequirement, price_book: PriceBook
    ) -> None:
        # Spare groups are no matter of a price.
        self._requirement = replace(
            requirement, availability=None, survives=None
        )
        self._price_book = price_book
        self._machines_usd: dict[tuple[Offer, int], float] = {}
        self._groups: dict[_Alike, GroupPrices] = {}
        self._starting: dict[_Alike, HourKind] = {}
        week = requirement.week
        self._week_hours = float(sum(week.running_share, Decimal(0)))
        self._once = tuple(int(share > 0) for share in week.running_share)
        self._with_break = _with_break(week.running_share)

    def of_machines(self, offer: Offer, nodes: int) -> float:
        """Return what machines cost at least in an hour of each week, USD in the period.

        That is 0 where so many are owned.
        """
        key = (offer, nodes)
        if key not in self._machines_usd:
            usd_hour = least_usd_hour(self._requirement, offer)
            self._machines_usd[key] = (
                0.0
                if offer.owned_nodes >= nodes
                else self._weekly_hour_usd(nodes * usd_hour)
            )
        return self._machines_usd[key]

    def of_all_hours(self, offer: Offer, nodes: int) -> float:
        """Return what machines cost that are paid in all hours, USD in the period.

        That is 0 where they are paid in the hours that they run, or some are owned.
        """
        if offer.owned_nodes or not _is_committed(offer):
            return 0.0
        return HOURS_PER_WEEK * self.of_machines(offer, nodes)

    def of_groups(self, kind: PoolKind) -> GroupPrices:
        """Return what groups of a kind cost with all lines of a bill, but for their starts.

        price of a group = bill of 2 groups - bill of 1
        """
        alike = _alike(kind)
        if alike not in self._groups:
            once_usd = self._on_demand_usd(kind, self._once)
            # Two groups in place of one tell what an hour of a group costs.
            twice = tuple(2 * count for count in self._once)
            twice_usd = self._on_demand_usd(kind, twice)
            group_usd = twice_usd - once_usd
            priced = self._priced(kind, group_usd)
            self._groups[alike] = GroupPrices(
                kind=priced,
                once_usd=once_usd,
                run_usd=priced.other_usd
                if priced.machine_usd == math.inf
                else priced.other_usd + priced.machine_usd,
                fixed_usd=once_usd - group_usd,
            )
        return self._groups[alike]

    def with_starts(self, kind: PoolKind) -> HourKind:
        """Return what groups of a kind cost with all lines of a bill.

        price of a start = bill of 1 that is away for an hour - bill of 1 + price of an hour
        of an opening    = price of a start - lead * price of an hour
        """
        alike = _alike(kind)
        if alike not in self._starting:
            self._starting[alike] = self._find_starts(kind)
        return self._starting[alike]

    def _find_starts(self, kind: PoolKind) -> HourKind:
        prices = self.of_groups(kind)
        if self._with_break is None:
            return prices.kind
        away_usd = self._on_demand_usd(kind, self._with_break)
        start_usd = max(0.0, away_usd - prices.once_usd + prices.run_usd)
        lead_usd = self._lead_hours(kind) * prices.run_usd
        return replace(
            prices.kind,
            start_usd=start_usd,
            opening_usd=max(0.0, start_usd - lead_usd),
        )

    def _lead_hours(self, kind: PoolKind) -> float:
        """Return how long a group runs before an hour that needs it."""
        fleet = sized_fleet(self._requirement, kind.replica, kind.group, 1)
        return machine_lead(self._requirement, fleet) / MINUTES_PER_HOUR

    def _on_demand_usd(self, kind: PoolKind, groups: tuple[int, ...]) -> float:
        """Return the bill of some groups that are bought in the last way of their offer, USD."""
        requirement = replace(
            self._requirement,
            week=pool_week(self._requirement.week, groups),
            own_week=self._requirement.week,
        )
        bill = bought_bill(
            requirement,
            sized_fleet(requirement, kind.replica, kind.group, max(groups)),
            tier_offer(kind.offer, mix_of(kind.offer).tiers[-1]),
            self._price_book,
        )
        return float(bill.total)

    def _priced(self, kind: PoolKind, group_usd: float) -> HourKind:
        """Return what a group costs, by its price where nothing is owned or committed to."""
        nodes, tiers = kind.group.nodes, mix_of(kind.offer).tiers
        always_usd = min(
            (
                HOURS_PER_WEEK
                * self._weekly_hour_usd(nodes * float(tier.usd_hour))
                for tier in tiers
                if tier.purchase in TERM_PURCHASES
            ),
            default=math.inf,
        )
        run_usd = group_usd / self._week_hours
        if _is_committed(kind.offer):
            machine_usd = math.inf
            other_usd = (group_usd - always_usd) / self._week_hours
        else:
            # Bought in one way, all that an hour costs is paid in that hour.
            machine_usd = run_usd
            if len(tiers) > 1:
                machine_usd = self._weekly_hour_usd(
                    nodes * float(tiers[-1].usd_hour)
                )
            other_usd = run_usd - machine_usd
        limit = most_nodes(self._requirement, kind.offer, kind.group)
        most_groups = int(min(limit, MOST_NODES)) // nodes
        return HourKind(
            group_rps={},
            up_share=group_availability(nodes),
            most_groups=most_groups,
            machine_usd=machine_usd,
            other_usd=other_usd,
            owned_groups=kind.offer.owned_nodes // nodes,
            always_usd=always_usd,
            most_always=most_groups if always_usd < math.inf else 0,
        )

    def _weekly_hour_usd(self, usd_hour: float) -> float:
        """Return what machines cost for one hour of each week, USD in the period."""
        factor = float(self._price_book.surcharges.factor)
        return usd_hour * float(HOURS_PER_MONTH) * factor / HOURS_PER_WEEK


def beside_spares(
    requirement: ServingRequirement, priced: HourKind, kind: PoolKind
) -> HourKind:
    """Return a kind with those of its owned groups that spares leave to the load.

    What is owned is used first, and spares take of it in all hours. Their number is that of a pool
    that is alone, with as many groups as the peak takes. Spares that availability alone asks for
    stand in hours of much load only: in others, owned groups are then counted as rented ones.
    """
    if not priced.owned_groups:
        return priced
    peak_rps = requirement.load.rate_per_s
    peak_groups = int(groups_for(peak_rps, priced.group_rps[peak_rps]))
    fleet = sized_fleet(requirement, kind.replica, kind.group, peak_groups)
    return replace(
        priced,
        owned_groups=max(0, priced.owned_groups - fleet.spares.count),
    )


def _alike(kind: PoolKind) -> _Alike:
    return kind.offer, kind.group.nodes, kind.replica.layout.precision


def _is_committed(offer: Offer) -> bool:
    """Return whether all machines that an offer rents are committed to."""
    return mix_of(offer).tiers[-1].purchase in TERM_PURCHASES


def _with_break(running_share: tuple[Decimal, ...]) -> tuple[int, ...] | None:
    """Return a group that is away for an hour of the week; None where no hour has two beside it.

    It runs in all other hours that are open, also in those before and after.
    """
    for number in range(HOURS_PER_WEEK):
        near = (number - 1, number, (number + 1) % HOURS_PER_WEEK)
        if all(running_share[hour] == 1 for hour in near):
            return tuple(
                int(share > 0 and hour != number)
                for hour, share in enumerate(running_share)
            )
    return None
