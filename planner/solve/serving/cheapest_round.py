"""The cheapest way through the stretches of a week that ends as it began.

Each stretch has the cost of its states, which are groups of two kinds. A move from one to the next
costs what starts, and groups that leave cost nothing.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Groups of both kinds.
Counts: TypeAlias = "tuple[int, int]"
# The states of a stretch with their cost in USD, which may be the same object in many stretches.
Stretch: TypeAlias = "Mapping[Counts, float]"
# For each stretch of a part the cost of the cheapest ways to its states, from one state before it.
_Ways: TypeAlias = "list[dict[Counts, float]]"


class CheapestRound:
    """A week whose last stretch comes before the first one.

    It is cut into parts, at each occurrence of the stretch with the fewest states. Days are alike,
    so few parts are different, and the cheapest ways through each are looked for once.
    """

    def __init__(
        self, stretches: Sequence[Stretch], start_usd: tuple[float, float]
    ) -> None:
        self._stretches = stretches
        self._start_usd = start_usd
        self._cut = min(stretches, key=len)
        self._known: dict[tuple[tuple[int, ...], Counts], _Ways] = {}

    @property
    def move_count(self) -> int:
        """To how many states ways have to be looked for."""
        different = {id(stretch): stretch for stretch in self._stretches}
        return len(self._cut) * sum(map(len, different.values()))

    def cheapest(self) -> tuple[float, list[Counts]]:
        """Return the cost of the cheapest round in USD, and its state in each stretch."""
        cuts = [
            number
            for number, stretch in enumerate(self._stretches)
            if stretch is self._cut
        ]
        # From each cut to the next one, which a part has in place of its own.
        parts = [
            [
                self._stretches[(number + 1) % len(self._stretches)]
                for number in range(first, following)
            ]
            for first, following in itertools.pairwise(
                [*cuts, cuts[0] + len(self._stretches)]
            )
        ]
        usd, states = min(
            (self._round_from(start, parts) for start in self._cut),
            key=lambda found: found[0],
        )
        path = [
            state
            for part, (before, after) in zip(
                parts, itertools.pairwise(states), strict=True
            )
            for state in self._path(part, before, after)
        ]
        # The first part begins after the first cut.
        shift = cuts[0] + 1
        return usd, [*path[-shift:], *path[:-shift]]

    def _round_from(
        self, start: Counts, parts: Sequence[Sequence[Stretch]]
    ) -> tuple[float, list[Counts]]:
        """Return the cheapest round from a state of the first cut, and its states at all cuts."""
        reached: list[dict[Counts, tuple[float, Counts]]] = [
            {start: (0.0, start)}
        ]
        for part in parts:
            following: dict[Counts, tuple[float, Counts]] = {}
            for before, (usd, _) in reached[-1].items():
                for after, more_usd in self._ways(part, before)[-1].items():
                    way = usd + more_usd, before
                    following[after] = min(way, following.get(after, way))
            reached.append(following)
        states = [start]
        for ways in reversed(reached[1:]):
            states.append(ways[states[-1]][1])
        return reached[-1][start][0], states[::-1]

    def _ways(self, part: Sequence[Stretch], before: Counts) -> _Ways:
        """Return the cheapest ways through a part from a state before it."""
        # Equal stretches are one object, as long as a round lives.
        key = tuple(map(id, part)), before
        if key not in self._known:
            ways: _Ways = [{before: 0.0}]
            for costs in part:
                moved = self._moved(ways[-1], costs)
                ways.append(
                    {state: moved[state] + usd for state, usd in costs.items()}
                )
            self._known[key] = ways
        return self._known[key]

    def _path(
        self, part: Sequence[Stretch], before: Counts, after: Counts
    ) -> list[Counts]:
        """Return the states of the cheapest way through a part, without that before it."""
        path = [after]
        for ways in reversed(self._ways(part, before)[1:-1]):
            path.append(self._came_from(ways, path[-1]))
        return path[::-1]

    def _came_from(self, ways: Mapping[Counts, float], after: Counts) -> Counts:
        """Return the state from which the cheapest way to another one comes."""
        first_usd, second_usd = self._start_usd
        return min(
            ways,
            key=lambda state: (
                ways[state]
                + first_usd * max(0, after[0] - state[0])
                + second_usd * max(0, after[1] - state[1])
            ),
        )

    def _moved(
        self, ways: Mapping[Counts, float], targets: Iterable[Counts]
    ) -> dict[Counts, float]:
        """Return the cost of the cheapest ways to some states, one kind after the other.

        What starts of one kind does not depend on the other: a way by a state between them costs
        the same.
        """
        targets = [*targets]
        numbers = [
            sorted({state[kind] for state in itertools.chain(ways, targets)})
            for kind in (0, 1)
        ]
        first_numbers, second_numbers = numbers
        by_second = {
            beside: _with_starts(
                [
                    ways.get((groups, beside), math.inf)
                    for groups in first_numbers
                ],
                first_numbers,
                self._start_usd[0],
            )
            for beside in second_numbers
        }
        by_first = {
            groups: dict(
                zip(
                    second_numbers,
                    _with_starts(
                        [by_second[beside][row] for beside in second_numbers],
                        second_numbers,
                        self._start_usd[1],
                    ),
                    strict=True,
                )
            )
            for row, groups in enumerate(first_numbers)
        }
        return {state: by_first[state[0]][state[1]] for state in targets}


def _with_starts(
    ways: list[float], numbers: list[int], start_usd: float
) -> list[float]:
    """Return the cheapest ways to some numbers of groups, of ways to each of them."""
    least = [*ways]
    # From more groups some leave.
    for index in range(len(least) - 2, -1, -1):
        least[index] = min(least[index], least[index + 1])
    # From fewer some start.
    for index in range(1, len(least)):
        started = numbers[index] - numbers[index - 1]
        least[index] = min(least[index], least[index - 1] + started * start_usd)
    return least
