"""Preflight: everything that the simulated clouds would refuse of a run, before it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from providers.simulated.cloud import CloudError, SimulatedCloud
from stacks.engine.failure import RefusedCall
from stacks.engine.fill import fill_references
from stacks.graph import creation_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from providers.simulated.shared import SharedWorld
    from stacks.engine.protocol import ResourceStep
    from stacks.engine.state import ResourceRecord
    from stacks.graph import Graph


def rehearse(
    resource_graph: Graph,
    steps: Iterable[ResourceStep],
    records: Mapping[str, ResourceRecord],
    world: SharedWorld,
    placeholders: dict[str, str],
) -> list[RefusedCall]:
    """Return what the clouds would refuse.

    The steps are made in a copy of the world. What is refused there is made all the same, so that
    everything that needs it is tried too. Faults, throttles and lags of the world file are left
    out: they pass.
    """
    cloud = _copied_cloud(world, resource_graph.region)
    steps_by_name = {step.name: step for step in steps}
    outputs = {name: record.outputs for name, record in records.items()}
    for step in steps_by_name.values():
        if step.deletes_first:
            cloud.memory.objects.pop(records[step.name].id, None)
    refusals = []
    for resource in creation_order(resource_graph):
        action = steps_by_name[resource.name].action
        if action not in ("create", "update", "replace"):
            continue
        inputs = fill_references(resource.inputs, placeholders, outputs)
        try:
            if action == "update":
                record = records[resource.name]
                outputs[resource.name] = cloud.update(record.id, inputs)
            else:
                _, outputs[resource.name] = cloud.create(
                    resource.type, resource.name, inputs
                )
        except CloudError as refusal:
            refusals.append(
                RefusedCall(f"{action} of {resource.name}", str(refusal))
            )
            if action != "update":
                _, outputs[resource.name] = cloud.place(
                    resource.type, resource.name, inputs
                )
    return refusals


def _copied_cloud(world: SharedWorld, region: str) -> SimulatedCloud:
    """Return the clouds as they are, in a world that nobody else sees."""
    cloud = world.view(region)
    return SimulatedCloud(
        replace(cloud.world, faults=(), throttles=(), lags=()),
        # Objects are replaced as a whole, so that those of the world stay as they are.
        replace(
            cloud.memory,
            objects=dict(cloud.memory.objects),
            fired=dict(cloud.memory.fired),
            history={
                object_id: replace(history, sizes=list(history.sizes))
                for object_id, history in cloud.memory.history.items()
            },
        ),
        region,
    )
