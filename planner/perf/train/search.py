"""Exact search of the layout of a training job on a given number of accelerators.

Every layout that the rules allow is a candidate. In the order of a lower bound of their step time
they are checked for memory and timed, until the bound exceeds the best found: what is not timed
cannot be faster. A cut stands for all layouts within it until its bound is the least.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from planner.perf.constant import constant
from planner.perf.memory import GIB
from planner.perf.train.coefficient import TRAINING, keys
from planner.perf.train.cut import cuts, turned
from planner.perf.train.floor import floor
from planner.perf.train.memory import peak_gib
from planner.perf.train.states import states
from planner.perf.train.step import Step, step
from planner.perf.train.work import work

if TYPE_CHECKING:
    from planner.perf.train.floor import Toll
    from planner.perf.train.job import Job, Recompute, Spread

Known: TypeAlias = Literal[
    "toll", "fits", "layout"
]  # of a cut, until it is one layout
MORE: Final[dict[Recompute, tuple[Recompute, ...]]] = {
    "none": ("layer", "full"),
    "layer": ("full",),
    "full": (),
}


@dataclass(frozen=True, slots=True)
class Laid:
    """A layout with its time, its peak memory and what limits it."""

    job: Job
    step: Step
    peak_gib: float

    @property
    def limit(self) -> str:
        """What costs most beside computing: memory when it forces recomputation."""
        cause_times_s = {
            "pipeline bubble": self.step.bubble,
            "fabric": self.step.sharding + self.step.once,
            "tensor parallelism": self.step.tensor,
            "experts' exchange": self.step.exchange,
            "memory": self.step.again,
        }
        largest_cause = max(
            cause_times_s,
            key=lambda cause_name: (cause_times_s[cause_name], cause_name),
        )
        return (
            largest_cause
            if cause_times_s[largest_cause] > 0.02 * self.step.total
            else "computing"
        )

    @property
    def rank(self) -> tuple[float, int, int, int, float]:
        """The documented order of ties: time, stages, tensor, context, micro-batch."""
        layout = self.job.spread
        return (self.step.total, layout.pp, layout.tp, layout.cp, layout.micro)


class Frame:
    """The layouts of a job on one kind of accelerator, whatever network joins its machines."""

    def __init__(
        self, job: Job, accelerators: int, node_accelerators: int
    ) -> None:
        self.job, self.floor = job, floor(job)
        self.room = constant("train_memory_share") * job.chip.memory_gib
        cut_layouts = cuts(
            job.llm, job.batch, job.sequence, accelerators, node_accelerators
        )
        cut_bounds_s: dict[
            tuple[int, int, int, int], float
        ] = {}  # whatever the sharding
        for cut_layout in cut_layouts:
            if (
                cut_layout.tp,
                cut_layout.pp,
                cut_layout.cp,
                cut_layout.ep,
            ) not in cut_bounds_s:
                cut_bounds_s[
                    cut_layout.tp, cut_layout.pp, cut_layout.cp, cut_layout.ep
                ] = self.floor.cut(job, cut_layout)
        self.cuts = sorted(
            (
                cut_bounds_s[
                    cut_layout.tp, cut_layout.pp, cut_layout.cp, cut_layout.ep
                ],
                cut_index,
                cut_layout,
            )
            for cut_index, cut_layout in enumerate(cut_layouts)
        )
        self._peaks: dict[Spread, float] = {}

    def peak(self, layout: Spread) -> float:
        """GiB at the peak of a layout; infinite when its states alone are too many."""
        if layout not in self._peaks:
            layout_job = self.job.laid(layout)
            is_too_large = states(layout_job).total / GIB > self.room
            self._peaks[layout] = (
                math.inf if is_too_large else peak_gib(layout_job)
            )
        return self._peaks[layout]

    def fitted(self, layout: Spread) -> Spread | None:
        """The layout with the recomputation that it takes to fit, or nothing when it does not."""
        if self.peak(layout) <= self.room:
            return layout
        if self.peak(layout) == math.inf:
            return None
        alternatives = [
            layout.turned(layout.micro, layout.vpp, recompute)
            for recompute in MORE[layout.recompute]
        ]
        if not alternatives or self.peak(alternatives[-1]) > self.room:
            return None
        return next(
            alternative
            for alternative in alternatives
            if self.peak(alternative) <= self.room
        )


# Machines that differ in their network, their host or their price share a frame.
frame = lru_cache(maxsize=512)(Frame)


class Layouts:
    """The layouts of a job that fit its memory, in the order of the least that each can take."""

    def __init__(
        self, job: Job, accelerators: int, node_accelerators: int
    ) -> None:
        self.job, self.accelerators, self.machine = (
            job,
            accelerators,
            node_accelerators,
        )
        self.floor = floor(replace(job, network=1.0)).over(job.network)
        self._count = itertools.count()
        self._heap: list[tuple[float, int, Spread, Toll, Known]] = []
        self._found: list[Laid] = []

    def best(
        self, layout_count: int = 5, limit_s: float = math.inf
    ) -> list[Laid]:
        """The fastest layouts that fit and take at most `limit` seconds a step, the best first.

        A layout recomputes no more than memory asks for. Asked again, the search goes on.
        """
        while (
            next_layout := self._next(self._last(layout_count, limit_s))
        ) is not None:
            layout_job, layout_peak = next_layout
            timed_layout = Laid(
                layout_job,
                step(work(layout_job), TRAINING.at(keys(layout_job))),
                layout_peak,
            )
            self._found = sorted(
                [*self._found, timed_layout],
                key=lambda timed_entry: timed_entry.rank,
            )
        return [
            timed_entry
            for timed_entry in self._found[:layout_count]
            if timed_entry.step.total <= limit_s
        ]

    def _last(self, layout_count: int, limit_s: float) -> float:
        """Seconds beyond which nothing is looked for."""
        has_enough = len(self._found) >= layout_count
        return (
            min(limit_s, self._found[layout_count - 1].step.total)
            if has_enough
            else limit_s
        )

    @cached_property
    def frame(self) -> Frame:
        """What does not depend on the network."""
        return frame(
            replace(self.job, network=1.0), self.accelerators, self.machine
        )

    @cached_property
    def _cuts(self) -> deque[tuple[float, int, Spread]]:
        return deque(self.frame.cuts)

    @property
    def glance(self) -> float:
        """Seconds that no layout undercuts, as far as can be told without looking at any."""
        return self.floor.step / self.accelerators

    @property
    def first(self) -> float:
        """Seconds that no layout undercuts over any network; infinite when there is none."""
        return self.frame.cuts[0][0] if self.frame.cuts else math.inf

    @property
    def least(self) -> float:
        """Seconds that no layout undercuts; infinite when none is left."""
        while self._cuts or self._heap:
            if self._cuts and (
                not self._heap or self._cuts[0][0] <= self._heap[0][0]
            ):
                cut_layout = self._cuts.popleft()[2]
                self._push(
                    cut_layout,
                    self.floor.toll(self.job.laid(cut_layout)),
                    "toll",
                )
            elif self._heap[0][4] == "toll":
                _, _, cut_layout, comm_bound, _ = heapq.heappop(self._heap)
                self._push(self.frame.fitted(cut_layout), comm_bound, "fits")
            else:
                return self._heap[0][0]
        return math.inf

    def _next(self, limit_s: float) -> tuple[Job, float] | None:
        """The next layout and its peak GiB, or nothing when none can take less than a limit."""
        while self.least <= limit_s and self._heap:
            _, _, layout, comm_bound, search_stage = heapq.heappop(self._heap)
            if search_stage == "fits":
                self._open(layout, comm_bound)
            elif self.frame.peak(layout) <= self.frame.room:
                return self.job.laid(layout), self.frame.peak(layout)
            else:
                self._push(self.frame.fitted(layout), comm_bound, "layout")
        return None

    def _open(self, cut_layout: Spread, comm_bound: Toll) -> None:
        """Every layout of a cut; larger micro-batches and more chunks never take less memory."""
        for micro_batch, chunk_counts in turned(self.job, cut_layout):
            fitted_layout = self.frame.fitted(
                cut_layout.turned(float(micro_batch), 1, cut_layout.recompute)
            )
            if fitted_layout is None:
                break
            for vpp in chunk_counts:
                self._push(
                    fitted_layout.turned(
                        fitted_layout.micro, vpp, fitted_layout.recompute
                    ),
                    comm_bound,
                    "layout",
                )

    def _push(
        self, layout: Spread | None, comm_bound: Toll, search_stage: Known
    ) -> None:
        """Look at a cut or a layout again in its turn; nothing when it does not fit."""
        if layout is not None:
            bound_s = (
                self.floor.of if search_stage == "layout" else self.floor.cut
            )(self.job, layout, comm_bound)
            heapq.heappush(
                self._heap,
                (bound_s, next(self._count), layout, comm_bound, search_stage),
            )
