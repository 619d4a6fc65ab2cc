"""Nonsense graphs: each has one mistake that a real cloud would refuse."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from planner.errors import TonnageError
from providers.resource_type import name_properties
from providers.simulated.schema import required_properties
from stacks.engine.simulated import SimulatedEngine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from planner.plan.types import Plan, PlannedResource, Properties
    from providers.simulated.world import World

# Documents of their own, which a cloud reads when it shows or runs them.
FREE_FORMS = {
    ("azure-native:portal:Dashboard", "properties"),
    ("azure-native:logic:Workflow", "definition"),
}
ABSENT_ID = "absent-0123456789ab"


class Mistake(Struct, frozen=True):
    """A resource with one mistake, and which."""

    kind: str
    resource: PlannedResource


def mistakes(plan: Plan) -> Iterator[Mistake]:
    """Yield every resource of a plan with every mistake that it can have."""
    for resource in plan.graph.resources:
        for kind, inputs in _wrong_inputs(resource.type, resource.inputs):
            yield Mistake(kind, replace(resource, inputs=inputs))


def refusal_of(
    mistake: Mistake, plan: Plan, world: World, folder: Path
) -> str | None:
    """Apply a plan with a mistake; return what it is refused with, nothing when it is not."""
    resources = tuple(
        mistake.resource if resource.name == mistake.resource.name else resource
        for resource in plan.graph.resources
    )
    wrong_plan = replace(plan, graph=replace(plan.graph, resources=resources))
    try:
        SimulatedEngine(world, folder).apply(wrong_plan, lambda _: None)
    except TonnageError as error:
        return str(error)
    return None


def _wrong_inputs(
    resource_type: str, inputs: Properties
) -> Iterator[tuple[str, Properties]]:
    yield "unknown property", {**inputs, "noSuchProperty": 1}
    for name in required_properties(resource_type):
        yield f"without {name}", {k: v for k, v in inputs.items() if k != name}
    name_property = name_properties().get(resource_type)
    if name_property in inputs:
        for wrong_name in ("", "\x07bell", "x" * 1100):
            yield (
                f"named {wrong_name[:12]!r}",
                {**inputs, name_property: wrong_name},
            )
    for path, value in _leaves(inputs):
        if (resource_type, path[0]) in FREE_FORMS:
            continue
        for kind, wrong_value in _wrong_values(path[-1], value):
            yield (
                f"{kind}: {'.'.join(map(str, path))}",
                _with(inputs, path, wrong_value),
            )


def _wrong_values(name: Any, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and "$ref" in value:
        if value["output"] == "id":
            yield "dangling reference", ABSENT_ID
        return
    if isinstance(value, bool):
        yield "no truth value", "perhaps"
    elif isinstance(value, int):
        yield "no number", "many"
        if "port" in str(name).lower():
            yield "no port", 70_000
        if name in ("desiredCapacity", "minSize", "maxSize", "targetSize"):
            yield "negative", -1
    elif isinstance(value, str):
        yield "no text", {"an": "object"}
        if "/" in value and value.split("/")[-1].isdigit() and "." in value:
            yield "no network", "10.42.0.0/99"
        if name in ("availabilityZone", "zone"):
            yield "zone of another region", "mars-north1-a"
        if name in ("instanceType", "machineType"):
            yield "no machine type", "p9.gigantic"


def _leaves(
    value: Any, path: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, dict) and "$ref" not in value:
        for key, nested_value in value.items():
            yield from _leaves(nested_value, (*path, key))
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from _leaves(element, (*path, index))
    else:
        yield path, value


def _with(inputs: Properties, path: tuple[Any, ...], value: Any) -> Properties:
    changed = copy.deepcopy(inputs)
    holder: Any = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return changed
