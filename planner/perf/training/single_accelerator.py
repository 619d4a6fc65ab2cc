"""Work and times of a training step on one accelerator without memory limit.

They are the terms of the lower bound of the step time: no split of a job has less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.perf.training.coefficients import training_coefficients
from planner.perf.training.forward_pass import TRAINING_PASSES
from planner.perf.training.job import OPERAND_BYTES, ParallelLayout
from planner.perf.training.memory import BYTES_16BIT
from planner.perf.training.products import last_product_share
from planner.perf.training.step import BACKWARD_PASSES, step_time
from planner.perf.training.work import rank_work

if TYPE_CHECKING:
    from planner.perf.training.coefficients import TrainingCoefficients
    from planner.perf.training.job import Job
    from planner.perf.training.step import StepTime
    from planner.perf.training.work import RankWork

# One forward pass, and a backward that recomputes the scores.
ATTENTION_PASSES: Final = 1 + BACKWARD_PASSES  # passes of attention
# Bytes of an activation in four gathers or scatters of a layer.
GATHER_BYTES: Final = 8.0


class SingleAccelerator(Struct, frozen=True, kw_only=True):
    """A step of a job on one accelerator that does all the work.

    job             job on one accelerator
    work            its work
    coefficients    its coefficients, without a pipeline
    weight_bytes    bytes of dense weights that one forward pass reads
    expert_bytes    bytes of experts that one forward pass reads
    invariant_time  time of the step without what depends on the layout
    """

    job: Job
    work: RankWork
    coefficients: TrainingCoefficients
    weight_bytes: float
    expert_bytes: float
    invariant_time: StepTime

    @property
    def layout_free_s(self) -> float:
        """Return the time of what every layout computes, in seconds.

        unlike * (products + attention + traffic + quantization + recomputation + permutation)
        + head
        """
        invariant_time = self.invariant_time
        compute_s = (
            invariant_time.products
            + invariant_time.expert_products
            + invariant_time.attention
            + invariant_time.traffic
            + invariant_time.quantization
            + invariant_time.recomputation
        )
        return (
            self.coefficients.unlike * (compute_s + self._permute_s)
            # The factor of the architecture does not apply to the head.
            + invariant_time.head
        )

    @property
    def extra_forward_s(self) -> float:
        """Return the time of one more forward pass without communication, in seconds.

        unlike * (products / passes + attention / 3.5 + traffic / 3 + permutation / 2)

        Quantization is left out, and the last product where it is not repeated.
        """
        invariant_time = self.invariant_time
        forward_s = (
            self.repeated_share * invariant_time.products / self.work.pass_count
            + invariant_time.expert_products
            / (self.work.pass_count + self.work.slow_passes)
        )
        # Attention has 3.5 passes, element-wise traffic three.
        forward_s += (
            invariant_time.attention / ATTENTION_PASSES
            + invariant_time.traffic / TRAINING_PASSES
        )
        # `_permute_s` is forward and backward: one pass is a half.
        return self.coefficients.unlike * (forward_s + self._permute_s / 2)

    @property
    def repeated_share(self) -> float:
        """Return the share of the products of a forward pass that recomputation repeats."""
        if self.job.software.stops_early:
            return 1 - last_product_share(self.job.llm)
        return 1.0

    @property
    def tensor_bytes(self) -> float:
        """Return the exposed bytes of tensor parallelism for each rank beyond the first.

        unlike * 2 * tensor * 8 bytes * tokens of a step * hidden width * layers
        """
        # Two passes of four collectives a layer: forward and backward.
        tensor_bytes = (
            2
            * self.coefficients.tensor
            * self.work.micro_batches
            * GATHER_BYTES
            * self.job.micro_tokens
            * self.job.llm.hidden
            * self.job.llm.layers
        )
        return self.coefficients.unlike * tensor_bytes

    @property
    def exchange_bytes(self) -> float:
        """Return the exposed bytes of an all-to-all when every token leaves its rank.

        unlike * permuted bytes * 4 * exchange / exchange_rate
        """
        # Dispatch and combine, each forward and backward: 4 transfers.
        wire_factor = (
            4 * self.coefficients.exchange / self.coefficients.exchange_rate
        )
        return self.coefficients.unlike * self._permuted_bytes * wire_factor

    @property
    def gather_rank_s(self) -> float:
        """Return the time of tokens of experts for each tp rank beyond the first, in seconds.

        unlike * (permutation + passes * permuted bytes * (1 + operand bytes / 2) / bandwidth)
        """
        operand_bytes = OPERAND_BYTES.get(
            self.job.software.precision_of_experts, 1.0
        )
        return self.coefficients.unlike * (
            self._permute_s
            + self.work.pass_count
            * self._permuted_bytes
            # Products read operands and write 16-bit results for each token.
            * (1 + operand_bytes / BYTES_16BIT)
            / self.work.memory_bytes_s
        )

    @property
    def context_shard_s(self) -> float:
        """Return the time of context parallelism for each rank beyond the first, in seconds.

        context * 3 * bytes of keys and values of a step / link_bytes_s
        """
        language_model = self.job.llm
        kv_bytes = (
            self.job.global_batch
            * self.job.sequence_tokens
            * 2
            * BYTES_16BIT
            * language_model.kv_heads
            * language_model.head_dim
            * language_model.attending_layers
        )
        return (
            self.coefficients.context
            * TRAINING_PASSES
            * kv_bytes
            / self.link_bytes_s
        )

    @property
    def weight_read_s(self) -> float:
        """Return the time to read all dense weights in all passes, in seconds.

        unlike * passes * weight bytes / memory bandwidth
        """
        return (
            self.coefficients.unlike
            * self.work.pass_count
            * self.weight_bytes
            / self.work.memory_bytes_s
        )

    @property
    def expert_read_s(self) -> float:
        """Return the time to read all experts in all passes, in seconds.

        unlike * passes * expert bytes / memory bandwidth
        """
        return (
            self.coefficients.unlike
            * self.work.pass_count
            * self.expert_bytes
            / self.work.memory_bytes_s
        )

    @property
    def host_s(self) -> float:
        """Return the host time of all layers for a micro-batch, without experts, in seconds."""
        return (
            self.work.moe_layers * self.coefficients.moe_host
            + self.work.dense_layers * self.coefficients.dense_host
        )

    @property
    def expert_host_s(self) -> float:
        """Return the host time of all experts for a micro-batch, in seconds."""
        return self.work.local_experts * self.coefficients.local_expert

    @property
    def link_bytes_s(self) -> float:
        """Return the link bandwidth that collectives reach, in bytes/s."""
        return self.work.link_bytes_s * self.coefficients.link

    @property
    def _permuted_bytes(self) -> float:
        """Return the bytes of the tokens that a step sorts by expert."""
        return self.work.micro_batches * self.work.permuted_bytes

    @property
    def _permute_s(self) -> float:
        """Return the time of their permutation, forward and backward, in seconds."""
        return (
            self._permuted_bytes
            * self.coefficients.permute
            / self.work.memory_bytes_s
        )


def single_accelerator(job: Job) -> SingleAccelerator:
    """Return the step of a job on one accelerator, whatever its layout."""
    # One accelerator without memory limit does all the work.
    single_job = job._replace(layout=ParallelLayout())
    coefficients = training_coefficients(single_job)
    single_work = rank_work(single_job)
    weight_bytes, expert_bytes = _weight_bytes(single_job, single_work)
    invariant_work = replace(
        single_work,
        # What depends on the layout is taken out and bounded apart.
        gemm_bytes=single_work.gemm_bytes - weight_bytes,
        local_experts=0.0,
        permuted_bytes=0.0,
        expert_bytes=single_work.expert_bytes - expert_bytes,
        exchange_link_bytes=0.0,
        exchange_network_bytes=0.0,
        dense_layers=0.0,
        moe_layers=0.0,
    )
    return SingleAccelerator(
        job=single_job,
        work=single_work,
        coefficients=coefficients,
        weight_bytes=weight_bytes,
        expert_bytes=expert_bytes,
        invariant_time=step_time(invariant_work, coefficients),
    )


def _weight_bytes(
    single_job: Job, single_work: RankWork
) -> tuple[float, float]:
    """Return the bytes of dense weights and of experts that one forward pass reads.

    bytes of a forward pass >= these bytes, whatever its number of tokens

    Bytes of products are a + b * tokens, so a = 2 * bytes(1 sequence) - bytes(2 sequences).
    """
    doubled_work = rank_work(
        # Two sequences double what grows with tokens, not the weights.
        single_job._replace(layout=ParallelLayout(micro=2.0))
    )
    return (
        2 * single_work.gemm_bytes - doubled_work.gemm_bytes,
        2 * single_work.expert_bytes - doubled_work.expert_bytes,
    )
