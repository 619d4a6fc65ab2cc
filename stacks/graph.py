"""The resource graph as plain data: Pulumi type token, camelCase inputs, references, options.

Inside inputs, `{"$ref": name, "output": path}` is the output of another resource. In any text,
`${project}`, `${caller}`, `${caller.kind}`, `${started.month}`, `${deadline.FORM}` and
`${from.TIME}` are filled in when a stack is applied. Project and caller are those of who applies;
month and deadline are those of the first apply. Forms: rfc3339, at (without zone), cron, far
(rfc3339, ten years later).
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, TypedDict

from msgspec import Struct, field

from planner.facts.cloud import clouds
from planner.plan.graph import referenced_names
from planner.plan.types import PlannedGraph, PlannedResource
from stacks.spec.table import lookup_table

if TYPE_CHECKING:
    from planner.plan.types import Properties


class Resource(Struct, frozen=True, kw_only=True, dict=True):
    """One cloud resource. `depends_on` adds to the dependencies that references imply."""

    type: str
    name: str
    inputs: Properties
    depends_on: tuple[str, ...] = ()
    options: Properties = field(default_factory=dict)

    @cached_property
    def dependencies(self) -> tuple[str, ...]:
        """Names of all resources that must exist before this one, sorted."""
        names = {*self.depends_on, *referenced_names(self.inputs)}
        return tuple(sorted(names))


class Graph(Struct, frozen=True, kw_only=True):
    """All resources of a stack in one region of one cloud.

    Raises ValueError for a name that two resources have, and for a reference to none of them.
    """

    provider: str
    region: str
    resources: tuple[Resource, ...]
    outputs: Properties = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = Counter(resource.name for resource in self.resources)
        for name, count in names.items():
            if count > 1:
                raise ValueError(f"{count} resources are named {name}")
        for resource in self.resources:
            for name in resource.dependencies:
                if name not in names:
                    message = f"{resource.name} refers to {name}, which no resource is named"
                    raise ValueError(message)
        for name in referenced_names(self.outputs):
            if name not in names:
                message = (
                    f"an output refers to {name}, which no resource is named"
                )
                raise ValueError(message)

    def to_document(self) -> PlannedGraph:
        """Return the graph as the plan holds it: resources sorted by name."""
        return PlannedGraph(
            provider=self.provider,
            region=self.region,
            resources=tuple(
                PlannedResource(
                    type=resource.type,
                    name=resource.name,
                    inputs=resource.inputs,
                    depends_on=resource.depends_on,
                    options=resource.options,
                )
                for resource in sorted(
                    self.resources, key=lambda resource: resource.name
                )
            ),
            outputs=self.outputs,
        )


def parse_graph(planned_graph: PlannedGraph) -> Graph:
    """Read a graph back from a plan."""
    return Graph(
        provider=planned_graph.provider,
        region=planned_graph.region,
        resources=tuple(
            Resource(
                type=planned_resource.type,
                name=planned_resource.name,
                inputs=planned_resource.inputs,
                depends_on=planned_resource.depends_on,
                options=planned_resource.options,
            )
            for planned_resource in planned_graph.resources
        ),
        outputs=planned_graph.outputs,
    )


def plugin_versions(provider: str) -> dict[str, str]:
    """Return the version of the provider's package that a graph of a cloud is made for."""
    if not provider:
        return {}
    package = clouds()[provider].package
    return {package: lookup_table("plugins.csv", "package", "version")[package]}


# The key of a reference is no name of Python, so the class is written as a call.
Reference = TypedDict("Reference", {"$ref": str, "output": str})


def ref(resource_name: str, output_path: str = "id") -> Reference:
    """Refer to an output of another resource."""
    return {"$ref": resource_name, "output": output_path}


def creation_order(resource_graph: Graph) -> list[Resource]:
    """Sort so that every resource comes after what it needs, by name where either may be first.

    Raises ValueError when resources need each other.
    """
    resources = resource_graph.resources
    resources_by_name = {resource.name: resource for resource in resources}
    sorter = TopologicalSorter(
        {resource.name: resource.dependencies for resource in resources}
    )
    ordered: list[Resource] = []
    try:
        sorter.prepare()
        while sorter.is_active():
            ready_names = sorted(sorter.get_ready())
            ordered += [resources_by_name[name] for name in ready_names]
            sorter.done(*ready_names)
    except CycleError as error:
        cycle = ", ".join(error.args[1])
        raise ValueError(f"resources depend on each other: {cycle}") from error
    return ordered
