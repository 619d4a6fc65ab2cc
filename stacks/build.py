"""The resource graph of a solution, built by its cloud and with its runtime."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from planner.errors import SpecError
from planner.facts.cloud import clouds
from planner.facts.rule import broken_rules
from planner.plan.document import PlannedStack, with_fallbacks
from planner.spec.model import Inference
from planner.workload.chance import unlikely_last
from planner.workload.fallback import find_fallbacks
from providers.resource_type import exclusive_inputs
from stacks import registry
from stacks.graph import Graph, plugin_versions
from stacks.spec.rolling import BLUE_GREEN, rolling_rule
from stacks.spec.stack import derive_stack
from stacks.spec.table import stack_error

if TYPE_CHECKING:
    from planner.estimate.benchmark_sweep import BenchmarkSweep
    from planner.plan.types import Launch, Plan
    from planner.solve.settings import SolveSettings
    from planner.solve.solution import Solution
    from planner.spec.model import Spec
    from stacks.graph import Resource
    from stacks.runtime.base import Runtime
    from stacks.spec.stack import StackSpec

GENERATION_DIGITS: Final = 6


class StackBuild(NamedTuple):
    """A graph, what gives machines back from outside, and how a training job is launched."""

    graph: Graph
    backstop: str
    job_launch: Launch | None


def build_stack(
    spec: Spec,
    solution: Solution,
    stack_name: str,
    benchmark: BenchmarkSweep | None = None,
) -> StackBuild:
    """Build what is created for a solution under the name of a stack.

    With a `benchmark` its machines measure that, and end. Raises SpecError when it cannot be built
    as asked.
    """
    stack = replace(
        derive_stack(spec, solution, stack_name), benchmark=benchmark
    )
    runtime = registry.runtime(spec.runtime)
    graph = _graph_of(stack, runtime)
    if isinstance(spec, Inference) and spec.update == BLUE_GREEN:
        stack = replace(stack, generation=_generation(stack, graph))
        graph = _graph_of(stack, runtime)
    parts = ((part.type, part.name, part.inputs) for part in graph.resources)
    for rule, name in broken_rules("graph", graph.provider, parts):
        raise stack_error(f"{name}: {rule.told}", rule.remedy)
    cloud = registry.cloud(stack.provider)
    return StackBuild(graph, cloud.backstop(stack), runtime.launch(stack))


def _graph_of(stack: StackSpec, runtime: Runtime) -> Graph:
    cloud = registry.cloud(stack.provider)
    node_boots = {
        group.name: runtime.node_boot(
            stack,
            fleet,
            group,
            cloud.node_cloud(stack, fleet),
        )
        for fleet, group in stack.scaling_groups
    }
    return Graph(
        provider=stack.provider,
        region=stack.region,
        resources=tuple(
            _delete_before_replace(resource)
            for resource in cloud.resources(stack, node_boots)
        ),
        outputs=cloud.outputs(stack),
    )


def _generation(stack: StackSpec, graph: Graph) -> str:
    """Return hexadecimal digits that name what the machines of a stack are made from.

    How many machines there are is no part of it, and neither is the name of their group.
    """
    rule = rolling_rule(stack.provider, "service")
    properties = rule.properties if rule is not None else ()
    inputs = {resource.name: resource.inputs for resource in graph.resources}
    made_from = [
        (
            {
                key: value
                for key, value in inputs[f"{group.name}-nodes"].items()
                if key in properties
            },
            # On some clouds the template is a part of the group.
            inputs.get(f"{group.name}-template"),
        )
        for _, group in stack.scaling_groups
    ]
    text = json.dumps(made_from, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:GENERATION_DIGITS]


def planned_stack(
    spec: Spec,
    solution: Solution,
    stack: PlannedStack,
    benchmark: BenchmarkSweep | None = None,
) -> PlannedStack:
    """Add to a stack what is created for a solution; raises SpecError as `build_stack` does."""
    stack_build = build_stack(spec, solution, stack.name, benchmark)
    return replace(
        stack,
        graph=stack_build.graph.to_document(),
        backstop=stack_build.backstop or None,
        launch=stack_build.job_launch,
    )


def with_planned_fallbacks(
    plan: Plan,
    spec: Spec,
    settings: SolveSettings,
    solution: Solution,
    benchmark: BenchmarkSweep | None = None,
) -> Plan:
    """Return a plan with the other zones of a fleet in one, and what its spec lets be bought.

    A fleet is left out when no stack can be built of it, or when it would lie in the same zones.
    Where clouds were asked for the chances of their machines on spot, these are in the order.
    """
    if not solution.is_built:
        return plan
    if not derive_stack(spec, solution, plan.stack.name).awaits_machines:
        return plan
    planned = []
    used_zones = [_used_zones(spec, solution, plan.stack.name)]
    fleets = find_fallbacks(spec, settings, solution)
    live = plan.inputs.live
    if live is not None:
        fleets = unlikely_last(fleets, live.facts)
    for fleet in fleets:
        if not fleet.solution.is_built:
            continue
        stack = PlannedStack(name=plan.stack.name)
        try:
            stack = planned_stack(spec, fleet.solution, stack, benchmark)
        except SpecError:
            continue
        zones = _used_zones(spec, fleet.solution, plan.stack.name)
        if fleet.kind != "zone" or zones not in used_zones:
            planned.append((fleet, stack))
            used_zones.append(zones)
    plugins = {
        package: version
        for _, stack in planned
        for package, version in plugin_versions(stack.graph.provider).items()
    }
    return with_fallbacks(plan, spec, settings.catalog, planned, plugins)


def _used_zones(
    spec: Spec, solution: Solution, stack_name: str
) -> list[set[str]]:
    """Return the zones that each fleet of a stack is spread over."""
    stack = derive_stack(spec, solution, stack_name)
    spread = clouds()[stack.provider].spread_zones
    return [set(fleet.zones[:spread]) for fleet in stack.fleets]


def _delete_before_replace(resource: Resource) -> Resource:
    """Let the old go first where both would have what only one can have, such as a name."""
    if not exclusive_inputs(resource.type, resource.inputs):
        return resource
    return replace(
        resource, options={**resource.options, "delete_before_replace": True}
    )
