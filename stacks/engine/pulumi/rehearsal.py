"""Preflight of an apply with Pulumi: what its simulated clouds would refuse."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from stacks.engine.fill import fill_text
from stacks.engine.protocol import ResourceStep
from stacks.engine.pulumi.checkpoint import pending_operations, resource_ids
from stacks.engine.pulumi.finder import SimulatedFinder
from stacks.engine.pulumi.move import taken_back
from stacks.engine.pulumi.retention import standing_records
from stacks.engine.rehearsal import rehearse

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.plan.types import Properties
    from providers.simulated.shared import SharedWorld
    from stacks.engine.failure import RefusedCall
    from stacks.engine.pulumi.retention import RetainedObjects
    from stacks.engine.state import ResourceRecord
    from stacks.graph import Graph


def rehearse_apply(
    resource_graph: Graph,
    deployment: Properties,
    retained: RetainedObjects,
    world: SharedWorld,
    placeholders: dict[str, str],
) -> list[RefusedCall]:
    """Return what the clouds would refuse of an apply."""
    records = _considered_records(
        resource_graph,
        deployment,
        retained,
        world,
        partial(fill_text, placeholders=placeholders),
    )
    return rehearse(
        resource_graph,
        [
            ResourceStep(
                "same" if resource.name in records else "create",
                resource.type,
                resource.name,
            )
            for resource in resource_graph.resources
        ],
        records,
        world,
        placeholders,
    )


def _considered_records(
    resource_graph: Graph,
    deployment: Properties,
    retained: RetainedObjects,
    world: SharedWorld,
    text_filler: Callable[[str], str],
) -> dict[str, ResourceRecord]:
    """Return what an apply would begin with, as the clouds have it.

    It finds what a dead run has made, takes back what an earlier run has left, also of a move
    that was cut, and makes again what somebody has deleted.
    """
    place = (resource_graph.provider, resource_graph.region)
    finder = SimulatedFinder(world)
    known_ids = resource_ids(deployment)
    found = [
        {**operation["resource"], "id": object_id}
        for operation in pending_operations(deployment)
        if operation["type"] == "creating"
        and (object_id := finder.find(operation["resource"], known_ids))
    ]
    resources = [*(deployment.get("resources") or ()), *found]
    settled = taken_back({**deployment, "resources": resources}, place)
    records = standing_records(settled, place)
    import_ids = retained.import_ids(resource_graph, settled, text_filler)
    for name, object_id in import_ids.items():
        records[name] = retained.records[object_id]
    clouds = world.view()
    return {
        name: replace(record, outputs=cloud_object["outputs"])
        for name, record in records.items()
        if (cloud_object := clouds.read(record.id)) is not None
    }
