"""What may be bought instead, where a cloud does not have the cheapest fleet. Pure."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from planner.facts.cloud import clouds
from planner.market.offer import RESERVED_PURCHASE
from planner.workload.solver import find

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from decimal import Decimal

    from planner.market.offer import Offer
    from planner.solve.settings import SolveSettings
    from planner.solve.solution import FallbackKind, Solution
    from planner.spec.model import Spec


class FallbackFleet(Struct, frozen=True):
    """A fleet that meets the spec as the cheapest one does, and what is other about it.

    `chance` is how likely its machines on spot are to be had, None where nobody says.
    """

    kind: FallbackKind
    solution: Solution
    chance: float | None = None


def find_fallbacks(
    spec: Spec, settings: SolveSettings, solution: Solution
) -> tuple[FallbackFleet, ...]:
    """Return what may be bought instead of a solution, in the order in which it is tried.

    First come the other zones, where the same fleet costs the same. Then comes the cheapest fleet
    of another machine type in the same region, in another region, by another purchase option, and
    of another cloud. Each costs at most `1 + buy.fallback` times as much; without `buy.fallback`
    there are the other zones alone.
    """
    if solution.bill is None:
        return ()
    fallbacks = [
        FallbackFleet("zone", moved) for moved in _in_other_zones(solution)
    ]
    if spec.buy.fallback is None:
        return tuple(fallbacks)
    most_usd = solution.bill.total * (1 + spec.buy.fallback)
    rules = _offer_rules(solution)
    found_solutions = settings.run_all(
        [
            partial(cheapest_among, spec, settings, is_allowed)
            for is_allowed in rules.values()
        ]
    )
    fallbacks += [
        FallbackFleet(kind, found)
        for kind, found in zip(rules, found_solutions, strict=True)
        if found is not None and _costs_at_most(found, most_usd)
    ]
    return tuple(fallbacks)


def _in_other_zones(solution: Solution) -> Iterator[Solution]:
    """Yield the same fleet with each of its other zones first."""
    zone_count = max(len(pool.zones) for pool in solution.pools)
    for first in range(1, zone_count):
        yield replace(
            solution,
            pools=tuple(
                replace(pool, zones=pool.zones[first:] + pool.zones[:first])
                for pool in solution.pools
            ),
        )


def _offer_rules(
    solution: Solution,
) -> dict[FallbackKind, Callable[[Offer], bool]]:
    """Return which offers each kind of fallback may use."""
    places = {(pool.instance.provider, pool.region) for pool in solution.pools}
    types = {
        (pool.instance.provider, pool.instance.instance_type)
        for pool in solution.pools
    }
    purchases = {
        part.purchase for pool in solution.pools for part in pool.purchases
    }
    if RESERVED_PURCHASE in purchases:
        # Reserved machines are made of these.
        purchases.add("on_demand")
    providers = {provider for provider, _ in places}

    def is_here(offer: Offer) -> bool:
        return (offer.provider, offer.region) in places

    def is_same_type(offer: Offer) -> bool:
        return (offer.provider, offer.instance.instance_type) in types

    return {
        "type": lambda offer: is_here(offer) and not is_same_type(offer),
        "region": lambda offer: (
            offer.provider in providers and not is_here(offer)
        ),
        "purchase": lambda offer: (
            is_here(offer)
            and is_same_type(offer)
            and offer.purchase not in purchases
        ),
        # What only rents out machines is no way to go on.
        "cloud": lambda offer: (
            offer.provider not in providers and offer.provider in clouds()
        ),
    }


def cheapest_among(
    spec: Spec, settings: SolveSettings, is_allowed: Callable[[Offer], bool]
) -> Solution | None:
    """Return the cheapest fleet of some offers; nothing where none of them meets the spec."""
    offers = tuple(filter(is_allowed, settings.catalog.offers))
    if not offers:
        return None
    found = find(
        spec,
        replace(
            settings,
            catalog=replace(settings.catalog, offers=offers),
            alternative_count=0,
            names_nearest=False,
        ),
    )
    # What its wishes would cost is nobody's question.
    if not found.pools:
        return None
    return replace(found, find_reasons=None, find_load_curve=None)


def _costs_at_most(solution: Solution, most_usd: Decimal) -> bool:
    return solution.bill is not None and solution.bill.total <= most_usd
