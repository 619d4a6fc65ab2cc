"""Keys of a spec that say something else than its file: what a plan would be then."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.errors import Place, Problem, SpecError
from planner.spec.source import MappingNode, parse_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from planner.spec.source import Node

KEY_PATH: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
FLAG: Final = "--set"


class KeyOverride(Struct, frozen=True):
    """A key such as traffic.peak_rps, and its value as a spec would write it."""

    key: str
    text: str

    def __str__(self) -> str:
        """Return KEY=VALUE, as the command line takes it."""
        return f"{self.key}={self.text}"


def parse_override(text: str) -> KeyOverride:
    """Return the override of KEY=VALUE; raises ValueError for another text."""
    key, equals, said = text.partition("=")
    if not equals or not KEY_PATH.fullmatch(key.strip()) or not said.strip():
        raise ValueError(
            "write KEY=VALUE, for example traffic.peak_rps=12 or sla.ttft_p95=600ms"
        )
    return KeyOverride(key.strip(), said.strip())


def overridden(root: MappingNode, overrides: Iterable[KeyOverride]) -> Node:
    """Return the tree of a spec in which some keys say something else, or are there at all.

    A value is read as in the file, and its place is the flag that says it. Raises SpecError for
    one that is no YAML, and for a key below a value that has no keys.
    """
    tree: Node = root
    for override in overrides:
        said = parse_yaml(override.text.encode(), f"{FLAG} {override.key}")
        tree = _with_node(tree, override.key.split("."), said)
    return tree


def blamed(
    problems: Sequence[Problem],
    spec_path: str,
    overrides: Sequence[KeyOverride],
    problems_of: Callable[[Sequence[KeyOverride]], Iterable[Problem]],
) -> Sequence[Problem]:
    """Return problems, each at the override that brings it; those of the file keep their place.

    It is the one after which a problem is there, and goes on to be there with all that follow.
    `problems_of` returns the problems of the file with the first ones of the overrides.
    """
    if not overrides:
        return problems
    seen = [
        {(problem.code, problem.message) for problem in problems_of(said)}
        for said in (overrides[:count] for count in range(len(overrides) + 1))
    ]
    return [
        problem
        if problem.place is None
        or problem.place.path != spec_path
        # A key that stands in the file is told where it stands.
        or problem.code == "unknown-key"
        else replace(problem, place=_place_of_cause(problem, overrides, seen))
        for problem in problems
    ]


def _place_of_cause(
    problem: Problem,
    overrides: Sequence[KeyOverride],
    seen: Sequence[set[tuple[str, str]]],
) -> Place | None:
    """Return the place of the override that brings a problem; its own where none does."""
    subject = (problem.code, problem.message)
    if subject not in seen[-1]:
        return problem.place
    for override, before in zip(
        reversed(overrides), reversed(seen[:-1]), strict=True
    ):
        if subject not in before:
            return Place(f"{FLAG} {override.key}", 1, 1)
    return problem.place


def _with_node(node: Node, keys: Sequence[str], said: Node) -> Node:
    """Return a copy of a node with another one below it; the nodes beside it are shared."""
    if not keys:
        return said
    if not isinstance(node, MappingNode):
        raise SpecError(
            Problem(
                code="type",
                message=f"the spec has a value where '{keys[0]}' would be a key in it",
                place=said.place,
                next_step="set the key above it",
            )
        )
    key, *inner_keys = keys
    inner = node.nodes.get(key, MappingNode(said.place))
    return MappingNode(
        node.place,
        {**node.nodes, key: _with_node(inner, inner_keys, said)},
        # What the file has keeps its line.
        {key: said.place, **node.key_places},
    )
