"""Partitions of a training job with their bounds, and the memory of their layouts."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from planner.perf.common.constant import constant
from planner.perf.training.enumeration import enumerate_cuts, recompute_shares
from planner.perf.training.job import ParallelLayout
from planner.perf.training.lower_bound import step_lower_bound
from planner.perf.training.memory import (
    layer_token_bytes,
    memory_room_gib,
    stage_peaks,
)
from planner.perf.training.model_states import model_states
from planner.perf.training.sharding import sharding_traffic
from planner.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from planner.perf.training.job import Job
    from planner.perf.training.sharding import ShardingTraffic


# Place of the first field of a layout that recomputation changes.
RECOMPUTE_FIELD: Final = ParallelLayout._fields.index("recompute")


class _StageMemory(NamedTuple):
    """Memory of one pipeline stage, in bytes.

    fixed     all but activations
    kept      activations when nothing is recomputed
    least     activations when everything is
    """

    fixed: float
    kept: float
    least: float

    def total(self, recomputed_share: float) -> float:
        """Return the bytes with a share of the layers recomputed."""
        return (
            self.fixed + self.kept - recomputed_share * (self.kept - self.least)
        )

    def needed_share(self, room_bytes: float) -> float:
        """Return the share of the layers whose recomputation makes it fit; above 1 for never."""
        excess_bytes = self.fixed + self.kept - room_bytes
        return excess_bytes / (self.kept - self.least)


class CandidateCuts:
    """Partitions of a job on one kind of accelerator, for any network.

    lower_bound   lower bound of the step time
    confidence    with which a layout fits memory
    bounded_cuts  (bound in seconds without network, index, partition), ascending
    """

    def __init__(
        self,
        job: Job,
        accelerators: int,
        node_accelerators: int,
        confidence: float,
    ) -> None:
        self.job = job
        self._unit_job = job._replace(network_latency_s=1.0)
        self.lower_bound = step_lower_bound(job)
        self.confidence = confidence
        self._rooms_bytes: dict[bool, float] = {}
        self._stages: dict[
            tuple[float | str, ...], tuple[_StageMemory, ...]
        ] = {}
        self._least_shares: dict[tuple[int, int, int], float] = {}
        self._traffic: dict[ParallelLayout, ShardingTraffic] = {}
        self._states_bytes: dict[tuple[int | str, ...], float] = {}
        self.bounded_cuts = self._bounded_cuts(
            enumerate_cuts(
                job.llm,
                job.global_batch,
                job.sequence_tokens,
                accelerators,
                node_accelerators,
                framework_name=job.software.framework,
            )
        )

    def _bounded_cuts(
        self, cut_layouts: tuple[ParallelLayout, ...]
    ) -> list[tuple[float, int, ParallelLayout]]:
        """Return the partitions by their bound.

        Without network time a bound does not depend on the sharding.
        """
        bounds_s: dict[tuple[int, ...], float] = {}
        bounded_cuts = []
        # The index breaks ties in the order of enumeration.
        for cut_index, cut_layout in enumerate(cut_layouts):
            cut = (cut_layout.tp, cut_layout.pp, cut_layout.cp, cut_layout.ep)
            if cut not in bounds_s:
                bounds_s[cut] = self.lower_bound.bound_cut(self.job, cut_layout)
            bounded_cuts.append((bounds_s[cut], cut_index, cut_layout))
        return sorted(bounded_cuts)

    def _room_bytes(self, layout: ParallelLayout) -> float:
        """Return the bytes of a stage that fit memory with the confidence.

        (room - overhead) / (1 + fragmentation), as in `memory.peak_gib`
        """
        # The error of a peak differs with a pipeline, and not else.
        is_pipelined = layout.pp > 1
        if is_pipelined not in self._rooms_bytes:
            room_gib = memory_room_gib(
                self.job.with_layout(layout), self.confidence
            )
            self._rooms_bytes[is_pipelined] = (
                (room_gib - constant("train_overhead"))
                / (1 + constant("train_fragmentation"))
                * BYTES_PER_GIB
            )
        return self._rooms_bytes[is_pipelined]

    def fits(self, layout: ParallelLayout) -> bool:
        """Whether the predicted peak of a layout leaves room for its error."""
        return self._peak_bytes(layout) <= self._room_bytes(layout)

    def states_fit(self, layout: ParallelLayout) -> bool:
        """Whether the states of a partition fit memory, whatever else it holds."""
        return self._state_bytes(layout) <= self._room_bytes(layout)

    def layout_peak_gib(self, layout: ParallelLayout) -> float:
        """Return the peak memory of a layout in GiB, as `memory.peak_gib` does."""
        return (
            constant("train_overhead")
            + (1 + constant("train_fragmentation"))
            * self._peak_bytes(layout)
            / BYTES_PER_GIB
        )

    def fit_memory(self, layout: ParallelLayout) -> ParallelLayout | None:
        """Return the layout with the least recomputation that fits memory, at least its own.

        None when not even full recomputation fits.
        """
        if not self.states_fit(layout):
            return None
        room_bytes = self._room_bytes(layout)
        needed_share = max(
            stage.needed_share(room_bytes)
            for stage in self._stage_memory(layout)
        )
        if needed_share > 1:
            return None
        if needed_share <= layout.recomputed_share:
            return layout
        return layout.with_layer_share(self._whole_layers(layout, needed_share))

    def representable(self, layout: ParallelLayout) -> ParallelLayout:
        """Return the layout with at least its recomputation, in whole layers of a chunk."""
        if layout.recompute != "layer":
            return layout
        return layout.with_layer_share(
            self._whole_layers(layout, layout.layer_share)
        )

    def _whole_layers(
        self, layout: ParallelLayout, least_share: float
    ) -> float:
        """Return the least share of a chunk that the framework can recompute."""
        shares = recompute_shares(
            self.job.llm.layers,
            layout.pp,
            layout.vpp,
            self.job.software.framework,
        )
        return next((share for share in shares if share >= least_share), 1.0)

    def _peak_bytes(self, layout: ParallelLayout) -> float:
        return max(
            stage.total(layout.recomputed_share)
            for stage in self._stage_memory(layout)
        )

    def _stage_memory(self, layout: ParallelLayout) -> tuple[_StageMemory, ...]:
        """Return the memory of the stages of a layout, whatever it recomputes."""
        key = layout[:RECOMPUTE_FIELD]
        if key not in self._stages:
            job = self.job.with_layout(layout.with_layer_share(0.0))
            least_share = self._least_share(job)
            self._stages[key] = tuple(
                _StageMemory(
                    peak.total - peak.activations,
                    peak.activations,
                    peak.activations * least_share,
                )
                for peak in stage_peaks(job, self._state_bytes(layout))
            )
        return self._stages[key]

    def _least_share(self, job: Job) -> float:
        """Return what full recomputation leaves of the activations of a layer."""
        cut = (job.layout.tp, job.layout.cp, job.layout.ep)
        if cut not in self._least_shares:
            self._least_shares[cut] = layer_token_bytes(
                job, "full"
            ) / layer_token_bytes(job, "none")
        return self._least_shares[cut]

    def traffic(self, cut_layout: ParallelLayout) -> ShardingTraffic:
        """Return the traffic of sharded states of a partition, at a latency of 1 s."""
        if cut_layout not in self._traffic:
            self._traffic[cut_layout] = sharding_traffic(
                self._unit_job.with_layout(cut_layout)
            )
        return self._traffic[cut_layout]

    def _state_bytes(self, layout: ParallelLayout) -> float:
        """Return the bytes of the states, which depend on the partition alone."""
        # The ranks of data and context parallelism follow from tp and pp.
        cut = (
            layout.tp,
            layout.pp,
            layout.ep,
            layout.sharding,
            layout.shard_size,
        )
        if cut not in self._states_bytes:
            self._states_bytes[cut] = model_states(
                self.job.with_layout(layout)
            ).total
        return self._states_bytes[cut]


# Jobs that differ only in network, host or price of their machines share one instance.
candidate_cuts = lru_cache(maxsize=512)(CandidateCuts)
