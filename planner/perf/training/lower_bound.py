"""A lower bound on the time of a step: what no layout avoids."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from planner.perf.training.coefficients import TRAINING_TABLE, coefficient_keys
from planner.perf.training.enumeration import microbatch_sizes
from planner.perf.training.job import ParallelLayout
from planner.perf.training.memory import BYTES_16BIT
from planner.perf.training.sharding import sharding_traffic
from planner.perf.training.step import (
    BACKWARD_PASSES,
    TRAINING_PASSES,
    overlapped_s,
    sharding_time,
    step_time,
)
from planner.perf.training.work import OPERAND_BYTES, rank_work, remote_machines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.perf.training.coefficients import TrainingCoefficients
    from planner.perf.training.job import Job, Recompute
    from planner.perf.training.work import RankWork

ATTENTION_PASSES: Final = 1 + BACKWARD_PASSES  # passes of attention
RECOMPUTE_SHARES: Final[dict[Recompute, float]] = {
    "none": 0.0,
    "layer": 0.5,
    "full": 1.0,
}
GATHER_BYTES: Final = (
    8.0  # bytes of an activation in four gathers or scatters of a layer
)


@dataclass(frozen=True, slots=True)
class CommBound:
    """What moving states and tokens between ranks costs every layout of one cut, in seconds.

    `gather_s` in a micro-batch, `once_s` in a step, `sent_s` in a step of one accelerator alone.
    """

    gather_s: float
    once_s: float
    sent_s: float


NO_COMM: Final = CommBound(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLowerBound:
    """What no layout avoids, in accelerator-seconds of a step unless said otherwise.

    `extra_forward_s` is one more of the `pass_count`, `reference_passes` counts those of a reference. Each further rank of
    tensors costs `tensor_rank_s` within `link_ranks` ranks, beyond them as much as it takes to send `tensor_rank_bytes`
    bytes, and `gather_rank_s` where experts are cut alike; each further shard of a sequence `context_shard_s`.
    `exchange_s` is what sending every token to experts elsewhere would cost. `weight_read_s` and `expert_read_s`
    are seconds for reading them all in a micro-batch, `host_s` those of the host for all layers;
    `exchange_bytes` bytes when every token goes to one other machine, `pipelined_share` how much of them a pipeline
    shows; `link_bytes_s`, `network_bytes_s` and `memory_bytes_s` the bytes/s that are reached.
    """

    layout_free_s: float
    extra_forward_s: float
    pass_count: float
    tensor_rank_s: float
    tensor_rank_bytes: float
    link_ranks: int
    exchange_s: float
    gather_rank_s: float
    context_shard_s: float
    reference_passes: float
    weight_read_s: float
    expert_read_s: float
    host_s: float
    exchange_bytes: float
    coefficients: TrainingCoefficients
    pipelined_share: float
    link_bytes_s: float
    network_bytes_s: float
    memory_bytes_s: float

    def comm_bound(self, job: Job) -> CommBound:
        """What moving states, and tokens to experts on other machines, costs a cut."""
        sharding = sharding_time(
            sharding_traffic(job),
            self.coefficients,
            self.link_bytes_s,
            self.network_bytes_s,
            self.memory_bytes_s,
        )
        exchange_share = (
            self.pipelined_share
            if job.layout.pp > 1
            else self.coefficients.exchange_network
        )
        sent_bytes = (
            self.exchange_bytes * exchange_share * remote_machines(job)
            if self.exchange_bytes
            else 0.0
        )
        sent_bytes += (
            self.tensor_rank_bytes * (job.layout.tp - 1)
            if job.layout.tp > self.link_ranks
            else 0.0
        )
        return CommBound(
            sharding.gather_s,
            sharding.once_s,
            sent_bytes / self.network_bytes_s,
        )

    def bound_layout(
        self, job: Job, layout: ParallelLayout, comm_bound: CommBound = NO_COMM
    ) -> float:
        """Seconds that a step takes at least in a layout: with its bubble and recomputation."""
        return self._minimum_s(
            job, layout, comm_bound, [(layout.micro, layout.vpp)]
        )

    def bound_cut(
        self,
        job: Job,
        cut_layout: ParallelLayout,
        comm_bound: CommBound = NO_COMM,
    ) -> float:
        """Seconds that a step takes at least in any layout of a cut."""
        return self._minimum_s(
            job,
            cut_layout,
            comm_bound,
            [
                (micro_batch, chunk_counts[-1])
                for micro_batch, chunk_counts in microbatch_sizes(
                    job, cut_layout
                )
            ],
        )

    def with_network(self, network_bytes_s: float) -> StepLowerBound:
        """The same job over another network, in bytes/s."""
        return replace(
            self, network_bytes_s=network_bytes_s * self.coefficients.network
        )

    def _minimum_s(
        self,
        job: Job,
        layout: ParallelLayout,
        comm_bound: CommBound,
        choices: Iterable[tuple[float, int]],
    ) -> float:
        """The least over pairs of micro-batch and chunks."""
        rank_count = layout.accelerators
        host_power = self.coefficients.host_power
        rank_sequences = job.global_batch / layout.dp
        recompute_share = RECOMPUTE_SHARES[layout.recompute]
        extra_forwards = recompute_share + self.reference_passes
        exchange_s = self.exchange_s * (1 - 1 / layout.ep) + comm_bound.sent_s
        exchange_s += (
            self.tensor_rank_s * (layout.tp - 1)
            if layout.tp <= self.link_ranks
            else 0.0
        )
        gathered_s = (
            self.gather_rank_s * (layout.tp - 1) if layout.ep == 1 else 0.0
        )
        accelerator_s = (
            self.layout_free_s
            + recompute_share * self.extra_forward_s
            + (1 + extra_forwards / 2) * exchange_s
        )
        accelerator_s += gathered_s + self.context_shard_s * (layout.cp - 1)
        weight_read_s = (
            self.weight_read_s / layout.tp
            + self.expert_read_s / (layout.tp if layout.ep == 1 else layout.ep)
        ) / layout.pp
        weight_read_s *= 1 + extra_forwards / self.pass_count
        host_term = (self.host_s / layout.pp) ** host_power
        bubble_factor = self.coefficients.bubble * (layout.pp - 1)
        minimum_s = math.inf
        for micro_batch, chunk_count in choices:
            micro_batches = max(1.0, rank_sequences / micro_batch)
            busy_s = (
                (accelerator_s / rank_count / micro_batches + weight_read_s)
                ** host_power
                + host_term
            ) ** (1 / host_power)
            if comm_bound.gather_s:
                busy_s = overlapped_s(
                    busy_s, comm_bound.gather_s, self.coefficients
                )
            minimum_s = min(
                minimum_s,
                busy_s * (micro_batches + bubble_factor / chunk_count),
            )
        scale_factor = 1 + self.coefficients.doubling * max(
            0.0, math.log2(rank_count / 8)
        )
        return (minimum_s + comm_bound.once_s) * scale_factor


@lru_cache(maxsize=512)
def step_lower_bound(job: Job) -> StepLowerBound:
    """Products, attention, element-wise traffic and loss: cut in any way, their sum is the same.

    Weights that are read again for every cut and what crosses the network come on top.
    """
    single_job = replace(job, layout=ParallelLayout())
    coefficients = TRAINING_TABLE.select(coefficient_keys(single_job))
    single_work = rank_work(single_job)
    language_model = job.llm
    weight_bytes, expert_bytes = _weight_bytes(single_job, single_work)
    invariant_work = replace(
        single_work,
        gemm_bytes=single_work.gemm_bytes - weight_bytes,
        local_experts=0.0,
        permuted_bytes=0.0,
        expert_bytes=single_work.expert_bytes - expert_bytes,
        exchange_link_bytes=0.0,
        exchange_network_bytes=0.0,
        dense_layers=0.0,
        moe_layers=0.0,
    )
    invariant_time = step_time(invariant_work, coefficients)
    forward_s = (
        invariant_time.products + invariant_time.expert_products
    ) / invariant_work.pass_count
    forward_s += (
        invariant_time.attention / ATTENTION_PASSES
        + invariant_time.traffic / TRAINING_PASSES
    )
    permuted_bytes = single_work.micro_batches * single_work.permuted_bytes
    permute_s = (
        permuted_bytes * coefficients.permute / single_work.memory_bytes_s
    )
    wire_factor = 4 * coefficients.exchange / coefficients.exchange_rate
    operand_bytes = OPERAND_BYTES.get(job.software.precision, 1.0)
    architecture_factor = coefficients.unlike
    head_s = invariant_time.head
    kv_bytes = (
        job.global_batch
        * job.sequence_tokens
        * 2
        * BYTES_16BIT
        * language_model.kv_heads
        * language_model.head_dim
        * language_model.attending_layers
    )
    tensor_bytes = (
        2
        * coefficients.tensor
        * single_work.micro_batches
        * GATHER_BYTES
        * single_job.micro_tokens
        * language_model.hidden
        * language_model.layers
    )
    compute_s = (
        invariant_time.products
        + invariant_time.expert_products
        + invariant_time.attention
        + invariant_time.traffic
        + invariant_time.recomputation
    )
    launch_s = (
        single_work.local_experts * coefficients.local_expert / TRAINING_PASSES
    )
    return StepLowerBound(
        layout_free_s=architecture_factor * (compute_s + permute_s) + head_s,
        extra_forward_s=architecture_factor * (forward_s + permute_s / 2),
        pass_count=invariant_work.pass_count,
        tensor_rank_s=architecture_factor
        * tensor_bytes
        / (single_work.link_bytes_s * coefficients.link),
        tensor_rank_bytes=architecture_factor * tensor_bytes,
        link_ranks=job.chip.link_domain,
        exchange_s=architecture_factor
        * permuted_bytes
        * wire_factor
        / single_work.link_bytes_s,
        gather_rank_s=architecture_factor
        * (
            permute_s
            + invariant_work.pass_count
            * permuted_bytes
            * (1 + operand_bytes / BYTES_16BIT)
            / single_work.memory_bytes_s
        ),
        context_shard_s=coefficients.context
        * TRAINING_PASSES
        * kv_bytes
        / (single_work.link_bytes_s * coefficients.link),
        reference_passes=float(job.reference != "none"),
        weight_read_s=architecture_factor
        * invariant_work.pass_count
        * weight_bytes
        / single_work.memory_bytes_s,
        expert_read_s=architecture_factor
        * invariant_work.pass_count
        * (expert_bytes / single_work.memory_bytes_s + launch_s),
        host_s=single_work.moe_layers * coefficients.moe_host
        + single_work.dense_layers * coefficients.dense_host,
        exchange_bytes=architecture_factor
        * permuted_bytes
        * wire_factor
        * coefficients.network
        / max(1, language_model.experts_per_token),
        coefficients=coefficients,
        pipelined_share=TRAINING_TABLE.select(
            coefficient_keys(single_job) | {"pipelined"}
        ).exchange_network,
        link_bytes_s=single_work.link_bytes_s * coefficients.link,
        network_bytes_s=single_work.network_bytes_s * coefficients.network,
        memory_bytes_s=single_work.memory_bytes_s,
    )


def _weight_bytes(
    single_job: Job, single_work: RankWork
) -> tuple[float, float]:
    """Bytes of weights that products read, of experts apart: what more tokens do not add."""
    doubled_work = rank_work(
        replace(single_job, layout=ParallelLayout(micro=2.0))
    )
    return (
        2 * single_work.gemm_bytes - doubled_work.gemm_bytes,
        2 * single_work.expert_bytes - doubled_work.expert_bytes,
    )
