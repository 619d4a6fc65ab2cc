"""Work of one rank in a training step: FLOP, bytes and counts, without coefficients.

A quantity is that of one forward pass of a micro-batch on one pipeline stage unless stated
otherwise. Every field may be an array with one element for each of many jobs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.perf.common.ring import ring_network_share
from planner.perf.training import memory
from planner.perf.training.accelerator_rates import accelerator_rates
from planner.perf.training.experts import expert_work
from planner.perf.training.memory import BYTES_16BIT
from planner.perf.training.model_states import local_params
from planner.perf.training.products import (
    dense_mlp_layers,
    last_product_share,
    product_work,
)
from planner.perf.training.quantization import quantization_work
from planner.perf.training.rank_group import context_group, tensor_group
from planner.perf.training.scan import scan_work
from planner.perf.training.sharding import sharding_traffic
from planner.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.training.job import Job


# Gathers and scatters around attention and around the MLP of a layer, in a forward pass.
COLLECTIVES: Final = 4


class RankWork(Struct, frozen=True, kw_only=True):
    """Work of one rank of a job, and the rates of its accelerator.

    tokens                  tokens of a step for each accelerator
    micro_batches           micro-batches of a step
    bubble_batches          pipeline bubble in micro-batches
    is_pipelined            1 with more than one stage, else 0
    stage_count             pipeline stages
    pass_count              passes over products: 3, or 2 with frozen weights
    gemm_flop, gemm_bytes   FLOP and operand bytes of dense products
    expert_flop, expert_bytes  FLOP and operand bytes of routed experts
    local_experts           experts of the rank * layers
    slow_passes             passes over experts that a slow kernel adds
    gemm_sum_flop, expert_sum_flop  FLOP of products of depth 1 with the same results
    unpacked_bytes          bytes moved to unpack frozen weights of less than 8 bit once
    head_flop, head_bytes   FLOP of the head, and bytes of the loss in all passes
    attention_flop          FLOP of attention
    exponentials            exponentials of the softmax
    scan_flop, scan_bytes   FLOP and bytes of scans of state-space layers
    score_bytes             bytes of a stored score matrix, 0 with fused attention
    traffic_bytes           element-wise bytes, each tensor once
    expert_traffic_bytes    the same of experts
    quantized_input_bytes, quantized_gradient_bytes  bytes that quantize inputs of products in a
                            forward pass, and gradients in a backward one
    quantized_expert_input_bytes, quantized_expert_gradient_bytes  the same of routed experts
    tensor_bytes            bytes that tensor parallelism sends
    tensor_network_bytes    those of them through the NIC of a rank, 0 within a link
    tensor_latency_s        latency of the network in its collectives, s
    context_bytes           bytes that context parallelism sends
    context_on_network      1 when context parallelism exceeds the link, else 0
    context_latency_s       latency of the network in its ring, s
    pipeline_bytes          bytes that a stage receives and sends
    pipeline_on_network     1 when stages are connected by the network, else 0
    pipeline_latency_s      latency of the network between stages, s
    permuted_bytes          bytes of the tokens that are sorted by expert
    exchange_link_bytes     bytes of an all-to-all over the link
    exchange_network_bytes  bytes of an all-to-all over the network
    exchange_latency_s      latency of the network in an all-to-all of all layers, s
    dense_layers            layers of a stage without experts
    moe_layers              layers of a stage with experts
    recomputed_gemm, recomputed_attention, recomputed_traffic, recomputed_experts  repeated
                            forward passes of each
    forced_share            share of the activations that does not fit memory
    shard_*, reduce_*, gathers_once, optimizer_bytes  as in `ShardingTraffic`
    rank_doublings          doublings of accelerators beyond 8
    peak_flop_s             dense peak in the precision of products, FLOP/s
    expert_peak_flop_s      the same in that of experts, FLOP/s
    flop_s_16bit            dense peak in 16 bit, FLOP/s
    flop_s_32bit            peak of ordinary units in 32 bit, FLOP/s
    memory_bytes_s          memory bandwidth, bytes/s
    link_bytes_s            link bandwidth, one direction, bytes/s
    network_bytes_s         network bandwidth of one accelerator, one direction, bytes/s
    exponentials_s          exponentials/s
    power_ratio             board power over that of an unthrottled clock, at most 1
    """

    tokens: float
    micro_batches: float
    bubble_batches: float
    is_pipelined: float
    stage_count: float
    pass_count: float
    gemm_flop: float
    gemm_bytes: float
    expert_flop: float
    expert_bytes: float
    gemm_sum_flop: float
    expert_sum_flop: float
    unpacked_bytes: float
    local_experts: float
    slow_passes: float
    head_flop: float
    head_bytes: float
    attention_flop: float
    exponentials: float
    scan_flop: float
    scan_bytes: float
    score_bytes: float
    traffic_bytes: float
    expert_traffic_bytes: float
    quantized_input_bytes: float
    quantized_gradient_bytes: float
    quantized_expert_input_bytes: float
    quantized_expert_gradient_bytes: float
    tensor_bytes: float
    tensor_network_bytes: float
    tensor_latency_s: float
    context_bytes: float
    context_on_network: float
    context_latency_s: float
    pipeline_bytes: float
    pipeline_on_network: float
    pipeline_latency_s: float
    permuted_bytes: float
    exchange_link_bytes: float
    exchange_network_bytes: float
    exchange_latency_s: float
    dense_layers: float
    moe_layers: float
    recomputed_gemm: float
    recomputed_attention: float
    recomputed_traffic: float
    recomputed_experts: float
    forced_share: float
    shard_link_bytes: float
    shard_network_bytes: float
    shard_calls: float
    shard_latency_s: float
    gathers_once: float
    reduce_link_bytes: float
    reduce_network_bytes: float
    reduce_latency_s: float
    optimizer_bytes: float
    rank_doublings: float
    peak_flop_s: float
    expert_peak_flop_s: float
    flop_s_16bit: float
    flop_s_32bit: float
    memory_bytes_s: float
    link_bytes_s: float
    network_bytes_s: float
    exponentials_s: float
    power_ratio: float


def rank_work(job: Job) -> RankWork:
    """Return the work of one rank of a job."""
    layout = job.layout
    accelerators = layout.accelerators
    return RankWork(
        tokens=job.global_batch * job.sequence_tokens / accelerators,
        micro_batches=job.micro_batches,
        bubble_batches=job.bubble_batches,
        is_pipelined=float(layout.pp > 1),
        stage_count=float(layout.pp),
        # Frozen weights have no product for their gradient.
        pass_count=2.0 if job.frozen_bytes else 3.0,
        rank_doublings=max(0.0, math.log2(accelerators / 8)),
        unpacked_bytes=_unpacked_bytes(job),
        **product_work(job),
        **quantization_work(job),
        **_attention_work(job),
        **scan_work(job),
        **_traffic_work(job),
        **_parallel_work(job),
        **expert_work(job),
        **_recompute_work(job),
        **sharding_traffic(job)._asdict(),
        **accelerator_rates(job),
    )


def _unpacked_bytes(job: Job) -> float:
    """Return the bytes moved to unpack the frozen weights of a rank once.

    (frozen bytes + 2) * parameters without embedding and head, 0 from 8 bit on

    Weights of 8 bit and more are operands as they are.
    """
    if job.task != "qlora":
        return 0.0
    # Embedding and head stay in 16 bit.
    packed_params = sum(local_params(job)) - min(
        local_params(job)[0], job.llm.embedding_params / job.layout.tp
    )
    return (job.frozen_bytes + BYTES_16BIT) * packed_params


def _attention_work(job: Job) -> dict[str, float]:
    """Return FLOP, exponentials and score bytes of causal attention.

    FLOP = 2 * pairs * (width of a key + width of a value) + index

    pairs    micro-batch tokens * mean context * heads / tp
    context  s / 2, at most the packed documents; w - w^2 / (2 s) in a window of w tokens, and
             where sparse attention chooses w tokens
    index    2 * micro-batch tokens * full context * width of its queries, in sparse layers
    s        tokens of a sequence

    Bytes of scores count only where no fused kernel computes them.
    """
    language_model = job.llm
    layout = job.layout
    sequence_tokens = job.sequence_tokens
    full_context = min(
        # A causal token attends to half of the sequence on average.
        sequence_tokens / 2,
        job.software.packed_tokens or math.inf,
    )
    sparse_layers = language_model.choosing_entries
    context_tokens = (
        (language_model.whole_entries - sparse_layers) * full_context
        + language_model.window_layers
        * _limited_context(job, language_model.window, full_context)
        + sparse_layers
        * _limited_context(job, language_model.sparse, full_context)
    ) / layout.pp
    attended_pairs = (
        job.micro_tokens * context_tokens * language_model.heads / layout.tp
    )
    scores_stored = (
        job.software.kernels == "megatron21" or job.software.attention_sinks
    )
    # A stored matrix is square: half of it is masked.
    score_bytes = (
        BYTES_16BIT
        * job.micro_tokens
        * sequence_tokens
        * language_model.heads
        / layout.tp
        * language_model.attending_layers
        / layout.pp
    )
    return {
        # Scores and weighted values: two products of 2 FLOP a pair.
        "attention_flop": 2
        * attended_pairs
        * (
            language_model.head_dim
            + (language_model.v_head_dim or language_model.head_dim)
        )
        # The index scores all pairs to choose, on every rank of tensor parallelism.
        + 2
        * job.micro_tokens
        * full_context
        * language_model.index_width
        * sparse_layers
        / layout.pp,
        "exponentials": attended_pairs,
        "score_bytes": score_bytes if scores_stored else 0.0,
    }


def _limited_context(job: Job, token_limit: int, full_context: float) -> float:
    """Return the mean context where a token attends to `token_limit` others, 0 being all."""
    sequence_tokens = job.sequence_tokens
    if not 0 < token_limit < sequence_tokens:
        return full_context
    return min(
        full_context,
        # The first tokens have only half as many others on average.
        token_limit - token_limit**2 / (2 * sequence_tokens),
    )


def _traffic_work(job: Job) -> dict[str, float]:
    """Return the bytes of norms, rotary embedding, gates, residuals and adapters.

    2 bytes * tokens * elements, each tensor once. Elements of a layer:

    attention    6 h / r + 2 qkv / tp
    residual     4 h / r
    MLP          2 * up matrices * width / tp
    state space  14 h / tp
    adapters     2 (5 h / r + (3 qkv + 2 q) / tp), where attention has them

    h, q, qkv  widths of hidden state, queries, and queries with keys and values
    r          tp with sequence parallelism, else 1
    """
    language_model = job.llm
    tp_ranks = job.layout.tp
    stage_count = job.layout.pp
    residual_ranks = tp_ranks if job.software.sequence_parallel else 1
    query_width = language_model.heads * language_model.head_dim
    qkv_width = _qkv_width(language_model)
    up_matrices = language_model.mlp_matrices - 1
    element_count = language_model.attending_layers * (
        6 * language_model.hidden / residual_ranks + 2 * qkv_width / tp_ranks
    )
    element_count += (
        language_model.layers * 4 * language_model.hidden / residual_ranks
        + dense_mlp_layers(language_model)
        * 2
        * up_matrices
        * language_model.ffn
        / tp_ranks
    )
    element_count += (
        language_model.state_layers * 14 * language_model.hidden / tp_ranks
    )
    # Element-wise tensors of LoRA adapters on all projections.
    if job.frozen_bytes:
        element_count += (
            2
            * language_model.attending_layers
            * (
                5 * language_model.hidden / residual_ranks
                + (3 * qkv_width + 2 * query_width) / tp_ranks
            )
        )
    routed_tokens = (
        job.micro_tokens * language_model.experts_per_token / tp_ranks
    )
    return {
        "traffic_bytes": BYTES_16BIT
        * job.micro_tokens
        * element_count
        / stage_count,
        "expert_traffic_bytes": language_model.moe_layers
        / stage_count
        * routed_tokens
        # Two 16-bit tensors for each up matrix.
        * 4
        * up_matrices
        * language_model.moe_ffn,
    }


def _qkv_width(language_model: Llm) -> int:
    """Return the width of queries, keys and values of one token in one layer."""
    query_width = language_model.heads * language_model.head_dim
    if language_model.kv_lora_rank:
        value_width = language_model.v_head_dim or language_model.head_dim
        expanded_width = query_width
        # Keys and values of latent attention; entries of several tokens are both as they are.
        if not language_model.has_entries:
            expanded_width += language_model.heads * (
                language_model.head_dim
                - language_model.qk_rope_dim
                + value_width
            )
        latent_width = language_model.kv_lora_rank + language_model.q_lora_rank
        return expanded_width + latent_width
    kv_width = language_model.kv_heads * language_model.head_dim
    return query_width + 2 * kv_width


def _parallel_work(job: Job) -> dict[str, float]:
    """Return the bytes of tensor, context and pipeline parallelism, and where they pass.

    tensor    4 * 2 bytes * tokens * h * (tp - 1) / tp * layers of a stage; of these 1 / l through
              the NIC of a rank, with l ranks of the group on a link
    context   (cp - 1) / cp * tokens of the sequences * bytes of keys and values
    pipeline  2 * 2 bytes * tokens * h / r * chunks, 0 without a pipeline

    h is the hidden width; r is tp with sequence parallelism, else 1.
    """
    layout = job.layout
    residual_ranks = layout.tp if job.software.sequence_parallel else 1
    # Published runs within one link hand over as slowly as over a network.
    stages_on_network = layout.pp > 1 and bool(
        job.chip.link != "none" or layout.accelerators > job.link_ranks
    )
    tensor_calls = COLLECTIVES * job.llm.layers / layout.pp
    tensor_bytes = (
        tensor_calls
        * BYTES_16BIT
        * job.micro_tokens
        * job.llm.hidden
        # A ring collective sends (tp - 1) / tp of a tensor.
        * (layout.tp - 1)
        / layout.tp
    )
    tensor_ranks = tensor_group(job)
    return {
        "tensor_bytes": tensor_bytes,
        "tensor_network_bytes": tensor_bytes
        * ring_network_share(tensor_ranks.link_ranks)
        if tensor_ranks.is_on_network
        else 0.0,
        "tensor_latency_s": tensor_calls
        * tensor_ranks.network_doublings
        * job.network_latency_s,
        **_context_work(job),
        "pipeline_bytes": job.micro_tokens
        * job.llm.hidden
        * BYTES_16BIT
        / residual_ranks
        * 2
        * layout.vpp
        if layout.pp > 1
        else 0.0,
        "pipeline_on_network": float(stages_on_network),
        "pipeline_latency_s": 2 * layout.vpp * job.network_latency_s
        if layout.pp > 1 and layout.accelerators > job.link_ranks
        else 0.0,
    }


def _context_work(job: Job) -> dict[str, float]:
    """Return the bytes of the ring that passes keys and values on, and where it passes.

    Each of cp - 1 turns of a ring waits for its slowest wire: that between machines, if any.
    A rank passes its part on by its own NIC: there is one ring, not one for each NIC.
    """
    language_model = job.llm
    layout = job.layout
    uncut_tokens = layout.micro * job.sequence_tokens
    kv_bytes = (
        BYTES_16BIT
        * 2
        * language_model.kv_heads
        * language_model.head_dim
        / layout.tp
        * language_model.attending_layers
        / layout.pp
    )
    is_on_network = context_group(job).is_on_network
    return {
        "context_bytes": (layout.cp - 1) / layout.cp * uncut_tokens * kv_bytes,
        "context_on_network": float(is_on_network),
        "context_latency_s": (layout.cp - 1)
        * language_model.attending_layers
        / layout.pp
        * job.network_latency_s
        if is_on_network
        else 0.0,
    }


def _recompute_work(job: Job) -> dict[str, float]:
    """Return the forward passes that are repeated, for products, attention, traffic and experts.

    Recomputation repeats a share of a pass. A reference adds one pass.
    """
    layer_share = job.layout.layer_share
    # Nothing in backward needs the result of the last product.
    product_share = (
        1 - last_product_share(job.llm) if job.software.stops_early else 1.0
    )
    # Shares of products, attention, element-wise traffic and experts.
    recompute_shares = {
        "full": (product_share, 1.0, 1.0, 1.0),
        "attention": (0.0, 1.0, 0.0, 0.0),
        "layer": (layer_share * product_share, *(layer_share,) * 3),
        "ops": (0.5, 0.0, 1.0, 0.5),
        # Half of the element-wise traffic is that of norms and experts.
        "experts": (0.0, 1.0, 0.5, 1.0),
    }.get(job.layout.recompute, (0.0,) * 4)
    reference_passes = float(job.reference != "none")
    field_names = (
        "recomputed_gemm",
        "recomputed_attention",
        "recomputed_traffic",
        "recomputed_experts",
    )
    shares_by_field = {
        field_name: pass_share + reference_passes
        for field_name, pass_share in zip(
            field_names, recompute_shares, strict=True
        )
    }
    forced_share = (
        overflow_share(job) if job.layout.recompute == "forced" else 0.0
    )
    return shares_by_field | {"forced_share": forced_share}


def overflow_share(job: Job) -> float:
    """Return the share of the activations that exceeds memory without recomputation.

    (peak - memory of the accelerator) / activations, from 0 to 1.
    """
    stage_peak = memory.fullest_stage(job)
    activation_bytes = memory.activation_total(job)
    required_gib = memory.reserved_gib(stage_peak)
    return min(
        1.0,
        max(
            0.0,
            (required_gib - job.chip.memory_gib)
            * BYTES_PER_GIB
            / max(activation_bytes, 1.0),
        ),
    )
