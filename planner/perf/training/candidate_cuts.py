"""Partitions of a training job with their bounds, and the memory of their layouts."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.perf.common.constant import constant
from planner.perf.training.enumeration import cut_families, recompute_shares
from planner.perf.training.lower_bound import step_lower_bound
from planner.perf.training.memory import (
    LayerBytes,
    gathered_bytes,
    layer_bytes,
    layer_token_bytes,
    memory_room_gib,
    stage_activations,
)
from planner.perf.training.model_states import model_states
from planner.perf.training.sharding import sharding_traffic
from planner.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from planner.perf.training.job import Job, ParallelLayout
    from planner.perf.training.sharding import ShardingTraffic


class _StageTokens(Struct, frozen=True):
    """What tokens take in the memory of one pipeline stage, in bytes.

    working  what the layer in backward and the loss take
    kept     activations when nothing is recomputed
    least    activations when everything is
    """

    working: float
    kept: float
    least: float

    def total(self, recomputed_share: float) -> float:
        """Return the bytes with a share of the layers recomputed."""
        return (
            self.working
            + self.kept
            - recomputed_share * (self.kept - self.least)
        )

    def needed_share(self, room_bytes: float) -> float:
        """Return the share of the layers whose recomputation makes it fit; above 1 for never."""
        excess_bytes = self.working + self.kept - room_bytes
        return excess_bytes / (self.kept - self.least)


class CandidateCuts:
    """Partitions of a job on one kind of accelerator, for any network.

    lower_bound       lower bound of the step time
    confidence        with which a layout fits memory
    bounded_families  (bound in seconds without network, index, partitions), ascending
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
        self._stages: dict[tuple[float, ...], list[_StageTokens]] = {}
        self._layer_bytes: dict[int, tuple[LayerBytes, float]] = {}
        self._traffic: dict[ParallelLayout, ShardingTraffic] = {}
        self._known_bytes: dict[tuple[int | str, ...], float] = {}
        self.bounded_families = sorted(
            (
                self.lower_bound.bound_family(job, family),
                family.cut_index,
                family,
            )
            for family in cut_families(
                job.llm,
                job.global_batch,
                job.sequence_tokens,
                accelerators,
                node_accelerators,
                framework_name=job.software.framework,
            )
        )

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
        return self._cut_bytes(layout) <= self._room_bytes(layout)

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
        room_bytes = self._room_bytes(layout) - self._cut_bytes(layout)
        needed_share = max(
            [
                stage.needed_share(room_bytes)
                for stage in self._stage_tokens(layout)
            ]
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
        recomputed_share = layout.recomputed_share
        return self._cut_bytes(layout) + max(
            [
                stage.total(recomputed_share)
                for stage in self._stage_tokens(layout)
            ]
        )

    def _stage_tokens(self, layout: ParallelLayout) -> list[_StageTokens]:
        """Return what tokens take in the stages of a layout, whatever it recomputes."""
        key = (
            layout.tp,
            layout.pp,
            layout.vpp,
            layout.cp,
            layout.dp,
            layout.micro,
        )
        stages = self._stages.get(key)
        if stages is None:
            job = self.job.with_layout(layout.with_layer_share(0.0))
            kept_bytes, least_share = self._kept_bytes(job)
            stages = self._stages[key] = [
                _StageTokens(
                    stage.working_set + stage.logits,
                    stage.activations,
                    stage.activations * least_share,
                )
                for stage in stage_activations(job, kept_bytes)
            ]
        return stages

    def _kept_bytes(self, job: Job) -> tuple[LayerBytes, float]:
        """Return the bytes of a layer, and the share that full recomputation leaves of them."""
        tp = job.layout.tp
        if tp not in self._layer_bytes:
            kept_bytes = layer_bytes(job)
            least_share = layer_token_bytes(job, "full") / kept_bytes.kept
            self._layer_bytes[tp] = kept_bytes, least_share
        return self._layer_bytes[tp]

    def traffic(self, cut_layout: ParallelLayout) -> ShardingTraffic:
        """Return the traffic of sharded states of a partition, at a latency of 1 s."""
        if cut_layout not in self._traffic:
            self._traffic[cut_layout] = sharding_traffic(
                self._unit_job.with_layout(cut_layout)
            )
        return self._traffic[cut_layout]

    def _cut_bytes(self, layout: ParallelLayout) -> float:
        """Return the bytes of the states and of their gathered copies, whatever the tokens.

        They depend on the partition alone.
        """
        # The ranks of data and context parallelism follow from tp and pp.
        cut = (
            layout.tp,
            layout.pp,
            layout.ep,
            layout.sharding,
            layout.shard_size,
        )
        cut_bytes = self._known_bytes.get(cut)
        if cut_bytes is None:
            job = self.job.with_layout(layout)
            cut_bytes = model_states(job).total + gathered_bytes(job)
            self._known_bytes[cut] = cut_bytes
        return cut_bytes


# Jobs that differ only in network, host or price of their machines share one instance.
candidate_cuts = lru_cache(maxsize=512)(CandidateCuts)
