"""What must be done to turn a state into a graph: one step for each resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stacks.engine.protocol import ResourceStep

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.plan.types import Properties
    from stacks.engine.protocol import Action
    from stacks.graph import Graph, Resource


# Why a resource is deleted before it is created anew.
DELETE_FIRST: Final = ("delete before replace",)


def diff_steps(
    resource_graph: Graph,
    state: Properties,
    immutable_changes: Callable[[str, Properties, Properties], list[str]],
) -> tuple[ResourceStep, ...]:
    """Return a step for every resource of graph and state, in the order of names.

    Compares the inputs of the graph, references unfilled, with those the state was made from. A
    resource that is deleted before it is replaced takes along everything that needs it. In another
    region or cloud everything is another thing, so all of it is replaced.
    """
    prior_resources = state["resources"]
    planned_steps = {}
    for resource in resource_graph.resources:
        prior_record = prior_resources.get(resource.name)
        if prior_record is not None and is_relocated(
            prior_record, resource_graph
        ):
            planned_steps[resource.name] = ResourceStep(
                "replace", resource.type, resource.name, DELETE_FIRST
            )
        else:
            planned_steps[resource.name] = _resource_step(
                resource, prior_record, immutable_changes
            )
    _cascade_replaces(resource_graph, prior_resources, planned_steps)
    for resource_name, prior_record in prior_resources.items():
        if resource_name not in planned_steps:
            planned_steps[resource_name] = ResourceStep(
                "delete", prior_record["type"], resource_name
            )
    return tuple(
        planned_steps[resource_name] for resource_name in sorted(planned_steps)
    )


def is_relocated(prior_record: Properties, resource_graph: Graph) -> bool:
    """Whether a resource was made in another cloud or region than the graph's."""
    return list(prior_record["place"]) != [
        resource_graph.provider,
        resource_graph.region,
    ]


def _cascade_replaces(
    resource_graph: Graph,
    prior_resources: Properties,
    planned_steps: dict[str, ResourceStep],
) -> None:
    """Mark what must be deleted before something it needs is replaced."""
    deleted_names = {
        candidate.name
        for candidate in resource_graph.resources
        if planned_steps[candidate.name].action == "replace"
        and candidate.options.get("delete_before_replace")
    }
    for resource in resource_graph.resources:
        if resource.name in prior_resources and (
            resource.name in deleted_names
            or _depends_on_any(resource, resource_graph, deleted_names)
        ):
            planned_steps[resource.name] = ResourceStep(
                "replace", resource.type, resource.name, DELETE_FIRST
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
    pending_names = resource.dependencies()
    while pending_names:
        resource_name = pending_names.pop()
        if resource_name in deleted_names:
            return True
        if resource_name not in visited_names:
            visited_names.add(resource_name)
            pending_names += resources_by_name[resource_name].dependencies()
    return False


def _resource_step(
    resource: Resource,
    prior_record: Properties | None,
    immutable_changes: Callable[[str, Properties, Properties], list[str]],
) -> ResourceStep:
    if prior_record is None:
        return ResourceStep("create", resource.type, resource.name)
    if prior_record["type"] != resource.type:
        return ResourceStep("replace", resource.type, resource.name, ("type",))
    prior_inputs = prior_record["inputs"]
    target_inputs = {
        **resource.inputs,
        **{
            property_name: prior_inputs[property_name]
            for property_name in resource.options.get("ignore_changes", [])
            if property_name in prior_inputs
        },
    }
    changed_keys = tuple(
        property_name
        for property_name in sorted({*prior_inputs, *target_inputs})
        if prior_inputs.get(property_name) != target_inputs.get(property_name)
    )
    if not changed_keys:
        return ResourceStep("same", resource.type, resource.name)
    replacing_keys = immutable_changes(
        resource.type, prior_inputs, target_inputs
    )
    replacing_keys += [
        property_name
        for property_name in resource.options.get("replace_on_changes", [])
        if property_name in changed_keys
    ]
    step_action: Action = "replace" if replacing_keys else "update"
    return ResourceStep(
        step_action,
        resource.type,
        resource.name,
        tuple(replacing_keys) or changed_keys,
    )
