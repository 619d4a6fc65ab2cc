"""What tonnage has made in a cloud, found by its tags, and which of it no stack knows."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.facts.cloud import clouds
from providers.live.access import cloud_errors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from planner.market.offer import Catalog
    from providers.simulated.shared import SharedWorld


class TaggedObject(Struct, frozen=True, order=True):
    """An object that carries the tags of tonnage.

    id     as the cloud calls it
    stack  that its tag names
    """

    cloud: str
    region: str
    stack: str
    id: str


def simulated_orphans(
    world: SharedWorld, cloud_names: Collection[str], known_ids: Collection[str]
) -> list[TaggedObject]:
    """Return what is in simulated clouds and is not known, sorted."""
    memory = world.view().memory
    clouds_by_package = {
        clouds()[cloud].package: cloud for cloud in cloud_names
    }
    orphans = []
    for object_id in memory.objects.keys() - known_ids:
        history = memory.history[object_id]
        cloud = clouds_by_package.get(history.type.partition(":")[0])
        if cloud is not None:
            orphans.append(
                TaggedObject(cloud, history.region, history.stack, object_id)
            )
    return sorted(orphans)


def tagged_orphans(
    cloud_names: Iterable[str],
    known_stacks: Collection[str],
    catalog: Catalog,
) -> list[TaggedObject]:
    """Return what carries the tags of tonnage and belongs to no known stack, sorted.

    Every region that the catalog has is asked. Raises TonnageError where a cloud refuses.
    """
    found: list[TaggedObject] = []
    for cloud in cloud_names:
        regions = sorted(
            {
                offer.region
                for offer in catalog.offers
                if offer.provider == cloud
            }
        )
        with cloud_errors(cloud, f"{cloud} cannot be searched"):
            found += import_module(f"stacks.{cloud}.find").tagged_objects(
                regions
            )
    return sorted(
        tagged for tagged in found if tagged.stack not in known_stacks
    )
