"""Peak memory of training on one accelerator: states, activations, working set and logits.

    peak = overhead + (1 + fragmentation) * (states + gathered + activations + work + logits)

of the fuller of the first and the last pipeline stage. Bytes unless a name says GiB. The terms
are added: blocks reserved for one moment do not serve the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.perf.common.constant import constant
from planner.perf.common.memory import GIB
from planner.perf.training.model_states import local_params, model_states

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.training.job import Job, Recompute

BYTES_16BIT: Final = 2.0  # bytes of a number in 16 bit
GATED_MATRICES: Final = 3  # matrices of an MLP with a gate
GRADIENT_BYTES: Final = 4.0
FROZEN_SHARE: Final = (
    0.75  # share of activations that frozen weights still need
)


@dataclass(frozen=True, slots=True)
class StagePeak:
    """Bytes of one stage at its peak, by what holds them."""

    model_states: float
    gathered_copies: float
    activations: float
    working_set: float
    logits: float

    @property
    def total(self) -> float:
        """Everything, without overhead and fragmentation."""
        return (
            self.model_states
            + self.gathered_copies
            + self.activations
            + self.working_set
            + self.logits
        )


def layer_token_bytes(job: Job, recompute: Recompute) -> float:
    """Bytes that one layer keeps for a token between forward and backward, on one rank.

    For a GPT of width 4h without recomputation 34 + 5 a s / h bytes over h (Korthikanti et al.,
    arXiv:2205.05198); norms and masks are not cut over tp without sequence parallelism.
    """
    language_model = job.llm
    tp_ranks = job.layout.tp
    software = job.software
    is_megatron21 = software.kernels == "megatron21"
    is_eager = software.kernels in ("eager", "foundry")
    residual_ranks = tp_ranks if software.sequence_parallel else 1
    query_width = language_model.heads * language_model.head_dim
    kv_width = language_model.kv_heads * language_model.head_dim
    mlp_width, routed_bytes = _mlp_width(language_model)
    routed_bytes /= residual_ranks
    if recompute == "full":
        return BYTES_16BIT * language_model.hidden / residual_ranks
    if recompute == "layer":
        return (
            layer_token_bytes(job, "full") + layer_token_bytes(job, "none")
        ) / 2
    if (
        recompute == "ops"
    ):  # inputs, attention's output and every second product are kept
        input_bytes = (
            BYTES_16BIT
            * language_model.hidden
            * (2 if is_eager else 1)
            / residual_ranks
        )
        return (
            input_bytes
            + BYTES_16BIT * (2 * query_width + kv_width + mlp_width) / tp_ranks
            + routed_bytes
        )
    outside_bytes = (10 if is_megatron21 else 8) * language_model.hidden
    is_gated = language_model.mlp_matrices == GATED_MATRICES
    inside_bytes = (
        BYTES_16BIT * (2 * query_width + 2 * kv_width)
        + (4 if not is_gated else 8 if is_eager else 6) * mlp_width
    )
    if recompute == "none" and is_megatron21:
        inside_bytes += (
            5 * language_model.heads * job.sequence_tokens
        )  # scores, their mask, what dropout left
    return (
        outside_bytes / residual_ranks + inside_bytes / tp_ranks + routed_bytes
    )


def _mlp_width(language_model: Llm) -> tuple[float, float]:
    """Width of the MLP that a token passes, and bytes of its copies for experts."""
    if not language_model.experts:
        return float(language_model.ffn), 0.0
    expert_width = language_model.moe_ffn * (
        language_model.experts_per_token + language_model.shared_experts
    )
    return (
        float(expert_width),
        2
        * BYTES_16BIT
        * language_model.hidden
        * language_model.experts_per_token,
    )


def in_flight(job: Job, stage_index: int) -> float:
    """Micro-batches whose activations a stage holds.

    p - stage, or with v chunks a stage p (1 + (p - 1) / (p v)) - 2 stage / v.
    """
    stage_count = job.layout.pp
    chunk_count = job.layout.vpp
    if stage_count == 1:
        return 1.0
    micro_batches = (
        stage_count - stage_index
        if chunk_count == 1
        else stage_count * (1 + (stage_count - 1) / (stage_count * chunk_count))
        - 2 * stage_index / chunk_count
    )
    return min(max(1.0, micro_batches), job.micro_batches)


def activation_total(job: Job, stage_index: int = 0) -> float:
    """Bytes of the activations of a stage."""
    stage_layers = (
        job.llm.layers
        / job.layout.pp
        * (FROZEN_SHARE if job.frozen_bytes else 1.0)
    )
    return (
        job.micro_tokens
        * layer_token_bytes(job, job.layout.recompute)
        * stage_layers
        * in_flight(job, stage_index)
    )


def gathered_bytes(job: Job) -> float:
    """Unsharded copies under FSDP: the root and two layers, with the gradient of one.

    With a pipeline the whole stage stays gathered, and its gradient is accumulated whole.
    Under ZeRO-2 it is the gradient of one layer alone.
    """
    layout = job.layout
    if layout.sharding not in ("zero2", "zero3") or layout.shard_group == 1:
        return 0.0
    dense_params, expert_params = local_params(job)
    if layout.pp > 1:
        return (BYTES_16BIT + GRADIENT_BYTES) * (dense_params + expert_params)
    root_params = job.llm.embedding_params / layout.tp
    layer_params = (dense_params - root_params + expert_params) / job.llm.layers
    gradient_bytes = (
        GRADIENT_BYTES
        if job.optimizer in ("adamw", "adamw-fp32", "muon", "sgd")
        else 0.0
    )
    if layout.sharding == "zero2":
        return (
            0.0
            if job.frozen_bytes
            else layer_params * (BYTES_16BIT + gradient_bytes)
        )
    root_bytes = (
        0.0 if job.software.counts_allocated else BYTES_16BIT * root_params
    )  # some wrap embedding and head apart
    if job.frozen_bytes:
        unpacked_bytes = (
            BYTES_16BIT * job.llm.hidden * job.llm.ffn / layout.tp
            if job.frozen_bytes < 1
            else 0.0
        )
        return root_bytes + 2 * layer_params * job.frozen_bytes + unpacked_bytes
    return 1.5 * root_bytes + layer_params * (3 * BYTES_16BIT + gradient_bytes)


def stage_peaks(job: Job) -> list[StagePeak]:
    """Return what the first and the last pipeline stage hold at their peaks."""
    layout = job.layout
    software = job.software
    token_count = job.micro_tokens
    working_bytes = (
        constant("train_work")
        * token_count
        * layer_token_bytes(job, "attention")
    )
    if layout.tp > 1:
        overlap_kind = "overlapped" if software.tp_overlapped else "plain"
        working_bytes += (
            constant("train_gathered", overlap_kind)
            * token_count
            * job.llm.hidden
        )
    logit_bytes = (
        constant("train_logits", software.loss)
        * token_count
        * job.llm.vocab
        / layout.tp
    )
    if software.keeps_all_logits and layout.pp > 1:
        logit_bytes += (
            BYTES_16BIT
            * token_count
            * job.micro_batches
            * job.llm.vocab
            / layout.tp
        )
    state_bytes = model_states(job).total
    copy_bytes = gathered_bytes(job)
    last_stage = layout.pp - 1
    return [
        StagePeak(
            state_bytes,
            copy_bytes,
            activation_total(job, stage_index),
            working_bytes,
            logit_bytes if stage_index == last_stage else 0.0,
        )
        for stage_index in sorted({0, last_stage})
    ]


def fullest_stage(job: Job) -> StagePeak:
    """Return the peak of the fuller of the first and the last stage."""
    return max(stage_peaks(job), key=lambda stage_peak: stage_peak.total)


def peak_gib(job: Job) -> float:
    """GiB that the framework reserves (or allocates, where that is asked)."""
    total_gib = fullest_stage(job).total / GIB
    if job.software.counts_allocated:
        return total_gib
    return (
        constant("train_overhead")
        + (1 + constant("train_fragmentation")) * total_gib
    )
