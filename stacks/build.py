"""From a solution to the resource graph of its cloud: the one place that knows all clouds."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from providers.simulated.cloud import names
from stacks.site import site

if TYPE_CHECKING:
    from planner.solve.solution import Solution
    from planner.spec.model import Spec
    from stacks.graph import Graph, Resource

CLOUDS: Final = {
    "aws": "stacks.aws",
    "azure": "stacks.azure",
    "gcp": "stacks.gcp",
}


def build(spec: Spec, solution: Solution) -> tuple[Graph, str]:
    """Build the graph of a solution, and say what gives machines back from outside.

    Raises SpecError when the stack cannot be built as asked.
    """
    found = site(spec, solution, solution.pools[0])
    package = CLOUDS[found.provider]
    graph: Graph = importlib.import_module(f"{package}.stack").build(found)
    graph = replace(graph, resources=tuple(_named(r) for r in graph.resources))
    backstop: str = importlib.import_module(f"{package}.shutdown").backstop(found)
    return graph, backstop


def _named(resource: Resource) -> Resource:
    """A resource with a name for good cannot exist twice, so the old one must go first."""
    if resource.inputs.get(names().get(resource.type, "")) is None:
        return resource
    return replace(resource, options={**resource.options, "delete_before_replace": True})
