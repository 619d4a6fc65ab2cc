"""Regions and zones of a spec that no offer is in."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from planner.errors import Problem, SpecError
from planner.spec.reservation import zone_name
from planner.suggest import closest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from planner.market.offer import Catalog
    from planner.spec.model import PlacementRule


def check_regions(where: PlacementRule, catalog: Catalog) -> None:
    """Raise SpecError for a region or a zone, or a pattern, that the catalog does not know."""
    if not where.regions and not where.zones:
        return
    problems = list(_unknown(where, "region", where.regions, catalog.regions))
    if where.zones:
        zones = {
            zone_name(offer.region, zone)
            for offer in catalog.offers
            for zone in offer.zones
        }
        problems += _unknown(where, "zone", where.zones, zones)
    if problems:
        raise SpecError(*problems)


def _unknown(
    where: PlacementRule,
    kind: str,
    patterns: tuple[str, ...],
    known: AbstractSet[str],
) -> Iterator[Problem]:
    """Yield the patterns that match nothing that is known of a kind."""
    for pattern in patterns:
        if any(fnmatchcase(name, pattern) for name in known):
            continue
        similar = closest(pattern, sorted(known))
        yield Problem(
            code=kind,
            message=f"where.{kind}s: no {kind} is named '{pattern}'",
            place=where.place,
            next_step=f"did you mean '{similar}'?"
            if similar
            else f"see {kind}s: tonnage offers --limit 1000",
        )
