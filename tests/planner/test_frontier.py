"""The frontier of an exact search finds what looking at everything finds, and looks at less."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from planner.frontier import Frontier


@dataclass(frozen=True)
class Branch:
    """Solutions with their objectives, in branches, under a bound that none of them is below."""

    bound: float
    solutions: tuple[float, ...]
    branches: tuple[Branch, ...]


def leaf(objectives: list[float]) -> Branch:
    return Branch(min(objectives, default=math.inf), tuple(objectives), ())


def joined(children: tuple[list[Branch], float]) -> Branch:
    branches, slack = children
    least = min((branch.bound for branch in branches), default=math.inf)
    return Branch(least - slack, (), tuple(branches))


OBJECTIVE = st.integers(0, 30).map(float)
TREE = st.recursive(
    st.lists(OBJECTIVE, max_size=4).map(leaf),
    lambda children: st.tuples(
        st.lists(children, max_size=4), st.integers(0, 10).map(float)
    ).map(joined),
    max_leaves=25,
)


def everything(branch: Branch) -> list[float]:
    """All solutions, found by looking at each."""
    return sorted(
        [
            *branch.solutions,
            *(x for child in branch.branches for x in everything(child)),
        ]
    )


def best_first(tree: Branch, wanted: int) -> tuple[list[float], list[float]]:
    """The best solutions as a search finds them, and the bounds of what it opened."""
    frontier: Frontier[Branch] = Frontier()
    frontier.push(tree.bound, tree)
    found: list[float] = []
    opened = []
    cutoff = math.inf
    while (taken := frontier.take(cutoff)) is not None:
        bound, branch = taken
        opened.append(bound)
        found = sorted([*found, *branch.solutions])
        if len(found) >= wanted:
            cutoff = found[wanted - 1]
        for child in branch.branches:
            frontier.push(child.bound, child)
    assert frontier.least_bound > cutoff or frontier.peek() is None
    return found[:wanted], opened


@given(TREE, st.integers(1, 5))
def test_the_best_solutions_are_those_of_everything(
    tree: Branch, wanted: int
) -> None:
    found, opened = best_first(tree, wanted)
    assert found == everything(tree)[:wanted]
    # Nothing is opened whose bound lies above the last solution that is returned.
    if len(found) == wanted:
        assert all(bound <= found[-1] for bound in opened)


@given(st.lists(st.tuples(OBJECTIVE, st.integers(0, 3)), max_size=12))
def test_entries_are_taken_by_bound_then_tie_order_then_arrival(
    entries: list[tuple[float, int]],
) -> None:
    frontier: Frontier[int] = Frontier()
    for arrival, (bound, order) in enumerate(entries):
        frontier.push(bound, arrival, (order,))
    taken = []
    while (entry := frontier.take()) is not None:
        taken.append(entry[1])
    assert taken == sorted(range(len(entries)), key=lambda i: (entries[i], i))


def test_an_entry_beyond_the_cutoff_stays() -> None:
    frontier: Frontier[str] = Frontier()
    assert frontier.take() is None
    assert frontier.least_bound == math.inf
    frontier.push(2.0, "far")
    assert frontier.take(1.9) is None
    assert frontier.peek() == "far"
    assert frontier.take(2.0) == (2.0, "far")
