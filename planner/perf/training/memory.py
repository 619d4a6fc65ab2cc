"""Peak memory of training on one accelerator.

peak = overhead + (1 + fragmentation) * (states + gathered + activations + work + logits)

The fuller of the first and the last pipeline stage counts. Values are in bytes unless their
names end in `gib`. The terms add up, because blocks reserved for one do not serve another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.perf.common.constant import constant
from planner.perf.training.job import EAGER_KERNELS
from planner.perf.training.model_states import local_params, model_states
from planner.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.training.job import Job, Recompute

BYTES_16BIT: Final = 2.0  # bytes of a number in 16 bit
GATED_MATRICES: Final = 3  # matrices of an MLP with a gate
# Bytes of an fp32 gradient.
GRADIENT_BYTES: Final = 4.0
# Share of activations that frozen weights still need.
FROZEN_SHARE: Final = 0.75


class StagePeak(Struct, frozen=True):
    """Peak memory of one pipeline stage, in bytes.

    model_states     weights, gradients and optimizer states
    gathered_copies  weights and gradients that FSDP gathers
    activations      activations of the micro-batches in flight
    working_set      activations of the layer that is computed
    logits           logits and their gradient
    """

    model_states: float
    gathered_copies: float
    activations: float
    working_set: float
    logits: float

    @property
    def total(self) -> float:
        """Sum of all terms, without overhead and fragmentation."""
        return (
            self.model_states
            + self.gathered_copies
            + self.activations
            + self.working_set
            + self.logits
        )


def layer_token_bytes(job: Job, recompute: Recompute) -> float:
    """Return the activation bytes of one layer for a token on one rank.

    From forward to backward, by the level of recomputation:

    full       2 h / r
    layer      mean of `full` and `none`
    ops        2 e h / r + 2 (2 q + kv + mlp) / tp + routed
    none       8 h / r + (2 (2 q + 2 kv) + c mlp) / tp + routed
    megatron21 10 h / r, and 5 a s / tp for stored scores without recomputation

    `attention` and `forced` keep what `none` keeps, without stored scores.

    h, q, kv, mlp  widths of hidden state, queries, keys (or values) and MLP
    a, s           heads and tokens of a sequence
    r              tp with sequence parallelism, else 1
    e              2 with eager kernels, else 1
    c              4 without a gate, 6 with a gate, 8 with a gate and eager kernels

    For a GPT with an MLP of 4 h this is 34 h + 5 a s (Korthikanti et al., arXiv:2205.05198).
    """
    language_model = job.llm
    tp_ranks = job.layout.tp
    software = job.software
    is_megatron21 = software.kernels == "megatron21"
    is_eager = software.kernels in EAGER_KERNELS
    # Without sequence parallelism every tp rank stores the residuals.
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
    # Inputs of norms, attention and MLP; 10 includes dropout masks.
    outside_bytes = (10 if is_megatron21 else 8) * language_model.hidden
    is_gated = language_model.mlp_matrices == GATED_MATRICES
    inside_bytes = (
        # Queries, keys, values and the output of attention.
        BYTES_16BIT * (2 * query_width + 2 * kv_width)
        # 16-bit tensors of the MLP: 2, with a gate 3, unfused 4.
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
    """Return the MLP width of a token and the bytes of its copies for experts."""
    if not language_model.experts:
        return float(language_model.ffn), 0.0
    expert_width = language_model.moe_ffn * (
        language_model.experts_per_token + language_model.shared_experts
    )
    return (
        float(expert_width),
        # A 16-bit copy of the token before and after each expert.
        2
        * BYTES_16BIT
        * language_model.hidden
        * language_model.experts_per_token,
    )


def in_flight(job: Job, stage_index: int) -> float:
    """Return the micro-batches whose activations a stage stores.

    1F1B schedule  p - i
    interleaved    p * (1 + (p - 1) / (p * v)) - 2 * i / v

    p stages, v chunks a stage, i the index of the stage; at least 1, at most those of a step.
    """
    stage_count = job.layout.pp
    chunk_count = job.layout.vpp
    if stage_count == 1:
        return 1.0
    micro_batches = (
        # 1F1B: an earlier stage waits longer for its first backward.
        stage_count - stage_index
        if chunk_count == 1
        else stage_count * (1 + (stage_count - 1) / (stage_count * chunk_count))
        - 2 * stage_index / chunk_count
    )
    # A short step never fills the pipeline.
    return min(max(1.0, micro_batches), job.micro_batches)


def activation_total(job: Job, stage_index: int = 0) -> float:
    """Return the activation bytes of a stage.

    tokens of a micro-batch * `layer_token_bytes` * layers of a stage * `in_flight`

    With frozen weights `FROZEN_SHARE` of the activations remains.
    """
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
    """Return the bytes of gathered weights and gradients under FSDP.

    ZeRO-3             root, two layers, and the gradient of one layer
    ZeRO-2             the gradient of one layer
    with a pipeline    weights and fp32 gradients of the whole stage
    frozen weights     root and two layers at `frozen_bytes`, and one matrix in 16 bit
    """
    layout = job.layout
    if layout.sharding not in ("zero2", "zero3") or layout.shard_group == 1:
        return 0.0
    dense_params, expert_params = local_params(job)
    if layout.pp > 1:
        # All micro-batches use the gathered weights of the stage.
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
        # Weights of 4 bit are unpacked one matrix at a time.
        unpacked_bytes = (
            BYTES_16BIT * job.llm.hidden * job.llm.ffn / layout.tp
            if job.frozen_bytes < 1
            else 0.0
        )
        return root_bytes + 2 * layer_params * job.frozen_bytes + unpacked_bytes
    # Two layers and the gradient of one layer in 16 bit.
    return 1.5 * root_bytes + layer_params * (3 * BYTES_16BIT + gradient_bytes)


def stage_peaks(job: Job) -> list[StagePeak]:
    """Return the peak memory of the first and of the last pipeline stage."""
    layout = job.layout
    software = job.software
    token_count = job.micro_tokens
    working_bytes = (
        constant("train_work")
        * token_count
        # The layer in backward stores all but the scores.
        * layer_token_bytes(job, "attention")
    )
    if layout.tp > 1:
        overlap_kind = "overlapped" if software.tp_overlapped else "plain"
        working_bytes += (
            # Full inputs that tensor parallelism gathers for its products.
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
        # 16-bit logits of every earlier micro-batch of the step.
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
        # The first stage has most micro-batches, the last the logits.
        for stage_index in sorted({0, last_stage})
    ]


def fullest_stage(job: Job) -> StagePeak:
    """Return the larger peak of the first and the last pipeline stage."""
    return max(stage_peaks(job), key=lambda stage_peak: stage_peak.total)


def peak_gib(job: Job) -> float:
    """Return the peak memory in GiB.

    Reserved memory with overhead and fragmentation, or allocated memory when
    `Software.counts_allocated` is set.
    """
    total_gib = fullest_stage(job).total / BYTES_PER_GIB
    if job.software.counts_allocated:
        return total_gib
    return (
        constant("train_overhead")
        + (1 + constant("train_fragmentation")) * total_gib
    )
