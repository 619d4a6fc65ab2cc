"""What must be done to turn a state into a graph: one step for each resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from planner.plan.graph import referenced_names, references
from providers.resource_type import (
    exclusive_inputs,
    has_same_name,
    name_rules,
)
from stacks.engine.fill import TEXT_OUTPUTS, built_on_digests
from stacks.engine.protocol import ResourceStep
from stacks.graph import creation_order

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Mapping,
    )

    from planner.plan.types import Properties
    from stacks.engine.protocol import Action
    from stacks.engine.state import ResourceRecord
    from stacks.graph import Graph, Resource

# Where names are the same ones in every region.
SHARED_SCOPES: Final = ("global", "account")


def diff_steps(
    resource_graph: Graph,
    prior_resources: Mapping[str, ResourceRecord],
    immutable_changes: Callable[[str, Properties, Properties], list[str]],
    placeholders: Mapping[str, str],
) -> tuple[ResourceStep, ...]:
    """Return a step for every resource of graph and state, in the order of names.

    Compares the inputs of the graph, references unfilled, with those the state was made from. In
    another region or cloud everything is another thing, so all of it is replaced. The new comes
    before the old goes, except where both would have one name: such a resource is deleted first,
    and takes along everything that needs it. `placeholders` is what `${...}` in texts stands for.
    """
    planned_steps = {
        resource.name: _resource_step(
            resource,
            prior_resources.get(resource.name),
            resource_graph,
            immutable_changes,
        )
        for resource in resource_graph.resources
    }
    _follow_references(
        resource_graph,
        prior_resources,
        planned_steps,
        immutable_changes,
        placeholders,
    )
    _cascade_replaces(resource_graph, prior_resources, planned_steps)
    for resource_name, prior_record in prior_resources.items():
        if resource_name not in planned_steps:
            planned_steps[resource_name] = ResourceStep(
                "delete", prior_record.type, resource_name
            )
    _leave_first(prior_resources, planned_steps)
    return tuple(
        planned_steps[resource_name] for resource_name in sorted(planned_steps)
    )


def _follow_references(
    resource_graph: Graph,
    prior_resources: Mapping[str, ResourceRecord],
    planned_steps: dict[str, ResourceStep],
    immutable_changes: Callable[[str, Properties, Properties], list[str]],
    placeholders: Mapping[str, str],
) -> None:
    """Mark what is filled with other values than it was made with."""
    renamed_names = _renamed_names(resource_graph, prior_resources)
    known_outputs = {
        name: record.outputs for name, record in prior_resources.items()
    }
    for resource in creation_order(resource_graph):
        step = planned_steps[resource.name]
        prior_record = prior_resources.get(resource.name)
        if prior_record is None or step.action not in ("same", "update"):
            continue
        ignored = resource.options.get("ignore_changes", ())
        stale_keys = _stale_keys(
            resource, prior_record, placeholders, known_outputs
        )
        changed_keys = [
            property_name
            for property_name, value in resource.inputs.items()
            if property_name not in ignored
            and (
                property_name in stale_keys
                or _refers_to_change(value, planned_steps)
            )
        ]
        if not changed_keys:
            continue
        moved_keys = [
            property_name
            for property_name in changed_keys
            if property_name in stale_keys
            or not renamed_names.isdisjoint(
                referenced_names(resource.inputs[property_name])
            )
        ]
        replacing_keys = immutable_changes(
            resource.type,
            dict.fromkeys(changed_keys, "before"),
            dict.fromkeys(changed_keys, "after"),
        )
        planned_steps[resource.name] = replace(
            step,
            action="replace" if replacing_keys else "update",
            reasons=tuple(sorted({*step.reasons, *changed_keys})),
            deletes_first=bool(replacing_keys)
            and _keeps_name(resource, prior_record, moved_keys),
        )


def _renamed_names(
    resource_graph: Graph, prior_resources: Mapping[str, ResourceRecord]
) -> set[str]:
    """Return the resources that will have another name in the cloud."""
    return {
        resource.name
        for resource in resource_graph.resources
        if resource.name in prior_resources
        and not has_same_name(
            resource.type,
            resource.inputs,
            prior_resources[resource.name].inputs,
        )
    }


def _refers_to_change(
    value: Any, planned_steps: Mapping[str, ResourceStep]
) -> bool:
    """Whether a value has an output that will be another one."""
    # A change in place leaves all outputs as they are but the number of its version.
    return any(
        planned_steps[reference["$ref"]].action in ("create", "replace")
        or (
            planned_steps[reference["$ref"]].action == "update"
            and reference["output"] in TEXT_OUTPUTS
        )
        for reference in references(value)
    )


def _stale_keys(
    resource: Resource,
    prior_record: ResourceRecord,
    placeholders: Mapping[str, str],
    known_outputs: Mapping[str, Properties],
) -> set[str]:
    """Return the inputs that are filled with other values than when they were sent."""
    digests = built_on_digests(resource.inputs, placeholders, known_outputs)
    return {
        input_name
        for input_name, digest in prior_record.built_on.items()
        if digests.get(input_name, digest) != digest
        # What is gone is made again, under the same name.
        and known_outputs.keys()
        >= {*referenced_names(resource.inputs[input_name])}
    }


def stays_itself(
    resource: Resource,
    prior_record: ResourceRecord,
    known_outputs: Mapping[str, Properties],
    placeholders: Mapping[str, str],
    immutable_changes: Callable[[str, Properties, Properties], list[str]],
) -> bool:
    """Whether an object can be what a resource asks for, without being made anew.

    `known_outputs` are those of what it refers to, by name.
    """
    _, replacing_keys = _changed_properties(
        resource, prior_record.inputs, immutable_changes
    )
    stale_keys = _stale_keys(
        resource, prior_record, placeholders, known_outputs
    ).difference(resource.options.get("ignore_changes", ()))
    return not replacing_keys and not immutable_changes(
        resource.type,
        dict.fromkeys(stale_keys, "before"),
        dict.fromkeys(stale_keys, "after"),
    )


def _cascade_replaces(
    resource_graph: Graph,
    prior_resources: Mapping[str, ResourceRecord],
    planned_steps: dict[str, ResourceStep],
) -> None:
    """Mark what must be deleted before something it needs is replaced."""
    deleted_names = {
        planned_step.name
        for planned_step in planned_steps.values()
        if planned_step.deletes_first
    }
    for resource in resource_graph.resources:
        if resource.name in prior_resources and _depends_on_any(
            resource, resource_graph, deleted_names
        ):
            prior_step = planned_steps[resource.name]
            planned_steps[resource.name] = replace(
                prior_step,
                action="replace",
                reasons=prior_step.reasons or ("needs what is replaced",),
                deletes_first=True,
            )


def _leave_first(
    prior_resources: Mapping[str, ResourceRecord],
    planned_steps: dict[str, ResourceStep],
) -> None:
    """Mark what leaves, and has to go before something it needs is replaced."""
    first_names = {
        step.name for step in planned_steps.values() if step.deletes_first
    }
    leaving_names = {
        step.name for step in planned_steps.values() if step.action == "delete"
    }
    while found_names := {
        name
        for name in leaving_names - first_names
        if not first_names.isdisjoint(prior_resources[name].needs)
    }:
        first_names |= found_names
        for name in found_names:
            planned_steps[name] = replace(
                planned_steps[name], deletes_first=True
            )


def _depends_on_any(
    resource: Resource, resource_graph: Graph, deleted_names: set[str]
) -> bool:
    """Whether anything that a resource needs, at any distance, is in `deleted_names`."""
    resources_by_name = {
        graph_resource.name: graph_resource
        for graph_resource in resource_graph.resources
    }
    visited_names: set[str] = set()
    pending_names = list(resource.dependencies)
    while pending_names:
        resource_name = pending_names.pop()
        if resource_name in deleted_names:
            return True
        if resource_name not in visited_names:
            visited_names.add(resource_name)
            pending_names += resources_by_name[resource_name].dependencies
    return False


def _resource_step(
    resource: Resource,
    prior_record: ResourceRecord | None,
    resource_graph: Graph,
    immutable_changes: Callable[[str, Properties, Properties], list[str]],
) -> ResourceStep:
    step = ResourceStep("create", resource.type, resource.name)
    if prior_record is None:
        return step
    prior_provider, prior_region = prior_record.place
    if prior_record.type != resource.type:
        # Things of two types may have one name.
        return replace(step, action="replace", reasons=("type",))
    if (prior_provider, prior_region) != (
        resource_graph.provider,
        resource_graph.region,
    ):
        return replace(
            step,
            action="replace",
            reasons=("region",),
            deletes_first=_keeps_name_elsewhere(resource, prior_record),
        )
    changed_keys, replacing_keys = _changed_properties(
        resource, prior_record.inputs, immutable_changes
    )
    if not changed_keys:
        return replace(step, action="same")
    action: Action = "replace" if replacing_keys else "update"
    return replace(
        step,
        action=action,
        reasons=replacing_keys or changed_keys,
        deletes_first=bool(replacing_keys)
        and _keeps_name(resource, prior_record, changed_keys),
    )


def _keeps_name(
    resource: Resource,
    prior_record: ResourceRecord,
    moved_keys: Collection[str] = (),
) -> bool:
    """Whether the old object has what the new one needs for itself, such as its name.

    In another parent, which one of `moved_keys` names, a name is another one.
    """
    wanted = exclusive_inputs(resource.type, resource.inputs)
    held = exclusive_inputs(resource.type, prior_record.inputs)
    return any(
        held.get(property_name) == value
        and property_name not in moved_keys
        and not any(
            rule.property == property_name
            and not set(rule.parent).isdisjoint(moved_keys)
            for rule in name_rules().get(resource.type, ())
        )
        for property_name, value in wanted.items()
    )


def _keeps_name_elsewhere(
    resource: Resource, prior_record: ResourceRecord
) -> bool:
    """Whether the old object, in another region, has the name that the new one needs."""
    rules = name_rules().get(resource.type, ())
    shared = {rule.property for rule in rules if rule.scope in SHARED_SCOPES}
    wanted = exclusive_inputs(resource.type, resource.inputs)
    held = exclusive_inputs(resource.type, prior_record.inputs)
    return any(
        property_name in shared and held.get(property_name) == value
        for property_name, value in wanted.items()
    )


def _changed_properties(
    resource: Resource,
    prior_inputs: Properties,
    immutable_changes: Callable[[str, Properties, Properties], list[str]],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the properties that change, and those of them that force a replacement."""
    kept_values = {
        property_name: prior_inputs[property_name]
        for property_name in resource.options.get("ignore_changes", [])
        if property_name in prior_inputs
    }
    target_inputs = {**resource.inputs, **kept_values}
    changed_keys = tuple(
        property_name
        for property_name in sorted({*prior_inputs, *target_inputs})
        if prior_inputs.get(property_name) != target_inputs.get(property_name)
    )
    replacing_keys = immutable_changes(
        resource.type, prior_inputs, target_inputs
    )
    replacing_keys += [
        property_name
        for property_name in resource.options.get("replace_on_changes", [])
        if property_name in changed_keys
    ]
    return changed_keys, tuple(replacing_keys)
