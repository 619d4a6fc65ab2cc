"""Work of one rank in a training step: FLOP, bytes and counts, without coefficients.

A quantity is that of one forward pass of a micro-batch on one pipeline stage unless stated
otherwise. Every field may be an array with one element for each of many jobs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from planner.facts import table
from planner.perf.common.constant import constant
from planner.perf.training import memory
from planner.perf.training.job import SIXTEEN_BIT
from planner.perf.training.memory import BYTES_16BIT
from planner.perf.training.sharding import sharding_traffic
from planner.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.training.job import Job

# NVFP4: half a byte, and an 8-bit scale for a block of 16.
OPERAND_BYTES: Final = {
    **dict.fromkeys(SIXTEEN_BIT, 2.0),
    "nvfp4": 0.5625,
}  # of an operand of a product; 8-bit formats take 1
FLOP_PER_EXP: Final = (
    250.0  # 16-bit FLOP for each exponential, where nobody publishes the rate
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWork:
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
    head_flop, head_bytes   FLOP of the head, and bytes of the loss in all passes
    attention_flop          FLOP of attention
    exponentials            exponentials of the softmax
    score_bytes             bytes of a stored score matrix, 0 with fused attention
    traffic_bytes           element-wise bytes, each tensor once
    expert_traffic_bytes    the same of experts
    is_quantized            1 when products have less than 16 bit, else 0
    tensor_bytes            bytes that tensor parallelism sends
    tensor_on_network       1 when tensor parallelism exceeds the link, else 0
    context_bytes           bytes that context parallelism sends
    pipeline_bytes          bytes that a stage receives and sends
    pipeline_on_network     1 when stages are connected by the network, else 0
    permuted_bytes          bytes of the tokens that are sorted by expert
    exchange_link_bytes     bytes of an all-to-all over the link
    exchange_network_bytes  bytes of an all-to-all over the network
    dense_layers            layers of a stage without experts
    moe_layers              layers of a stage with experts
    recomputed_gemm, recomputed_attention, recomputed_traffic  repeated forward passes of each
    forced_share            share of the activations that does not fit memory
    shard_*, reduce_*, gathers_once, optimizer_bytes  as in `ShardingTraffic`
    rank_doublings          doublings of accelerators beyond 8
    peak_flop_s             dense peak in the precision of products, FLOP/s
    flop_s_16bit            dense peak in 16 bit, FLOP/s
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
    local_experts: float
    head_flop: float
    head_bytes: float
    attention_flop: float
    exponentials: float
    score_bytes: float
    traffic_bytes: float
    expert_traffic_bytes: float
    is_quantized: float
    tensor_bytes: float
    tensor_on_network: float
    context_bytes: float
    pipeline_bytes: float
    pipeline_on_network: float
    permuted_bytes: float
    exchange_link_bytes: float
    exchange_network_bytes: float
    dense_layers: float
    moe_layers: float
    recomputed_gemm: float
    recomputed_attention: float
    recomputed_traffic: float
    forced_share: float
    shard_link_bytes: float
    shard_network_bytes: float
    shard_calls: float
    gathers_once: float
    reduce_link_bytes: float
    reduce_network_bytes: float
    optimizer_bytes: float
    rank_doublings: float
    peak_flop_s: float
    flop_s_16bit: float
    memory_bytes_s: float
    link_bytes_s: float
    network_bytes_s: float
    exponentials_s: float
    power_ratio: float


@cache
def _exponential_rates() -> dict[str, float]:
    column_types = {
        "architecture": table.nonempty_text,
        "rate": table.real_between(0.1, 1000),
        "unit": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return {
        rate_row["architecture"]: rate_row["rate"]
        for rate_row in table.load_rows(
            "planner.perf", "exponentials.csv", column_types
        )
    }


def rank_work(job: Job) -> RankWork:
    """Return the work of one rank of a job."""
    layout = job.layout
    software = job.software
    accelerators = layout.accelerators
    return RankWork(
        tokens=job.global_batch * job.sequence_tokens / accelerators,
        micro_batches=job.micro_batches,
        # Textbook bubble of the (interleaved) 1F1B schedule.
        bubble_batches=(layout.pp - 1) / layout.vpp,
        is_pipelined=float(layout.pp > 1),
        stage_count=float(layout.pp),
        # Frozen weights have no product for their gradient.
        pass_count=2.0 if job.frozen_bytes else 3.0,
        is_quantized=float(software.precision not in SIXTEEN_BIT),
        rank_doublings=max(0.0, math.log2(accelerators / 8)),
        **_product_work(job),
        **_attention_work(job),
        **_traffic_work(job),
        **_parallel_work(job),
        **_expert_work(job),
        **_recompute_work(job),
        **sharding_traffic(job)._asdict(),
        **_accelerator_rates(job),
    )


def _product_work(job: Job) -> dict[str, float]:
    """Return FLOP and bytes of dense products and of the head.

    FLOP   2 * m * n * k for each product of m tokens, width n and depth k
    bytes  operand bytes * (m * k + n * k) + 2 * m * n

    Products: projections of attention, dense MLP, shared experts and state-space layers.
    """
    language_model = job.llm
    tp_ranks = job.layout.tp
    token_count = job.micro_tokens
    operand_bytes = OPERAND_BYTES.get(job.software.precision, 1.0)
    stage_count = job.layout.pp
    layer_products = [
        (
            language_model.attending_layers / stage_count,
            product_width,
            product_depth,
        )
        for product_width, product_depth in _projections(job)
    ]
    # Up projection and, with a gate, the gate; the last is down.
    up_matrices = language_model.mlp_matrices - 1
    shared_width = (
        language_model.shared_experts
        * language_model.moe_ffn
        # Shared experts of hybrid models count as twice as wide.
        * (2 if language_model.state_layers else 1)
    )
    for mlp_layers, mlp_width in (
        (_dense_mlp_layers(language_model), language_model.ffn),
        (language_model.moe_layers if shared_width else 0, shared_width),
    ):
        # Up projections are split by column, the down one by row.
        layer_products += [
            (
                mlp_layers / stage_count,
                up_matrices * mlp_width / tp_ranks,
                language_model.hidden,
            ),
            (
                mlp_layers / stage_count,
                language_model.hidden,
                mlp_width / tp_ranks,
            ),
        ]
    gemm_flop = sum(
        layer_count * 2 * token_count * product_width * product_depth
        for layer_count, product_width, product_depth in layer_products
    )
    gemm_bytes = sum(
        layer_count
        * (
            operand_bytes
            # Inputs and weights in the precision of products.
            * (token_count * product_depth + product_width * product_depth)
            + BYTES_16BIT * token_count * product_width
        )
        for layer_count, product_width, product_depth in layer_products
    )
    if (
        language_model.state_layers
    ):  # projections of state-space layers: what is left of the parameters
        # Parameters of products so far, with experts and head.
        counted_params = (
            gemm_flop * tp_ranks * stage_count / (2 * token_count)
            + language_model.active_expert_params
            + language_model.vocab * language_model.hidden
        )
        remaining_flop = (
            max(0.0, language_model.active_params - counted_params)
            * 2
            * token_count
            / (tp_ranks * stage_count)
        )
        gemm_flop = gemm_flop + remaining_flop
        gemm_bytes = (
            # 3 bytes for each token and column of matrices `hidden` deep.
            gemm_bytes + remaining_flop / (2 * language_model.hidden) * 3
        )
    return {
        "gemm_flop": gemm_flop,
        "gemm_bytes": gemm_bytes,
        "head_flop": 2.0
        * token_count
        * language_model.vocab
        * language_model.hidden
        / tp_ranks
        * _head_passes(job),
        # 12 bytes for each token and vocabulary entry, in all passes.
        "head_bytes": 12.0 * token_count * language_model.vocab / tp_ranks,
    }


def _head_passes(job: Job) -> float:
    """Return the factor on the head for the pass of a reference.

    1 without a reference, else 1 + 1 / passes of training.
    """
    pass_count = 2.0 if job.frozen_bytes else 3.0
    # Head FLOP are multiplied by the passes later.
    return 1.0 if job.reference == "none" else 1 + 1 / pass_count


def _dense_mlp_layers(language_model: Llm) -> int:
    """Return the number of layers with a dense MLP."""
    if language_model.experts:
        return language_model.dense_layers
    # A layer of a hybrid is state space, attention or MLP.
    if language_model.state_layers:
        return max(
            0,
            language_model.layers
            - language_model.state_layers
            - language_model.attending_layers,
        )
    return language_model.layers


def _projections(job: Job) -> list[tuple[float, float]]:
    """Return (width, depth) of each projection of attention on one rank.

    Latent attention (MLA) has a joint down projection, an up projection of queries, and one of
    keys and values.
    """
    language_model = job.llm
    tp_ranks = job.layout.tp
    query_width = language_model.heads * language_model.head_dim
    value_width = language_model.v_head_dim or language_model.head_dim
    if language_model.kv_lora_rank:
        query_rank = language_model.q_lora_rank
        rope_width = language_model.qk_rope_dim
        up_width = language_model.heads * (
            language_model.head_dim - rope_width + value_width
        )
        return [
            (
                # Joint down projection, the same on every tp rank.
                query_rank + language_model.kv_lora_rank + rope_width,
                language_model.hidden,
            ),
            (query_width / tp_ranks, query_rank or language_model.hidden),
            # Keys without their rotary part, and values, from the latent.
            (up_width / tp_ranks, language_model.kv_lora_rank),
            (
                language_model.hidden,
                language_model.heads * value_width / tp_ranks,
            ),
        ]
    kv_width = language_model.kv_heads * language_model.head_dim
    return [
        # Queries, keys and values in one product, then the output.
        ((query_width + 2 * kv_width) / tp_ranks, language_model.hidden),
        (language_model.hidden, query_width / tp_ranks),
    ]


def _attention_work(job: Job) -> dict[str, float]:
    """Return FLOP, exponentials and score bytes of causal attention.

    FLOP = 2 * pairs * (width of a key + width of a value)

    pairs    micro-batch tokens * mean context * heads / tp
    context  s / 2, at most the packed documents; w - w^2 / (2 s) in a window of w tokens
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
    window_context = full_context
    if 0 < language_model.window < sequence_tokens:
        window_context = min(
            sequence_tokens / 2,
            language_model.window
            # The first w tokens have only w / 2 others on average.
            - language_model.window**2 / (2 * sequence_tokens),
        )
    sliding_layers = (
        language_model.window_layers
        * language_model.attending_layers
        / language_model.layers
    )
    context_tokens = (
        (language_model.attending_layers - sliding_layers) * full_context
        + sliding_layers * window_context
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
        ),
        "exponentials": attended_pairs,
        "score_bytes": score_bytes if scores_stored else 0.0,
    }


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
    kv_width = language_model.kv_heads * language_model.head_dim
    qkv_width = query_width + 2 * kv_width
    if language_model.kv_lora_rank:
        value_width = language_model.v_head_dim or language_model.head_dim
        # Expanded queries, keys and values of latent attention.
        qkv_width = query_width + language_model.heads * (
            language_model.head_dim - language_model.qk_rope_dim + value_width
        )
        qkv_width += language_model.kv_lora_rank + language_model.q_lora_rank
    up_matrices = language_model.mlp_matrices - 1
    element_count = language_model.attending_layers * (
        6 * language_model.hidden / residual_ranks + 2 * qkv_width / tp_ranks
    )
    element_count += (
        language_model.layers * 4 * language_model.hidden / residual_ranks
        + _dense_mlp_layers(language_model)
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


def _parallel_work(job: Job) -> dict[str, float]:
    """Return the bytes of tensor, context and pipeline parallelism.

    tensor    4 * 2 bytes * tokens * h * (tp - 1) / tp * layers of a stage
    context   (cp - 1) / cp * tokens of the sequences * bytes of keys and values
    pipeline  2 * 2 bytes * tokens * h / r * chunks, 0 without a pipeline

    h is the hidden width; r is tp with sequence parallelism, else 1.
    """
    language_model = job.llm
    layout = job.layout
    residual_ranks = layout.tp if job.software.sequence_parallel else 1
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
    tensor_bytes = (
        # Gather and scatter around attention and around the MLP.
        4
        * BYTES_16BIT
        * job.micro_tokens
        * language_model.hidden
        # A ring collective sends (tp - 1) / tp of a tensor.
        * (layout.tp - 1)
        / layout.tp
        * language_model.layers
        / layout.pp
    )
    return {
        "tensor_bytes": tensor_bytes,
        "tensor_on_network": float(layout.tp > job.link_ranks),
        "context_bytes": (layout.cp - 1) / layout.cp * uncut_tokens * kv_bytes,
        "pipeline_bytes": job.micro_tokens
        * language_model.hidden
        * BYTES_16BIT
        / residual_ranks
        * 2
        * layout.vpp
        if layout.pp > 1
        else 0.0,
        # Published runs within one link hand over as slowly as over a network.
        "pipeline_on_network": float(
            job.chip.link != "none" or layout.accelerators > job.link_ranks
        ),
    }


def _expert_work(job: Job) -> dict[str, float]:
    """Return the work of routed experts: products, permutation and all-to-all.

    Over the network a token is sent once to each machine with at least one of its experts.
    """
    language_model = job.llm
    layout = job.layout
    moe_layers = language_model.moe_layers / layout.pp
    field_names = (
        "expert_flop",
        "expert_bytes",
        "local_experts",
        "permuted_bytes",
        "exchange_link_bytes",
        "exchange_network_bytes",
    )
    layer_counts = {
        "moe_layers": moe_layers,
        "dense_layers": language_model.layers / layout.pp - moe_layers,
    }
    if not language_model.experts:
        return dict.fromkeys(field_names, 0.0) | layer_counts
    expert_tp = (
        layout.tp if layout.ep == 1 else 1
    )  # experts of all ranks alike are cut as other products are
    # Copies of tokens that one rank computes, at even routing.
    routed_tokens = (
        job.micro_tokens
        * language_model.experts_per_token
        * expert_tp
        / layout.tp
    )
    hidden_width = language_model.expert_hidden or language_model.hidden
    operand_bytes = OPERAND_BYTES.get(job.software.precision, 1.0)
    local_experts = language_model.experts / layout.ep
    up_matrices = language_model.mlp_matrices - 1
    expert_width = language_model.moe_ffn / expert_tp
    expert_flop = (
        2 * routed_tokens * hidden_width * expert_width * (up_matrices + 1)
    )
    expert_bytes = operand_bytes * (
        routed_tokens * (hidden_width + expert_width)
        # Weights of all local experts are read in every micro-batch.
        + local_experts * hidden_width * expert_width * (up_matrices + 1)
    )
    expert_bytes += (
        BYTES_16BIT
        * routed_tokens
        * (up_matrices * expert_width + hidden_width)
    )
    exchange_bytes = moe_layers * routed_tokens * hidden_width * BYTES_16BIT
    network_bytes = (
        moe_layers
        * job.micro_tokens
        / layout.tp
        * hidden_width
        * BYTES_16BIT
        * remote_machines(job)
    )
    quantities = (
        moe_layers * expert_flop,
        moe_layers * expert_bytes,
        moe_layers * local_experts,
        exchange_bytes,
        # A share 1 / ep of the experts is on the rank itself.
        exchange_bytes * (1 - 1 / layout.ep),
        network_bytes,
    )
    return dict(zip(field_names, quantities, strict=True)) | layer_counts


def remote_machines(job: Job) -> float:
    """Return the expected number of other machines that a token is sent to.

    n * (1 - (1 - 1 / n)^k) * (1 - 1 / n)

    n  machines that share the experts
    k  experts of a token, chosen uniformly
    """
    machine_count = max(1.0, job.layout.ep / min(job.layout.ep, job.link_ranks))
    reached_machines = machine_count * (
        1 - (1 - 1 / machine_count) ** job.llm.experts_per_token
    )
    return reached_machines * (1 - 1 / machine_count)


def _recompute_work(job: Job) -> dict[str, float]:
    """Return the forward passes that are repeated, for products, attention and traffic.

    Recomputation repeats a share of a pass. A reference adds one pass.
    """
    # Shares of products, attention and element-wise traffic.
    recompute_shares = {
        "full": (1.0, 1.0, 1.0),
        "attention": (0.0, 1.0, 0.0),
        "layer": (0.5, 0.5, 0.5),
        "ops": (0.5, 0.0, 1.0),
    }.get(job.layout.recompute, (0.0, 0.0, 0.0))
    reference_passes = float(job.reference != "none")
    field_names = (
        "recomputed_gemm",
        "recomputed_attention",
        "recomputed_traffic",
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
    # Peak of reserved memory, as in `memory.peak_gib`.
    required_gib = (
        constant("train_overhead")
        + (1 + constant("train_fragmentation"))
        * stage_peak.total
        / BYTES_PER_GIB
    )
    return min(
        1.0,
        max(
            0.0,
            (required_gib - job.chip.memory_gib)
            * BYTES_PER_GIB
            / max(activation_bytes, 1.0),
        ),
    )


def _accelerator_rates(job: Job) -> dict[str, float]:
    """Return the peak rates and bandwidths of the accelerator, in units a second."""
    accelerator = job.chip
    flop_s_16bit = (job.chip.bf16_tflops or 0.0) * 1e12
    low_precision = {
        **dict.fromkeys(SIXTEEN_BIT, 0.0),
        "int8": accelerator.int8_tops,
        "nvfp4": accelerator.fp4_tflops,
    }
    peak_flop_s = (
        low_precision.get(job.software.precision, accelerator.fp8_tflops) or 0.0
    ) * 1e12
    # The catalog has the sum of both directions.
    link_bytes_s = accelerator.link_gb_s / 2 * 1e9
    # Without a link accelerators of a machine communicate over PCIe.
    if accelerator.link == "none" or not link_bytes_s:
        pcie_gb_s = constant("pcie_gen", str(max(3, accelerator.pcie_gen)))
        link_bytes_s = constant("pcie_reached") * pcie_gb_s * 1e9
    # Board power over what full clocks need at this peak rate.
    power_ratio = (accelerator.tdp_w or math.inf) / (
        (accelerator.bf16_tflops or 1.0) * constant("train_watts")
    )
    return {
        "peak_flop_s": peak_flop_s or flop_s_16bit,
        "flop_s_16bit": flop_s_16bit,
        "memory_bytes_s": (accelerator.bandwidth_gb_s or 0.0) * 1e9,
        "link_bytes_s": link_bytes_s,
        "network_bytes_s": job.network_bytes_s,
        "exponentials_s": _exponential_rates().get(
            accelerator.architecture, flop_s_16bit / FLOP_PER_EXP / 1e12
        )
        * 1e12,
        "power_ratio": min(1.0, power_ratio),
    }
