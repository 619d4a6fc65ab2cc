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

from planner.perf.common.constant import constant
from planner.perf.common.memory import GIB
from planner.perf.training.coefficients import TRAINING_TABLE, coefficient_keys
from planner.perf.training.enumeration import enumerate_cuts, microbatch_sizes
from planner.perf.training.lower_bound import step_lower_bound
from planner.perf.training.memory import peak_gib
from planner.perf.training.model_states import model_states
from planner.perf.training.step import StepTime, step_time
from planner.perf.training.work import rank_work

if TYPE_CHECKING:
    from planner.perf.training.job import Job, ParallelLayout, Recompute
    from planner.perf.training.lower_bound import CommBound

SearchStage: TypeAlias = Literal[
    "toll", "fits", "layout"
]  # of a cut, until it is one layout
RECOMPUTE_LEVELS: Final[dict[Recompute, tuple[Recompute, ...]]] = {
    "none": ("layer", "full"),
    "layer": ("full",),
    "full": (),
}


@dataclass(frozen=True, slots=True)
class TimedLayout:
    """A layout with its time, its peak memory and what limits it."""

    job: Job
    step_time: StepTime
    peak_gib: float

    @property
    def bottleneck(self) -> str:
        """What costs most beside computing: memory when it forces recomputation."""
        cause_times_s = {
            "pipeline bubble": self.step_time.bubble,
            "fabric": self.step_time.sharding + self.step_time.once_a_step,
            "tensor parallelism": self.step_time.tensor_comm,
            "experts' exchange": self.step_time.token_exchange,
            "memory": self.step_time.recomputation,
        }
        largest_cause = max(
            cause_times_s,
            key=lambda cause_name: (cause_times_s[cause_name], cause_name),
        )
        return (
            largest_cause
            if cause_times_s[largest_cause] > 0.02 * self.step_time.total
            else "computing"
        )

    @property
    def sort_key(self) -> tuple[float, int, int, int, float]:
        """The documented order of ties: time, stages, tensor, context, micro-batch."""
        layout = self.job.layout
        return (
            self.step_time.total,
            layout.pp,
            layout.tp,
            layout.cp,
            layout.micro,
        )


class CandidateCuts:
    """The layouts of a job on one kind of accelerator, whatever network joins its machines."""

    def __init__(
        self, job: Job, accelerators: int, node_accelerators: int
    ) -> None:
        self.job = job
        self.lower_bound = step_lower_bound(job)
        self.memory_room_gib = (
            constant("train_memory_share") * job.chip.memory_gib
        )
        cut_layouts = enumerate_cuts(
            job.llm,
            job.global_batch,
            job.sequence_tokens,
            accelerators,
            node_accelerators,
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
                ] = self.lower_bound.bound_cut(job, cut_layout)
        self.bounded_cuts = sorted(
            (
                cut_bounds_s[
                    cut_layout.tp, cut_layout.pp, cut_layout.cp, cut_layout.ep
                ],
                cut_index,
                cut_layout,
            )
            for cut_index, cut_layout in enumerate(cut_layouts)
        )
        self._peaks_gib: dict[ParallelLayout, float] = {}

    def layout_peak_gib(self, layout: ParallelLayout) -> float:
        """GiB at the peak of a layout; infinite when its states alone are too many."""
        if layout not in self._peaks_gib:
            layout_job = self.job.with_layout(layout)
            is_too_large = (
                model_states(layout_job).total / GIB > self.memory_room_gib
            )
            self._peaks_gib[layout] = (
                math.inf if is_too_large else peak_gib(layout_job)
            )
        return self._peaks_gib[layout]

    def fit_memory(self, layout: ParallelLayout) -> ParallelLayout | None:
        """The layout with the recomputation that it takes to fit, or nothing when it does not."""
        if self.layout_peak_gib(layout) <= self.memory_room_gib:
            return layout
        if self.layout_peak_gib(layout) == math.inf:
            return None
        alternatives = [
            layout.with_microbatch(layout.micro, layout.vpp, recompute)
            for recompute in RECOMPUTE_LEVELS[layout.recompute]
        ]
        if (
            not alternatives
            or self.layout_peak_gib(alternatives[-1]) > self.memory_room_gib
        ):
            return None
        return next(
            alternative
            for alternative in alternatives
            if self.layout_peak_gib(alternative) <= self.memory_room_gib
        )


# Machines that differ in their network, their host or their price share a frame.
candidate_cuts = lru_cache(maxsize=512)(CandidateCuts)


class LayoutSearch:
    """The layouts of a job that fit its memory, in the order of the least that each can take."""

    def __init__(
        self, job: Job, accelerators: int, node_accelerators: int
    ) -> None:
        self.job = job
        self.accelerators = accelerators
        self.node_accelerators = node_accelerators
        self.lower_bound = step_lower_bound(
            replace(job, network_bytes_s=1.0)
        ).with_network(job.network_bytes_s)
        self._tie_breaker = itertools.count()
        self._open_entries: list[
            tuple[float, int, ParallelLayout, CommBound, SearchStage]
        ] = []
        self._timed_layouts: list[TimedLayout] = []

    def fastest(
        self, layout_count: int = 5, limit_s: float = math.inf
    ) -> list[TimedLayout]:
        """The fastest layouts that fit and take at most `limit_s` seconds a step, the best first.

        A layout recomputes no more than memory asks for. Asked again, the search goes on.
        """
        while (
            next_layout := self._pop_layout(
                self._cutoff_s(layout_count, limit_s)
            )
        ) is not None:
            layout_job, layout_peak = next_layout
            timed_layout = TimedLayout(
                layout_job,
                step_time(
                    rank_work(layout_job),
                    TRAINING_TABLE.select(coefficient_keys(layout_job)),
                ),
                layout_peak,
            )
            self._timed_layouts = sorted(
                [*self._timed_layouts, timed_layout],
                key=lambda timed_entry: timed_entry.sort_key,
            )
        return [
            timed_entry
            for timed_entry in self._timed_layouts[:layout_count]
            if timed_entry.step_time.total <= limit_s
        ]

    def _cutoff_s(self, layout_count: int, limit_s: float) -> float:
        """Seconds beyond which nothing is looked for."""
        has_enough = len(self._timed_layouts) >= layout_count
        return (
            min(limit_s, self._timed_layouts[layout_count - 1].step_time.total)
            if has_enough
            else limit_s
        )

    @cached_property
    def candidates(self) -> CandidateCuts:
        """What does not depend on the network."""
        return candidate_cuts(
            replace(self.job, network_bytes_s=1.0),
            self.accelerators,
            self.node_accelerators,
        )

    @cached_property
    def _cut_queue(self) -> deque[tuple[float, int, ParallelLayout]]:
        return deque(self.candidates.bounded_cuts)

    @property
    def bound_compute(self) -> float:
        """Seconds that no layout undercuts, as far as can be told without looking at any."""
        return self.lower_bound.layout_free_s / self.accelerators

    @property
    def bound_any_network(self) -> float:
        """Seconds that no layout undercuts over any network; infinite when there is none."""
        return (
            self.candidates.bounded_cuts[0][0]
            if self.candidates.bounded_cuts
            else math.inf
        )

    @property
    def bound(self) -> float:
        """Seconds that no layout undercuts; infinite when none is left."""
        while self._cut_queue or self._open_entries:
            if self._cut_queue and (
                not self._open_entries
                or self._cut_queue[0][0] <= self._open_entries[0][0]
            ):
                cut_layout = self._cut_queue.popleft()[2]
                self._push_entry(
                    cut_layout,
                    self.lower_bound.comm_bound(
                        self.job.with_layout(cut_layout)
                    ),
                    "toll",
                )
            elif self._open_entries[0][4] == "toll":
                _, _, cut_layout, comm_bound, _ = heapq.heappop(
                    self._open_entries
                )
                self._push_entry(
                    self.candidates.fit_memory(cut_layout), comm_bound, "fits"
                )
            else:
                return self._open_entries[0][0]
        return math.inf

    def _pop_layout(self, limit_s: float) -> tuple[Job, float] | None:
        """The next layout and its peak GiB, or nothing when none can take less than a limit."""
        while self.bound <= limit_s and self._open_entries:
            _, _, layout, comm_bound, search_stage = heapq.heappop(
                self._open_entries
            )
            if search_stage == "fits":
                self._open_cut(layout, comm_bound)
            elif (
                self.candidates.layout_peak_gib(layout)
                <= self.candidates.memory_room_gib
            ):
                return self.job.with_layout(
                    layout
                ), self.candidates.layout_peak_gib(layout)
            else:
                self._push_entry(
                    self.candidates.fit_memory(layout), comm_bound, "layout"
                )
        return None

    def _open_cut(
        self, cut_layout: ParallelLayout, comm_bound: CommBound
    ) -> None:
        """Every layout of a cut; larger micro-batches and more chunks never take less memory."""
        for micro_batch, chunk_counts in microbatch_sizes(self.job, cut_layout):
            fitted_layout = self.candidates.fit_memory(
                cut_layout.with_microbatch(
                    float(micro_batch), 1, cut_layout.recompute
                )
            )
            if fitted_layout is None:
                break
            for vpp in chunk_counts:
                self._push_entry(
                    fitted_layout.with_microbatch(
                        fitted_layout.micro, vpp, fitted_layout.recompute
                    ),
                    comm_bound,
                    "layout",
                )

    def _push_entry(
        self,
        layout: ParallelLayout | None,
        comm_bound: CommBound,
        search_stage: SearchStage,
    ) -> None:
        """Look at a cut or a layout again in its turn; nothing when it does not fit."""
        if layout is not None:
            bound_s = (
                self.lower_bound.bound_layout
                if search_stage == "layout"
                else self.lower_bound.bound_cut
            )(self.job, layout, comm_bound)
            heapq.heappush(
                self._open_entries,
                (
                    bound_s,
                    next(self._tie_breaker),
                    layout,
                    comm_bound,
                    search_stage,
                ),
            )
