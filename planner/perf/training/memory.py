"""Peak memory of training on one accelerator.

peak = overhead + (1 + fragmentation) * (states + gathered + activations + work + logits)

The fullest pipeline stage counts. Values are in bytes unless their
names end in `gib`. The terms add up, because blocks reserved for one do not serve another.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from planner.numeric import Z_OF_90_PERCENT_BAND, normal_quantile
from planner.perf.common.constant import constant
from planner.perf.training.job import EAGER_KERNELS, OPERAND_BYTES
from planner.perf.training.model_states import local_params, model_states
from planner.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.training.job import Job, Recompute, Software

BYTES_16BIT: Final = 2.0  # bytes of a number in 16 bit
GATED_MATRICES: Final = 3  # matrices of an MLP with a gate
# Bytes of an fp32 gradient.
GRADIENT_BYTES: Final = 4.0
ROUNDING: Final = 1e-9  # share by which equal sums differ
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


class StageActivations(NamedTuple):
    """The part of `StagePeak` that tokens take."""

    activations: float
    working_set: float
    logits: float


class LayerBytes(NamedTuple):
    """Activation bytes of one layer for a token on one rank.

    kept      from forward to backward
    computed  while the layer is in backward
    """

    kept: float
    computed: float


def layer_bytes(job: Job) -> LayerBytes:
    """Return the activation bytes of a layer, which depend on tp and recomputation alone."""
    return LayerBytes(
        layer_token_bytes(job, job.layout.recompute),
        # The layer in backward stores all but the scores.
        layer_token_bytes(job, "attention"),
    )


def layer_token_bytes(job: Job, recompute: Recompute) -> float:
    """Return the activation bytes of one layer for a token on one rank.

    From forward to backward, by the level of recomputation:

    full       2 h / r
    layer      s * `full` + (1 - s) * `none`
    ops        2 e h / r + 2 (2 q + kv + mlp) / tp + routed
    experts    as `none`, of layers with experts no MLP and nothing routed
    none       8 h / r + (2 (q + k + v + o) + c mlp) / tp + routed
    megatron21 10 h / r, and 5 a s / tp for stored scores without recomputation

    `attention` and `forced` keep what `none` keeps, without stored scores.

    With products of 8 bit and less Transformer Engine keeps their inputs in that format: b bytes
    in place of 2 for both norms, for the MLP and for copies of experts, and b o / tp more, since
    attention keeps its own output. Routed experts may have a precision of their own.

    h, q, kv, mlp  widths of hidden state, queries, keys (or values) and MLP
    k, v, o        widths of keys, values and the output of attention
    a, s           heads and tokens of a sequence
    r              tp with sequence parallelism, else 1
    e              2 with eager kernels, else 1
    s              share of the layers of a chunk that `layer` recomputes
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
    widths = _mlp_widths(language_model)
    input_bytes = kept_input_bytes(software, software.precision)
    expert_input_bytes = kept_input_bytes(
        software, software.precision_of_experts
    )
    # A copy of the token before each expert, as its products read it, and one after it.
    routed_bytes = (
        (expert_input_bytes + BYTES_16BIT) * widths.copied / residual_ranks
    )
    if recompute == "full":
        return BYTES_16BIT * language_model.hidden / residual_ranks
    if recompute == "layer":
        share = job.layout.layer_share
        return share * layer_token_bytes(job, "full") + (
            1 - share
        ) * layer_token_bytes(job, "none")
    if (
        recompute == "ops"
    ):  # inputs, attention's output and every second product are kept
        residual_bytes = (
            BYTES_16BIT
            * language_model.hidden
            * (2 if is_eager else 1)
            / residual_ranks
        )
        return (
            residual_bytes
            + BYTES_16BIT
            * (2 * query_width + kv_width + widths.usual + widths.routed)
            / tp_ranks
            + routed_bytes
        )
    # Inputs of norms, attention and MLP; 10 includes dropout masks.
    outside_bytes = (
        (6 if is_megatron21 else 4) + 2 * input_bytes
    ) * language_model.hidden
    is_gated = language_model.mlp_matrices == GATED_MATRICES
    if recompute == "experts" and language_model.experts:
        routed_bytes = 0.0
        widths = _MlpWidths(0.0, 0.0, 0.0)
    # 16-bit tensors of the MLP beside its input: 1, with a gate 2, unfused 3.
    beside_bytes = 2 if not is_gated else 6 if is_eager else 4
    inside_bytes = (
        _attention_bytes(job, input_bytes)
        + (beside_bytes + input_bytes) * widths.usual
        + (beside_bytes + expert_input_bytes) * widths.routed
    )
    if recompute == "none" and is_megatron21:
        inside_bytes += (
            5 * language_model.heads * job.sequence_tokens
        )  # scores, their mask, what dropout left
    return (
        outside_bytes / residual_ranks + inside_bytes / tp_ranks + routed_bytes
    )


def kept_input_bytes(software: Software, precision: str) -> float:
    """Return the bytes of an element of the input that a product keeps for backward."""
    if software.kernels != "te":
        return BYTES_16BIT
    return OPERAND_BYTES.get(precision, 1.0)


def _attention_bytes(job: Job, input_bytes: float) -> float:
    """Return the bytes of queries, keys, values and output of attention for a token."""
    language_model = job.llm
    value_dim = language_model.v_head_dim or language_model.head_dim
    output_width = language_model.heads * value_dim
    kept_width = (
        (language_model.heads + language_model.kv_heads)
        * language_model.head_dim
        + language_model.kv_heads * value_dim
        + output_width
    )
    is_copied = input_bytes < BYTES_16BIT
    return (
        BYTES_16BIT * kept_width
        # The projection after attention keeps a copy in its own format.
        + (input_bytes * output_width if is_copied else 0.0)
    )


class _MlpWidths(NamedTuple):
    """Widths of the MLP of a token in a layer.

    usual   of a dense MLP, or of shared experts
    routed  of its routed experts
    copied  of its copies for these
    """

    usual: float
    routed: float
    copied: float


def _mlp_widths(language_model: Llm) -> _MlpWidths:
    if not language_model.experts:
        return _MlpWidths(float(language_model.ffn), 0.0, 0.0)
    chosen_experts = language_model.experts_per_token
    return _MlpWidths(
        float(language_model.moe_ffn * language_model.shared_experts),
        float(language_model.moe_ffn * chosen_experts),
        float(language_model.hidden * chosen_experts),
    )


def in_flight(job: Job, stage_index: int) -> float:
    """Return the micro-batches whose activations a stage stores.

    1F1B schedule  p - i
    DualPipe       p + 1
    interleaved    (2 * (p - 1 - i) + (v - 1) * g + 1) / v

    p stages, v chunks a stage, g micro-batches of a group, i the index of the stage; at least 1,
    at most those of a step. A group is p micro-batches where they divide a step.
    Source: get_pp_rank_microbatches of Megatron Core (pipeline_parallel/schedules.py).
    """
    stage_count = job.layout.pp
    chunk_count = job.layout.vpp
    if stage_count == 1:
        return 1.0
    if job.layout.schedule == "dualpipe":
        return min(stage_count + 1.0, job.micro_batches)
    micro_batches = (
        # 1F1B: an earlier stage waits longer for its first backward.
        stage_count - stage_index
        if chunk_count == 1
        else (
            2 * (stage_count - 1 - stage_index)
            + (chunk_count - 1) * microbatch_group(job)
            + 1
        )
        / chunk_count
    )
    # A short step never fills the pipeline.
    return min(max(1.0, micro_batches), job.micro_batches)


def microbatch_group(job: Job) -> int:
    """Return the micro-batches that pass a chunk before the next chunk starts.

    The least group of at least pp micro-batches whose last one is whole, or as large as pp.
    Source: forward_backward_pipelining_with_interleaving of Megatron Core (schedules.py).
    """
    stage_count = job.layout.pp
    micro_batches = int(job.micro_batches)
    for group_size in range(stage_count, micro_batches + 1):
        last_size = micro_batches % group_size
        if last_size == 0 or last_size >= stage_count:
            return group_size
    return stage_count


def activation_total(job: Job, stage_index: int = 0) -> float:
    """Return the activation bytes of a stage.

    tokens of a micro-batch * `layer_token_bytes` * layers of a stage * `in_flight`

    With frozen weights `FROZEN_SHARE` of the activations remains.
    """
    return (
        job.micro_tokens
        * layer_token_bytes(job, job.layout.recompute)
        * _held_layers(job, stage_index)
    )


def _held_layers(job: Job, stage_index: int) -> float:
    """Return the layers of a stage, once for each micro-batch that it stores."""
    return (
        job.stage_layers(stage_index)
        * (FROZEN_SHARE if job.frozen_bytes else 1.0)
        * in_flight(job, stage_index)
    )


def gathered_bytes(job: Job) -> float:
    """Return the bytes of gathered weights and gradients under FSDP.

    ZeRO-3             root, two layers, and the gradient of one layer
    ZeRO-2             the gradient of one layer
    kept by a stage    its whole fp32 gradients, with ZeRO-3 its weights too
    frozen weights     root and two layers at `frozen_bytes`, and one matrix in 16 bit
    """
    layout = job.layout
    if layout.sharding not in ("zero2", "zero3") or layout.shard_group == 1:
        return 0.0
    dense_params, expert_params = local_params(job)
    if job.keeps_gathered:
        # All micro-batches use the gathered weights of the stage. ZeRO-2 never divides them.
        weight_bytes = BYTES_16BIT if layout.sharding == "zero3" else 0.0
        return (weight_bytes + GRADIENT_BYTES) * (dense_params + expert_params)
    # Untied input embedding and head are on different stages.
    end_stages = 1 if layout.pp == 1 or job.llm.tied else 2
    root_params = job.llm.embedding_params / layout.tp / end_stages
    layer_params = (
        (dense_params - root_params + expert_params)
        * layout.pp
        / job.llm.layers
    )
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
            if job.task == "qlora"
            else 0.0
        )
        return root_bytes + 2 * layer_params * job.frozen_bytes + unpacked_bytes
    # Two layers and the gradient of one layer in 16 bit.
    return 1.5 * root_bytes + layer_params * (3 * BYTES_16BIT + gradient_bytes)


def stage_peaks(job: Job) -> list[StagePeak]:
    """Return the peak memory of the first, the second and the last pipeline stage."""
    state_bytes = model_states(job).total
    copy_bytes = gathered_bytes(job)
    return [
        StagePeak(
            state_bytes,
            copy_bytes,
            stage.activations,
            stage.working_set,
            stage.logits,
        )
        for stage in stage_activations(job)
    ]


def stage_activations(
    job: Job, known_bytes: LayerBytes | None = None
) -> list[StageActivations]:
    """Return what tokens take in the first, the second and the last pipeline stage.

    It depends on neither the sharding of the states nor expert parallelism. `known_bytes` are
    those of `layer_bytes`, where they are known already.
    """
    layout = job.layout
    software = job.software
    token_count = job.micro_tokens
    kept_bytes, computed_bytes = known_bytes or layer_bytes(job)
    working_bytes = constant("train_work") * token_count * computed_bytes
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
    last_stage = layout.pp - 1
    return [
        StageActivations(
            token_count * kept_bytes * _held_layers(job, stage_index),
            working_bytes,
            logit_bytes if stage_index == last_stage else 0.0,
        )
        # The first stage has most micro-batches, the second may have a layer more than it,
        # the last has the logits.
        for stage_index in sorted({0, min(1, last_stage), last_stage})
    ]


def fullest_stage(job: Job) -> StagePeak:
    """Return the largest peak of all pipeline stages, before any recomputation by force."""
    return max(stage_peaks(job), key=lambda stage_peak: stage_peak.total)


def forced_stage(job: Job) -> StagePeak:
    """Return the largest peak of all pipeline stages, with the recomputation that memory forces.

    Of a layout that is `forced` each stage recomputes the share s of its layers, the least with
    which all stages fit:

    s = largest of (P - room) / (A - F), from 0 to 1

    P, A  peak of a stage and its activations without recomputation
    F     its activations when all layers are recomputed
    room  (memory - overhead) / (1 + fragmentation)
    """
    if job.layout.recompute != "forced":
        return fullest_stage(job)
    room_bytes = (
        (job.chip.memory_gib - constant("train_overhead"))
        * BYTES_PER_GIB
        / (1 + constant("train_fragmentation"))
    )
    whole_peaks = stage_peaks(job)
    spared_bytes = [
        whole.activations - recomputed.activations
        for whole, recomputed in zip(
            whole_peaks,
            stage_activations(
                job.with_layout(job.layout._replace(recompute="full"))
            ),
            strict=True,
        )
    ]
    share = max(
        (whole.total - room_bytes) / spared
        for whole, spared in zip(whole_peaks, spared_bytes, strict=True)
    )
    share = min(1.0, max(0.0, share))
    return max(
        (
            replace(whole, activations=whole.activations - share * spared)
            for whole, spared in zip(whole_peaks, spared_bytes, strict=True)
        ),
        key=lambda stage_peak: stage_peak.total,
    )


def reserved_gib(stage_peak: StagePeak) -> float:
    """Return the memory in GiB that a stage reserves, with overhead and fragmentation."""
    return (
        constant("train_overhead")
        + (1 + constant("train_fragmentation"))
        * stage_peak.total
        / BYTES_PER_GIB
    )


def peak_gib(job: Job) -> float:
    """Return the peak memory in GiB, with the recomputation that memory forces.

    Reserved memory with overhead and fragmentation, or allocated memory when
    `Software.counts_allocated` is set.
    """
    peak_stage = forced_stage(job)
    if job.software.counts_allocated:
        return peak_stage.total / BYTES_PER_GIB
    return reserved_gib(peak_stage)


def exceeds_memory(job: Job) -> bool:
    """Return whether what a job reserves is more than memory, also with recomputation by force."""
    # Recomputation by force fills memory to the last byte, but for rounding.
    return reserved_gib(forced_stage(job)) > job.chip.memory_gib * (
        1 + ROUNDING
    )


def peak_half_width_ln(job: Job, *, assumed: bool = False) -> float:
    """Return the half width of the 90 % band of a peak, in ln: narrow where it was measured.

    `assumed` means that something is assumed on which the layout depends.
    """
    is_measured = (
        job.software.is_torch and job.layout.pp == 1 and not job.llm.experts
    )
    if assumed or job.layout.recompute == "forced":
        return constant("train_memory", "unstated")
    if job.frozen_bytes or job.software.counts_allocated:
        return constant("train_memory", "adapters")
    return constant("train_memory", "measured" if is_measured else "counted")


def memory_room_gib(job: Job, confidence: float) -> float:
    """Return the memory that a predicted peak may fill, in GiB.

    memory * exp(-half width * z((1 + confidence) / 2) / z(0.95))

    Half of what may go wrong is left to memory, and half to time: with a confidence of 90 % the
    upper end of the 90 % band of the peak is the memory.
    """
    margin = (
        peak_half_width_ln(job)
        * normal_quantile((1 + confidence) / 2)
        / Z_OF_90_PERCENT_BAND
    )
    return job.chip.memory_gib * math.exp(-margin)
