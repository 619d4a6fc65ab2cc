"""Regions of a spec that no offer is in."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from planner.errors import Problem, SpecError
from planner.suggest import closest

if TYPE_CHECKING:
    from planner.market.offer import Catalog
    from planner.spec.model import PlacementRule


def check_regions(where: PlacementRule, catalog: Catalog) -> None:
    """Raise SpecError for a region, or a pattern of regions, that the catalog does not know."""
    if not where.regions:
        return
    known_regions = {offer.region for offer in catalog.offers}
    problems = []
    for pattern in where.regions:
        if any(fnmatchcase(region, pattern) for region in known_regions):
            continue
        similar_region = closest(pattern, sorted(known_regions))
        problems.append(
            Problem(
                code="region",
                message=f"where.regions: no region is named '{pattern}'",
                place=where.place,
                next_step=f"did you mean '{similar_region}'?"
                if similar_region
                else "see regions: tonnage offers --limit 1000",
            )
        )
    if problems:
        raise SpecError(*problems)
