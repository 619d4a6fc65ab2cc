"""A second way to buy a fleet: every number of machines in every way, hour by hour of a week.

Shares the performance model and the judge with the product, as `brute` does. Machines of an hour,
levels, mixes and lines are counted here by themselves.
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from itertools import starmap
from typing import TYPE_CHECKING, Final

from planner.solve.serving.sizing import ReplicaGroup, sized_fleet
from planner.solve.serving.verify import FleetJudge
from tests.oracles.brute import (
    SPANS,
    line_usd,
    replicas,
    running_nodes,
    standing,
)
from tests.oracles.standing import WEEK_MINUTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from planner.market.offer import Offer, QuotaNodes
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing

MONTH_H: Final = Decimal(730)
PEAK: Final = 1.0


def least_usd(
    need: ServingRequirement,
    places: Iterable[Mapping[str, Offer]],
    terms: Iterable[str],
    owned: Mapping[tuple[str, str, str], int],
    ceiling: Decimal,
    reserved: Mapping[tuple[str, str, str], int] | None = None,
    *,
    is_on_demand: bool = True,
) -> Decimal | None:
    """The least that machines cost in a month, as the lines of a bill are rounded.

    Each of the `places` has what is sold of a machine type in a region, by the way to buy; on
    demand always. `is_on_demand` says whether machines above a commitment may be bought so.
    `owned` is by cloud, type and region, and so is what is `reserved`: where it is given, all are
    taken from one of them, which no quota counts. None when nothing passes for `ceiling` dollars.
    """
    judge = FleetJudge()
    costs = [
        cost
        for place in places
        if reserved is None or place["on_demand"].key[:3] in reserved
        for span in _spans(place["on_demand"])
        for replica in replicas(need, place["on_demand"], span)
        if (
            cost := _first_that_passes(
                need,
                fleets=(
                    sized_fleet(
                        need,
                        replica,
                        ReplicaGroup(
                            span,
                            replica.node.accelerator_count
                            // replica.layout.accelerators
                            or 1,
                        ),
                        groups,
                    )
                    for groups in range(1, 10_000)
                ),
                buyer=_Buyer(
                    need,
                    place["on_demand"],
                    [place[term].usd_hour for term in terms if term in place],
                    owned.get(place["on_demand"].key[:3], 0),
                    None
                    if reserved is None
                    else reserved[place["on_demand"].key[:3]],
                    is_on_demand=is_on_demand,
                ),
                judge=judge,
                ceiling=ceiling,
            )
        )
        is not None
    ]
    return min(costs, default=None)


def _spans(offer: Offer) -> tuple[int, ...]:
    return SPANS if offer.instance.fabric != "none" else (1,)


def _first_that_passes(
    need: ServingRequirement,
    *,
    fleets: Iterator[FleetSizing],
    buyer: _Buyer,
    judge: FleetJudge,
    ceiling: Decimal,
) -> Decimal | None:
    """What the first fleet costs that keeps the limits; more machines cost no less."""
    for fleet in fleets:
        least = _ByLoad(fleet, judge, need if buyer.counts_hours else None)
        # At least one group runs in other hours than those of the peak.
        cost = buyer.usd(fleet, least.bound)
        if cost is None or cost > ceiling:
            return None
        if judge.missed_limit(need, fleet) is None:
            cost = buyer.usd(fleet, least.nodes)
            return None if cost is None or cost > ceiling else cost
    return None


class _ByLoad:
    """The machines of a fleet in hours of a load: the fewest that keep the limits, counted up.

    Without `need` they are a share of those of the peak.
    """

    def __init__(
        self,
        fleet: FleetSizing,
        judge: FleetJudge,
        need: ServingRequirement | None,
    ) -> None:
        self._fleet = fleet
        self._judge = judge
        self._need = need
        self._known: dict[float, int] = {}

    def bound(self, load: float) -> int:
        if self._need is None or load == PEAK:
            return running_nodes(self._fleet, load)
        return self._with_spares(1)

    def nodes(self, load: float) -> int:
        if self._need is None or load == PEAK:
            return running_nodes(self._fleet, load)
        if load not in self._known:
            self._known[load] = self._fewest(self._need.with_scaled_load(load))
        return self._known[load]

    def _fewest(self, hour: ServingRequirement) -> int:
        fleet = self._fleet
        for groups in range(1, fleet.peak_groups):
            fewer = sized_fleet(hour, fleet.replica, fleet.group, groups)
            if self._judge.missed_limit(hour, fewer) is None:
                return self._with_spares(groups)
        return fleet.nodes

    def _with_spares(self, groups: int) -> int:
        """What may fail is spare in all hours."""
        fleet = self._fleet
        return (groups + fleet.spares.count) * fleet.nodes_per_group


class _Buyer:
    """Buys the machines of fleets in a place in the cheapest way that its quotas leave."""

    def __init__(
        self,
        need: ServingRequirement,
        on_demand: Offer,
        term_prices: list[Decimal],
        owned: int,
        reserved: int | None,
        *,
        is_on_demand: bool,
    ) -> None:
        self._need = need
        self._on_demand = on_demand
        self._term_prices = term_prices
        self._owned = owned
        self._reserved = reserved
        self._is_on_demand = is_on_demand
        # An account has what is reserved for it already.
        self._quotas = on_demand.quotas if reserved is None else ()

    @property
    def counts_hours(self) -> bool:
        """Whether each hour has the machines that it takes.

        Not where a quota has less left by the load, or where the service is closed at its peak.
        """
        week = self._need.week
        return all(quota.load == PEAK for quota in self._quotas) and any(
            share and load == PEAK
            for load, share in zip(
                week.relative_load, week.running_share, strict=True
            )
        )

    def usd(
        self, fleet: FleetSizing, nodes_at: Callable[[float], int]
    ) -> Decimal | None:
        """The cheapest of all numbers of committed machines; None where there are none to have."""
        if self._reserved is not None and fleet.nodes > self._reserved:
            return None
        minutes = Counter(standing(self._need, fleet, nodes_at))
        owned = min(self._owned, fleet.nodes)
        above = fleet.nodes - owned
        ways = [
            self._cost(minutes, owned, committed, usd_hour)
            for usd_hour in self._term_prices or [Decimal(0)]
            for committed in range(above + 1 if self._term_prices else 1)
            if (self._is_on_demand or committed == above)
            and self._is_within_quotas(fleet, owned, committed)
        ]
        # The exact cost decides, and the rounded one is paid.
        return min(ways)[1] if ways else None

    def _cost(
        self,
        minutes: Counter[int],
        owned: int,
        committed: int,
        committed_usd: Decimal,
    ) -> tuple[Decimal, Decimal]:
        """What committed machines cost, and those above them, exactly and as two lines."""
        base = owned + committed
        above_h = (
            sum(
                max(0, nodes - base) * count for nodes, count in minutes.items()
            )
            * MONTH_H
            / WEEK_MINUTES
        )
        lines = [
            (committed * MONTH_H, committed_usd),
            (above_h, self._on_demand.usd_hour),
        ]
        exact = sum((hours * usd for hours, usd in lines), Decimal(0))
        return exact, sum(starmap(line_usd, lines), Decimal(0))

    def _is_within_quotas(
        self, fleet: FleetSizing, owned: int, committed: int
    ) -> bool:
        """Whether the account may have the machines: committed ones stand also in calm hours."""
        return all(
            _counted(fleet, quota, owned, committed) <= quota.nodes
            for quota in self._quotas
        )


def _counted(
    fleet: FleetSizing, quota: QuotaNodes, owned: int, committed: int
) -> int:
    if quota.load == PEAK:
        return fleet.nodes
    running = running_nodes(fleet, quota.load)
    return min(running, owned) + committed + max(0, running - owned - committed)
