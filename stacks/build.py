"""From a solution to the resource graph of its cloud: the one place that knows all clouds."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from providers.simulated.cloud import names
from stacks.graph import Graph
from stacks.node.launch import launch
from stacks.site import site

if TYPE_CHECKING:
    from planner.solve.solution import Solution
    from planner.spec.model import Spec
    from stacks.graph import Resource

PARTS: Final = (
    "network",
    "fabric",
    "placement",
    "storage",
    "files",
    "identity",
    "fleet",
    "shutdown",
    "observe",
)


class Built(NamedTuple):
    """A graph, what gives machines back from outside, and how a training job is launched."""

    graph: Graph
    backstop: str
    launch: dict[str, Any] | None


def build(spec: Spec, solution: Solution, name: str) -> Built:
    """Build the graph of a solution.

    `name` is that of the stack. Every cloud has the same parts. Raises SpecError when the stack
    cannot be built as asked.
    """
    found = site(spec, solution, name)
    parts = {
        name: import_module(f"stacks.{found.provider}.{name}") for name in PARTS
    }
    resources = [r for part in parts.values() for r in part.resources(found)]
    graph = Graph(
        provider=found.provider,
        region=found.region,
        resources=tuple(_named(r) for r in resources),
        outputs=parts["fleet"].outputs(found),
    )
    backstop: str = parts["shutdown"].backstop(found)
    return Built(graph, backstop, launch(found))


def _named(resource: Resource) -> Resource:
    """A resource with a name for good cannot exist twice, so the old one must go first."""
    if resource.inputs.get(names().get(resource.type, "")) is None:
        return resource
    return replace(
        resource, options={**resource.options, "delete_before_replace": True}
    )
