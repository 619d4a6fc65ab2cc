"""What differs between the state of a stack and the simulated clouds."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from planner.errors import PolicyError, Problem
from planner.facts import table
from stacks.engine.fill import built_on_digests, fill_references
from stacks.engine.protocol import DriftedResource
from stacks.engine.state import REPLACED_PREFIX, resource_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from planner.plan.types import Properties
    from providers.simulated.shared import SharedWorld
    from stacks.engine.protocol import Permission, ResourceStep
    from stacks.engine.state import ResourceRecord


def find_drift(
    records: Mapping[str, ResourceRecord],
    world: SharedWorld,
    placeholders: dict[str, str],
) -> tuple[DriftedResource, ...]:
    """Return the objects that are gone, or have other inputs than the state says.

    What a graph leaves to others (`ignore_changes`) is no drift, nor is what moves by itself, nor
    a change that an apply has begun: what is replaced, and inputs that would be filled with other
    values now.
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
            _without_moving(
                record.type,
                fill_references(current_inputs, placeholders, known_outputs),
            ),
            _without_moving(record.type, cloud_object["inputs"]),
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


def heed_drift(
    steps: tuple[ResourceStep, ...],
    drifted: Iterable[DriftedResource],
    allow: Collection[Permission],
) -> tuple[ResourceStep, ...]:
    """Return the steps of an apply, which undo changes by others only where that is allowed.

    Raises PolicyError where a step would change what somebody else has changed, too.
    """
    details = {
        resource.name: resource.details
        for resource in drifted
        if resource.kind == "changed"
    }
    if "drift" in allow:
        return tuple(
            replace(step, action="update", reasons=details[step.name])
            if step.action == "same" and step.name in details
            else step
            for step in steps
        )
    _refuse_undoing(
        {
            step.name: details[step.name]
            for step in steps
            if step.action in ("update", "replace") and step.name in details
        }
    )
    return steps


def _refuse_undoing(details: Mapping[str, tuple[str, ...]]) -> None:
    """Raise PolicyError for resources of which others have changed some properties."""
    problems = [
        Problem(
            code="drift",
            message=f"somebody has changed {name}: {', '.join(properties) or 'its properties'}",
            cause="this apply would undo that",
            next_step="put it into the spec, or undo it: --allow drift",
        )
        for name, properties in details.items()
    ]
    if problems:
        raise PolicyError(*problems)


def moves_by_itself(resource_type: str, property_path: str) -> bool:
    """Tell whether schedules, alarms or agents set a property, such as the size of a group."""
    return property_path in _moving_properties().get(resource_type, ())


def _without_moving(resource_type: str, inputs: Properties) -> Properties:
    """Return inputs without what moves by itself."""
    remaining = dict(inputs)
    for property_path in _moving_properties().get(resource_type, ()):
        name, _, nested_name = property_path.partition(".")
        if name not in remaining:
            continue
        if nested_name:
            remaining[name] = {
                key: value
                for key, value in remaining[name].items()
                if key != nested_name
            }
        else:
            del remaining[name]
    return remaining


@cache
def _moving_properties() -> dict[str, tuple[str, ...]]:
    """Return by type the paths of the properties that move by themselves."""
    columns: table.Columns = {
        "cloud": table.nonempty_text,
        "type": table.nonempty_text,
        "property": table.nonempty_text,
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    properties: dict[str, tuple[str, ...]] = {}
    for row in table.load_rows("stacks", "moving.csv", columns):
        known = properties.get(row["type"], ())
        properties[row["type"]] = (*known, row["property"])
    return properties


def _differing_properties(
    wanted: Properties, found: Properties, *, ignored: frozenset[str]
) -> tuple[str, ...]:
    return tuple(
        name
        for name in sorted({*wanted, *found} - ignored)
        if wanted.get(name) != found.get(name)
    )
