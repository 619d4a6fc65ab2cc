"""What must be done to turn a state into a graph: one step for each resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stacks.engine.protocol import Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from stacks.engine.protocol import Action
    from stacks.graph import Graph, Resource


# Why a resource is deleted before it is created anew.
FIRST: Final = ("delete before replace",)


def steps(
    graph: Graph,
    state: dict[str, Any],
    replaces: Callable[[str, dict[str, Any], dict[str, Any]], list[str]],
) -> tuple[Step, ...]:
    """Return a step for every resource of graph and state, in the order of names.

    Compares the inputs of the graph, references unfilled, with those the state was made from. A
    resource that is deleted before it is replaced takes along everything that needs it. In another
    region or cloud everything is another thing, so all of it is replaced.
    """
    before = state["resources"]
    found = {}
    for resource in graph.resources:
        old = before.get(resource.name)
        if old is not None and elsewhere(old, graph):
            found[resource.name] = Step(
                "replace", resource.type, resource.name, FIRST
            )
        else:
            found[resource.name] = _step(resource, old, replaces)
    _take_along(graph, before, found)
    for name, old in before.items():
        if name not in found:
            found[name] = Step("delete", old["type"], name)
    return tuple(found[name] for name in sorted(found))


def elsewhere(record: dict[str, Any], graph: Graph) -> bool:
    """Whether a resource was made in another cloud or region than the graph's."""
    return list(record["place"]) != [graph.provider, graph.region]


def _take_along(
    graph: Graph, before: dict[str, Any], found: dict[str, Step]
) -> None:
    """Mark what must be deleted before something it needs is replaced."""
    gone = {
        r.name
        for r in graph.resources
        if found[r.name].action == "replace"
        and r.options.get("delete_before_replace")
    }
    for resource in graph.resources:
        if resource.name in before and (
            resource.name in gone or _over(resource, graph, gone)
        ):
            found[resource.name] = Step(
                "replace", resource.type, resource.name, FIRST
            )


def _over(resource: Resource, graph: Graph, moved: set[str]) -> bool:
    """Whether anything that a resource needs, at any distance, is in `moved`."""
    known = {r.name: r for r in graph.resources}
    seen: set[str] = set()
    stack = resource.needs()
    while stack:
        name = stack.pop()
        if name in moved:
            return True
        if name not in seen:
            seen.add(name)
            stack += known[name].needs()
    return False


def _step(
    resource: Resource,
    old: dict[str, Any] | None,
    replaces: Callable[[str, dict[str, Any], dict[str, Any]], list[str]],
) -> Step:
    if old is None:
        return Step("create", resource.type, resource.name)
    if old["type"] != resource.type:
        return Step("replace", resource.type, resource.name, ("type",))
    before, after = (
        ignoring(resource, old["inputs"]),
        ignoring(resource, resource.inputs),
    )
    changed = tuple(
        k for k in sorted({*before, *after}) if before.get(k) != after.get(k)
    )
    if not changed:
        return Step("same", resource.type, resource.name)
    forced = replaces(resource.type, before, after)
    forced += [
        k
        for k in resource.options.get("replace_on_changes", [])
        if k in changed
    ]
    action: Action = "replace" if forced else "update"
    return Step(action, resource.type, resource.name, tuple(forced) or changed)


def ignoring(resource: Resource, inputs: dict[str, Any]) -> dict[str, Any]:
    """Leave out what others may change: `desiredCapacity`, `sku.capacity`."""
    found = dict(inputs)
    for path in resource.options.get("ignore_changes", []):
        head, _, rest = path.partition(".")
        if rest and isinstance(found.get(head), dict):
            found[head] = {k: v for k, v in found[head].items() if k != rest}
        elif not rest:
            found.pop(head, None)
    return found
