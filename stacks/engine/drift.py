"""What differs between the state of a stack and the simulated clouds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.engine.fill import built_on_digests, fill_references
from stacks.engine.protocol import DriftedResource
from stacks.engine.state import REPLACED_PREFIX, resource_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.plan.types import Properties
    from providers.simulated.shared import SharedWorld
    from stacks.engine.state import ResourceRecord


def find_drift(
    records: Mapping[str, ResourceRecord],
    world: SharedWorld,
    placeholders: dict[str, str],
) -> tuple[DriftedResource, ...]:
    """Return the objects that are gone, or have other inputs than the state says.

    What a graph leaves to others (`ignore_changes`) is no drift, nor is a change that an apply has
    begun: what is replaced, and inputs that would be filled with other values now.
    """
    known_outputs = {name: record.outputs for name, record in records.items()}
    drifted = []
    for key, record in sorted(records.items()):
        cloud_object = world.view(record.place[1]).read(record.id)
        if cloud_object is None:
            drifted.append(
                DriftedResource("gone", record.type, resource_name(key))
            )
            continue
        if key.startswith(REPLACED_PREFIX):
            continue
        digests = built_on_digests(record.inputs, placeholders, known_outputs)
        current_inputs = {
            name: value
            for name, value in record.inputs.items()
            if digests.get(name) == record.built_on.get(name)
        }
        details = _differing_properties(
            fill_references(current_inputs, placeholders, known_outputs),
            cloud_object["inputs"],
            ignored=frozenset(
                {
                    *record.options.get("ignore_changes", ()),
                    *(record.inputs.keys() - current_inputs.keys()),
                }
            ),
        )
        if details:
            drifted.append(
                DriftedResource(
                    "changed", record.type, resource_name(key), details
                )
            )
    return tuple(drifted)


def _differing_properties(
    wanted: Properties, found: Properties, *, ignored: frozenset[str]
) -> tuple[str, ...]:
    return tuple(
        name
        for name in sorted({*wanted, *found} - ignored)
        if wanted.get(name) != found.get(name)
    )
