"""The core of a stack: few enough objects that the real engine can die at each of its events.

It has one object of each kind that a recovery has to treat in its own way: machines, what they
are made from, which names and tags find, and the bucket, which holds data and is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from planner.plan.graph import referenced_names
from stacks.engine.rolling import is_machine_group
from stacks.graph import Graph, parse_graph

if TYPE_CHECKING:
    from planner.plan.types import Plan


def core_of(plan: Plan) -> Plan:
    """Return a plan of the machines and the bucket of a plan, and all that they refer to."""
    graph = parse_graph(plan.graph)
    resources = {resource.name: resource for resource in graph.resources}
    waiting = [name for name in resources if is_machine_group(name)]
    waiting += referenced_names(graph.outputs["bucket"])
    names: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            waiting += referenced_names(resources[name].inputs)
    core = Graph(
        provider=graph.provider,
        region=graph.region,
        resources=tuple(
            replace(
                resource,
                depends_on=tuple(sorted(names & {*resource.depends_on})),
            )
            for resource in graph.resources
            if resource.name in names
        ),
        outputs={
            key: output
            for key, output in graph.outputs.items()
            if names.issuperset(referenced_names(output))
        },
    )
    return replace(plan, graph=core.to_document())
