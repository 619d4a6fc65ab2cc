"""The queue of an exact search, best first, with the proof that the search may end."""

from __future__ import annotations

import heapq
import itertools
import math
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

EntryT = TypeVar("EntryT")


class Frontier(Generic[EntryT]):
    """What a search has left: each entry stands for the solutions that it may still become.

    A search keeps two promises:

    1. The bound of an entry is at most the objective of every solution that it stands for.
    2. An entry that is taken is replaced by entries that stand for the same solutions, but for
       those that the search has seen or that are not allowed.

    Then every solution that is not seen has an entry with

        objective >= bound of its entry >= least bound of the frontier

    so once the least bound exceeds a cutoff, no solution left has an objective within it: what
    `take` proves by returning nothing. Whoever searches passes the objective of the last
    solution that it would still return, and bounds equal to it are taken, so that ties are
    decided by the order of solutions and not by luck.

    Every bound is taken `scale` times: objectives may have a part that grows with all of the rest.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self._heap: list[tuple[float, tuple[object, ...], int, EntryT]] = []
        # Entries have no order: the first of two equal ones goes first.
        self._push_counter: Iterator[int] = itertools.count()

    def push(
        self, bound: float, entry: EntryT, tie_order: tuple[object, ...] = ()
    ) -> None:
        """Add an entry. Of equal bounds the one with the least `tie_order` is taken first."""
        heapq.heappush(
            self._heap,
            (bound * self.scale, tie_order, next(self._push_counter), entry),
        )

    @property
    def least_bound(self) -> float:
        """The least bound of all entries; infinite when none is left."""
        return self._heap[0][0] if self._heap else math.inf

    def peek(self) -> EntryT | None:
        """Return the entry with the least bound and leave it; nothing when none is left."""
        return self._heap[0][3] if self._heap else None

    def take(self, cutoff: float = math.inf) -> tuple[float, EntryT] | None:
        """Take the entry with the least bound, with that bound.

        Nothing when no entry is left, or when the least bound exceeds the cutoff.
        """
        if not self._heap or self._heap[0][0] > cutoff:
            return None
        bound, _, _, entry = heapq.heappop(self._heap)
        return bound, entry
