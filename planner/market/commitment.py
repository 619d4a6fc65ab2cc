"""Commitments of an account as machines that are paid for already."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner.market.capacity import quota_purchase
from planner.market.owned import OwnedMachines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from planner.market.live import CommitmentFact, PlaceFacts, UsedAnswer
    from planner.market.offer import Catalog
    from planner.market.offer_key import OfferKey

SPOT: Final = "spot"


def free_machines(
    place: PlaceFacts, catalog: Catalog, standing: Mapping[OfferKey, int]
) -> Iterator[OwnedMachines]:
    """Yield the machines that commitments in a region pay for, and that nothing else uses.

    machines = floor((amount - used by others) / what a machine takes)
    `standing` are the machines of the stack itself, which are no others. A commitment whose use
    nobody says, or that counts in one zone alone, is left out: a plan would count on what may not
    be free. Of those that share a machine type the last one is the least used: clouds fill them
    in their order.
    """
    own = _own_machines(place, standing)
    for fact in reversed(_facts(place)):
        used = used_amount(place.commitment_use, fact)
        if used is None or fact.zone:
            continue
        own_part = {
            name: min(own.get(name, Decimal(0)) * takes, used)
            for name, takes in fact.takes.items()
        }
        for name, part in own_part.items():
            own[name] = own.get(name, Decimal(0)) - part / fact.takes[name]
        others = used - sum(own_part.values())
        free = fact.amount - max(Decimal(0), others)
        for name, takes in fact.takes.items():
            count = math.floor(free / takes)
            if count > 0:
                yield OwnedMachines(
                    cloud=place.cloud,
                    type=name,
                    region=place.region,
                    count=count,
                    usd_hour=_usd_hour(place, catalog, fact, name),
                    source=f"{fact.name} {fact.id}",
                )


def used_amount(use: UsedAnswer | None, fact: CommitmentFact) -> Decimal | None:
    """Return how much of a commitment is used in an hour; None where nobody says."""
    values = use.value if use is not None else None
    return (values or {}).get(fact.id)


def _facts(place: PlaceFacts) -> tuple[CommitmentFact, ...]:
    answer = place.commitments
    facts = answer.value if answer is not None else None
    return tuple(fact for fact in facts or () if fact.takes)


def _own_machines(
    place: PlaceFacts, standing: Mapping[OfferKey, int]
) -> dict[str, Decimal]:
    """Return the machines of the stack itself that a commitment may pay for, by type."""
    own: dict[str, Decimal] = {}
    for (cloud, region, name, purchase), count in standing.items():
        if (cloud, region) == (
            place.cloud,
            place.region,
        ) and quota_purchase(purchase) != SPOT:
            own[name] = own.get(name, Decimal(0)) + count
    return own


def _usd_hour(
    place: PlaceFacts, catalog: Catalog, fact: CommitmentFact, name: str
) -> Decimal | None:
    """Return what the commitment costs for one machine, USD an hour; None where nobody says.

    of it all = USD an hour * what a machine takes / amount
    Where its cloud does not say, it is the price of such a term today.
    """
    if fact.usd_hour is not None:
        return fact.usd_hour * fact.takes[name] / fact.amount
    key = (place.cloud, name, place.region, fact.term)
    return next(
        (offer.usd_hour for offer in catalog.offers if offer.key == key), None
    )
