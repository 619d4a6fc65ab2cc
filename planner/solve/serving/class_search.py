"""Search for two pools between which the lengths of requests decide, in one region.

Each border makes two services of one, and each of them keeps every limit, so all requests do.
The pool of each class is the cheapest of its region for its requests alone.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeAlias

from planner.solve.serving.bill import (
    BilledPool,
    bought_parts,
    pools_bill,
)
from planner.solve.serving.class_judge import ClassJudge
from planner.solve.serving.length_class import borders, length_classes
from planner.solve.serving.mixed_fleet import (
    MixedFleet,
    within_shared_quotas,
)
from planner.solve.serving.pool_kind import PoolKinds
from planner.solve.serving.spot_promise import has_promise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner.market.offer import Offer
    from planner.solve.serving.candidate import ServingCandidate
    from planner.solve.serving.length_class import LengthClass, TextBytes
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.search import ServingSearch

# The short and the long requests.
_Classes: TypeAlias = "tuple[LengthClass, LengthClass]"
POOL_NAMES: Final = {"short": "serve-short", "long": "serve-long"}


class ClassSearch:
    """Searches borders, and a pool for each side of them, for one requirement."""

    def __init__(
        self,
        requirement: ServingRequirement,
        search: ServingSearch,
        text: TextBytes,
    ) -> None:
        self._requirement = requirement
        self._search = search
        self._text = text

    def cheapest(
        self,
        best_offers: Iterable[Offer],
        offers: Iterable[Offer],
        ceiling_usd: float,
    ) -> MixedFleet | None:
        """Return the cheapest fleet of two classes that costs less than a ceiling, if any.

        `best_offers` are those of the cheapest region of each machine type, `offers` those of all
        regions. USD in the period of the bill.
        """
        cheapest_offers = self._without_promises(best_offers)
        by_region: dict[tuple[str, str], list[Offer]] = {}
        for offer in self._without_promises(offers):
            place = (offer.provider, offer.region)
            by_region.setdefault(place, []).append(offer)
        best: MixedFleet | None = None
        for border in borders(self._requirement, self._text):
            classes = length_classes(self._requirement, border)
            if classes is None:
                continue
            places = self._places(classes, cheapest_offers, ceiling_usd)
            # The sooner a fleet is found, the less is looked at in the other regions.
            for place in dict.fromkeys([*places, *by_region] if places else []):
                fleet = self._regional(classes, by_region[place], ceiling_usd)
                if fleet is None:
                    continue
                best, ceiling_usd = fleet, float(fleet.bill.total)
                # Where both are cheapest nothing can be cheaper.
                if set(places) == {place}:
                    break
        return best

    def _without_promises(self, offers: Iterable[Offer]) -> list[Offer]:
        """Return the offers on whose reclaims no promise hangs: two pools would share them."""
        return [
            offer
            for offer in offers
            if not has_promise(self._requirement, offer)
        ]

    def _places(
        self,
        classes: _Classes,
        cheapest_offers: list[Offer],
        ceiling_usd: float,
    ) -> list[tuple[str, str]]:
        """Return the cloud and region where each class is cheapest.

        Nothing where both together do not cost less than a ceiling in USD: wherever both are,
        their machines cost no less.
        """
        found = self._candidates(
            classes, (cheapest_offers, cheapest_offers), ceiling_usd
        )
        return [(each.offer.provider, each.offer.region) for each in found]

    def _regional(
        self,
        classes: _Classes,
        offers: list[Offer],
        ceiling_usd: float,
    ) -> MixedFleet | None:
        """Return the cheapest fleet of one region below a ceiling."""
        fleet = self._pair(classes, (offers, offers), ceiling_usd)
        if fleet is None or _may_stand_together(fleet):
            return fleet
        best: MixedFleet | None = None
        for other_classes, sides in _separations(classes, fleet, offers):
            other = self._pair(other_classes, sides, ceiling_usd)
            if other is not None and _may_stand_together(other):
                best, ceiling_usd = other, float(other.bill.total)
        return best

    def _pair(
        self,
        classes: _Classes,
        sides: tuple[list[Offer], list[Offer]],
        ceiling_usd: float,
    ) -> MixedFleet | None:
        """Return the cheapest pool of each class on its offers, below a ceiling in USD."""
        candidates = self._candidates(classes, sides, ceiling_usd)
        if not candidates:
            return None
        pools = [
            BilledPool(
                name=POOL_NAMES[each.length],
                requirement=each.widest,
                sizing=candidate.sizing,
                offer=candidate.bought,
            )
            for each, candidate in zip(classes, candidates, strict=True)
        ]
        # Its lines beside machines are paid once: it is less than both bills.
        bill = pools_bill(
            tuple(pools), self._search.price_book, self._requirement
        )
        if float(bill.total) >= ceiling_usd:
            return None
        return MixedFleet(
            pools=tuple(pools),
            weights=(0, 0),
            bill=bill,
            classes=tuple(each.taken for each in classes),
        )

    def _candidates(
        self,
        classes: _Classes,
        sides: tuple[list[Offer], list[Offer]],
        ceiling_usd: float,
    ) -> list[ServingCandidate]:
        """Return the cheapest fleet of each class on its offers, none if they exceed a ceiling.

        What the machines of one class cost, the other one may not: those of the long one are not
        known at first, but what they cost at least. Services and traffic cost the same or more
        beside another pool.
        """
        short, long = classes
        short_offers, long_offers = sides
        first = self._candidate(
            short,
            short_offers,
            ceiling_usd - self._least_usd(long, long_offers),
        )
        if first is None:
            return []
        second = self._candidate(
            long, long_offers, ceiling_usd - _machines_usd(first, short)
        )
        return [first, second] if second is not None else []

    def _least_usd(self, each: LengthClass, offers: list[Offer]) -> float:
        """Return what the machines of a class cost at least by formulas, USD in the period."""
        return PoolKinds(each.widest, self._search).least_usd(offers)

    def _candidate(
        self, each: LengthClass, offers: list[Offer], ceiling_usd: float
    ) -> ServingCandidate | None:
        """Return the cheapest fleet of a class below a ceiling in USD."""
        if ceiling_usd <= 0:
            return None
        return self._search.solve(
            each.widest,
            offers,
            ceiling_usd=ceiling_usd,
            tells_why=False,
            judge=ClassJudge(self._search, each),
        ).best


def _machines_usd(candidate: ServingCandidate, each: LengthClass) -> float:
    """Return what the machines of a fleet cost, USD in the period of the bill."""
    parts = bought_parts(each.widest, candidate.sizing, candidate.bought)
    return float(
        sum(
            (part.node_hours * part.tier.usd_hour for part in parts), Decimal(0)
        )
    )


def _may_stand_together(fleet: MixedFleet) -> bool:
    """Whether an account may have both pools, and a request gets the same answer from each.

    A conversation grows from one class into the other, so weights and cache have one precision.
    One commitment may be to the machines of both, and counts once.
    """
    return (
        _answers_alike(fleet)
        and within_shared_quotas(fleet.pools)
        and not all(pool.offer.owned_nodes for pool in fleet.pools)
    )


def _answers_alike(fleet: MixedFleet) -> bool:
    return len({pool.sizing.layout.precisions for pool in fleet.pools}) == 1


def _separations(
    classes: _Classes, fleet: MixedFleet, offers: list[Offer]
) -> Iterator[tuple[_Classes, tuple[list[Offer], list[Offer]]]]:
    """Yield what to search where the cheapest pools of two classes cannot stand together.

    Both take the precision of one of them, or one leaves to the other what both would take.
    """
    short, long = fleet.pools
    if not _answers_alike(fleet):
        for precision in {pool.sizing.layout.precision for pool in fleet.pools}:
            # With all formats of the cache both may still differ; with the first one they do not.
            for cache_count in (None, 1):
                yield (
                    (
                        classes[0].in_precision(precision, cache_count),
                        classes[1].in_precision(precision, cache_count),
                    ),
                    (offers, offers),
                )
        return
    # Each in turn takes what it wants, and the other one something else.
    yield classes, (offers, _without_clash(offers, short.offer))
    yield classes, (_without_clash(offers, long.offer), offers)


def _without_clash(offers: list[Offer], taken: Offer) -> list[Offer]:
    """Return the offers that no quota and no commitment counts together with another one."""
    quotas = {quota.quota for quota in taken.quotas}
    return [
        offer
        for offer in offers
        if not (offer.owned_nodes and taken.owned_nodes)
        and not quotas & {quota.quota for quota in offer.quotas}
    ]
