"""Exact search of the fastest layout of a training job on a number of accelerators.

Best-first branch and bound over partitions and layouts, by a lower bound of their step time.
A partition represents all its layouts until its bound is the least, and a family of partitions
represents all of these.
"""

from __future__ import annotations

import math
from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from planner.frontier import Frontier
from planner.perf.training.candidate_cuts import candidate_cuts
from planner.perf.training.coefficients import training_coefficients
from planner.perf.training.enumeration import microbatch_sizes
from planner.perf.training.lower_bound import step_lower_bound
from planner.perf.training.step import StepTime, step_time
from planner.perf.training.work import rank_work

if TYPE_CHECKING:
    from planner.perf.training.candidate_cuts import CandidateCuts
    from planner.perf.training.enumeration import CutFamily
    from planner.perf.training.job import Job, ParallelLayout
    from planner.perf.training.lower_bound import CommBound

USUAL_CONFIDENCE: Final = 0.9  # with which a layout fits memory
# How far the search has come with an entry; see LayoutSearch.
SearchStage: TypeAlias = Literal[
    "sent", "unchecked", "fits", "chunks", "layout"
]
# Stages of partitions whose communication or memory is not counted yet.
UNCOUNTED: Final = ("sent", "unchecked")


class TimedLayout(Struct, frozen=True):
    """A layout with its step time and its peak memory.

    job        the job in this layout
    step_time  step time and its parts, s
    peak_gib   peak memory of one accelerator, GiB
    """

    job: Job
    step_time: StepTime
    peak_gib: float

    @property
    def bottleneck(self) -> str:
        """Largest cost beside computing.

        A cause counts above 2 % of the step. Recomputation counts as a lack of memory.
        """
        cause_times_s = {
            "pipeline bubble": self.step_time.bubble,
            # Exposed gathers, reduction of gradients and the optimizer.
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
            # A cost within 2 % of the step does not limit a layout.
            if cause_times_s[largest_cause] > 0.02 * self.step_time.total
            else "computing"
        )

    @property
    def sort_key(self) -> tuple[float, int, int, int, float]:
        """Order of layouts: time; ties by stages, tensor, context, micro-batch."""
        layout = self.job.layout
        return (
            self.step_time.total,
            layout.pp,
            layout.tp,
            layout.cp,
            layout.micro,
        )


def _without_network(job: Job) -> Job:
    """Return the job that stands for the same one over any network."""
    return job._replace(network_bytes_s=1.0, network_latency_s=0.0)


class _OpenEntry(Struct, frozen=True):
    """A layout, or a partition by its first one, with its communication time and its stage.

    A layout stands for those with other numbers of chunks too. Theirs are fewer, and their
    bubble is larger; at the stage `chunks` its own is among them.
    """

    layout: ParallelLayout
    comm_bound: CommBound
    stage: SearchStage
    chunk_counts: tuple[int, ...] = ()


class LayoutSearch:
    """Best-first search over the layouts of a job that fit memory.

    An entry of the frontier is a partition by what its tokens send, one by all communication
    whose memory is not checked, one that fits memory, a micro-batch of one with partial
    recomputation, or one layout.
    """

    def __init__(
        self,
        job: Job,
        accelerators: int,
        node_accelerators: int,
        confidence: float = USUAL_CONFIDENCE,
    ) -> None:
        self.job = job
        self.confidence = confidence
        self.accelerators = accelerators
        self.node_accelerators = node_accelerators
        # The cached bound has a unit network and serves all networks.
        self.lower_bound = step_lower_bound(_without_network(job)).with_network(
            job.network_bytes_s
        )
        self._frontier: Frontier[_OpenEntry] = Frontier()
        self._timed_layouts: list[TimedLayout] = []

    def fastest(
        self, layout_count: int = 5, limit_s: float = math.inf
    ) -> list[TimedLayout]:
        """Return the fastest layouts that fit memory, the fastest first.

        At most `layout_count` layouts of at most `limit_s` seconds a step. Each has the least
        recomputation that fits. A further call continues the search.
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
                    training_coefficients(layout_job),
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
        """Return the step time in seconds above which no layout is of use."""
        has_enough = len(self._timed_layouts) >= layout_count
        return (
            # A layout slower than the last of the best changes nothing.
            min(limit_s, self._timed_layouts[layout_count - 1].step_time.total)
            if has_enough
            else limit_s
        )

    @cached_property
    def candidates(self) -> CandidateCuts:
        """Partitions and their bounds, shared by all networks."""
        return candidate_cuts(
            _without_network(self.job),
            self.accelerators,
            self.node_accelerators,
            self.confidence,
        )

    @cached_property
    def _family_queue(self) -> deque[tuple[float, int, CutFamily]]:
        return deque(self.candidates.bounded_families)

    @property
    def bound_compute(self) -> float:
        """Lower bound of the step time by computing alone, in seconds.

        step time of every layout >= `layout_free_s` / accelerators * scale
        """
        return self.lower_bound.bound_ranks(self.accelerators)

    @property
    def bound_any_network(self) -> float:
        """Lower bound of the step time over any network, in seconds.

        step time of every layout >= least bound of all partitions without network time

        Infinite without partitions.
        """
        return (
            self.candidates.bounded_families[0][0]
            if self.candidates.bounded_families
            else math.inf
        )

    @property
    def bound_fastest(self) -> float:
        """Lower bound of the step time of every layout, in seconds.

        min(`bound`, step time of the fastest layout that is timed)
        """
        if not self._timed_layouts:
            return self.bound
        return min(self.bound, self._timed_layouts[0].step_time.total)

    @property
    def bound(self) -> float:
        """Lower bound of the step time of the layouts not timed yet, in seconds.

        step time of every layout left >= least bound of the frontier

        Reading it changes the frontier: partitions enter it, and their communication and memory
        are counted, until the least entry fits memory or is a layout. Infinite when none is left.
        """
        while True:
            entry = self._frontier.peek()
            if self._family_queue and (
                # Partitions enter the frontier when the bound of their family is the least.
                entry is None
                or self._family_queue[0][0] <= self._frontier.least_bound
            ):
                self._enter_family(self._family_queue.popleft()[2])
            elif entry is None or entry.stage not in UNCOUNTED:
                return self._frontier.least_bound
            else:
                bound_s = self._frontier.least_bound
                self._frontier.take()
                self._push_next_stage(entry, bound_s)

    def _push_next_stage(self, entry: _OpenEntry, bound_s: float) -> None:
        """Add a partition at the stage after its own, where it may still fit memory."""
        layout = entry.layout
        if entry.stage == "sent":
            # Its communication is not counted where its states alone do not fit.
            if self.candidates.states_fit(layout):
                self._push_entry(layout, self._comm_bound(layout), "unchecked")
            return
        # Memory is checked at the least micro-batch, with one chunk.
        fitted_layout = self.candidates.fit_memory(layout)
        if fitted_layout is layout:
            # It recomputes no more than its bound counts.
            self._frontier.push(
                bound_s, _OpenEntry(layout, entry.comm_bound, "fits")
            )
        else:
            self._push_entry(fitted_layout, entry.comm_bound, "fits")

    def _enter_family(self, family: CutFamily) -> None:
        """Add partitions, each by the bound of what it sends.

        What tokens take between machines rules out most partitions of a mixture, and is counted
        in a fraction of the time of the traffic of sharded states.
        """
        for cut_layout, bound_s, sent in self.lower_bound.sent_bounds(
            self.job, family
        ):
            self._frontier.push(bound_s, _OpenEntry(cut_layout, sent, "sent"))

    def _comm_bound(self, cut_layout: ParallelLayout) -> CommBound:
        return self.lower_bound.comm_bound(
            self.job.with_layout(cut_layout),
            self.candidates.traffic(cut_layout),
        )

    def _pop_layout(self, limit_s: float) -> tuple[Job, float] | None:
        """Return the next layout and its peak memory in GiB.

        None when the bound of all that is left exceeds `limit_s`.
        """
        # Reading the bound brings the next entry to the front.
        while (
            self.bound <= limit_s
            and (taken := self._frontier.take()) is not None
        ):
            _, entry = taken
            layout, comm_bound = entry.layout, entry.comm_bound
            chunk_counts = entry.chunk_counts
            if entry.stage == "fits":
                self._open_cut(layout, comm_bound)
                continue
            if entry.stage == "chunks":
                self._open_chunks(layout, comm_bound, chunk_counts)
                continue
            self._push_chunks(layout, comm_bound, chunk_counts)
            if self.candidates.fits(layout):
                return self.job.with_layout(
                    layout
                ), self.candidates.layout_peak_gib(layout)
            # More recomputation raises the bound: the layout queues again.
            self._push_entry(
                self.candidates.fit_memory(layout), comm_bound, "layout"
            )
        return None

    def _open_cut(
        self, cut_layout: ParallelLayout, comm_bound: CommBound
    ) -> None:
        """Add every layout of a partition to the queue.

        A larger micro-batch or more chunks never take less memory.
        """
        for micro_batch, chunk_counts in microbatch_sizes(self.job, cut_layout):
            fitted_layout = self.candidates.fit_memory(
                cut_layout.with_microbatch(float(micro_batch), 1)
            )
            # Larger micro-batches need more memory: none of them fits.
            if fitted_layout is None:
                break
            # Memory of more chunks is checked when the entry is the least.
            if fitted_layout.recompute != "layer":
                self._push_chunks(fitted_layout, comm_bound, chunk_counts)
                continue
            # Layers of a chunk are whole, so the bubble alone orders nothing: the least bubble
            # with the least recomputation is a bound of all.
            self._push_entry(
                fitted_layout.with_microbatch(
                    fitted_layout.micro, chunk_counts[-1]
                ),
                comm_bound,
                "chunks",
                chunk_counts,
            )

    def _open_chunks(
        self,
        layout: ParallelLayout,
        comm_bound: CommBound,
        chunk_counts: tuple[int, ...],
    ) -> None:
        """Add the layouts with some numbers of chunks, each with whole layers recomputed."""
        for vpp in chunk_counts:
            self._push_entry(
                self.candidates.representable(
                    layout.with_microbatch(layout.micro, vpp)
                ),
                comm_bound,
                "layout",
            )

    def _push_chunks(
        self,
        layout: ParallelLayout,
        comm_bound: CommBound,
        chunk_counts: tuple[int, ...],
    ) -> None:
        """Add the layout with the most of some numbers of chunks, and the others behind it.

        Without partial recomputation a bound never falls with fewer chunks.
        """
        if chunk_counts:
            self._push_entry(
                layout.with_microbatch(layout.micro, chunk_counts[-1]),
                comm_bound,
                "layout",
                chunk_counts[:-1],
            )

    def _push_entry(
        self,
        layout: ParallelLayout | None,
        comm_bound: CommBound,
        search_stage: SearchStage,
        chunk_counts: tuple[int, ...] = (),
    ) -> None:
        """Add a partition or a layout to the queue by its bound; None adds nothing."""
        if layout is not None:
            bound_s = (
                # The bound of one layout is at least that of its partition.
                self.lower_bound.bound_layout
                if search_stage in ("chunks", "layout")
                else self.lower_bound.bound_cut
            )(self.job, layout, comm_bound)
            self._frontier.push(
                bound_s,
                _OpenEntry(layout, comm_bound, search_stage, chunk_counts),
            )
