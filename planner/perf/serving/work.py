"""Work of one replica in bytes, FLOP and counts, independent of any coefficient.

Quantities are per accelerator of the tensor-parallel group unless stated otherwise. Every
field is a number, or an array with one number for each replica.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.perf.common import memory
from planner.perf.common.constant import constant
from planner.perf.common.ring import ring_network_share
from planner.perf.serving.query_tile import computed_heads
from planner.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm
    from planner.perf.common.layout import Node, ReplicaLayout

DEFAULT_EXPERT_WIDTH: Final = 2048  # of an expert that a model does not have
HALF_BYTES: Final = 2.0  # bytes of a 16-bit parameter
UNLIMITED_TOKENS: Final = 1_000_000_000  # tokens: attention that is not sparse
# Bytes of an activation on its way: 8 bit to the expert, 16 bit back.
DISPATCH_BYTES: Final = 1.5
BLOCKS_OF_A_LAYER: Final = 2  # attention and MLP, each with its reduction


class ReplicaProfile(Struct, frozen=True, kw_only=True):
    """Work and hardware limits of one replica, per accelerator.

    read_*_bytes           weight bytes of a part (attention, dense, experts, head)
    *_flop                 FLOP of a part for one token
    expert_share           share of the routed experts that one token uses
    expert_columns         width of an expert on one accelerator
    rank_spread            sqrt(2 ln r * r / E) for E experts over r ranks: how many deviations
                           the rank with the most experts in use lies above the mean one
    kv_full_bytes          KV bytes of one token in all full layers, index included
    kv_window_bytes        KV bytes of one token in all sliding-window layers
    kv_state_bytes         bytes of one sequence that do not grow (state-space, linear layers)
    full_layers            layers that read all of the context; of those with an entry for several
                           tokens the part of an entry that a token has
    sparse_layers          those of `full_layers` that read no more than `sparse_tokens`
    sparse_tokens          most tokens that sparse attention reads
    index_bytes            index of sparse attention, bytes of one token in all layers
    index_flop             FLOP of the index for one pair of tokens in one layer
    latent_flop            FLOP of latent attention (MLA) in decode for one token of context
    pair_flop              FLOP of prompt attention for one pair of tokens in one layer
    memory_bytes_per_s     peak memory bandwidth, bytes/s
    peak_flop_per_s        peak in the format of the weights, FLOP/s
    half_flop_per_s        peak in 16 bit, or in fp32 with such weights, FLOP/s
    attention_flop_per_s, dense_flop_per_s  peak of parts that a release may keep in 16 bit
    link_bytes_per_s       one-way bandwidth of an accelerator within the tp group, bytes/s
    machine_link_bytes_per_s  the same within those of the group that share a machine, bytes/s
    reduce_*, gather_*, hop_*  all-reduces, expert all-to-alls, pipeline transfers: number in a
                           step, and bytes for one token
    reduce_network_bytes   bytes of all-reduces through the NIC of an accelerator for one token
    stream_bytes           bytes of activations of one token, read or written once
    network_bytes_per_s    one-way network bandwidth of the machine, bytes/s
    nic_share_bytes_per_s  one-way network bandwidth of one accelerator, bytes/s
    """

    layers: float
    full_layers: float
    window_layers: float
    moe_layers: float
    latent_layers: float
    read_attention_bytes: float
    read_dense_bytes: float
    read_experts_bytes: float
    attention_flop: float
    dense_flop: float
    read_head_bytes: float
    head_flop: float
    vocabulary_size: float
    experts_flop: float
    expert_share: float
    expert_columns: float
    rank_spread: float
    kv_full_bytes: float
    kv_window_bytes: float
    kv_state_bytes: float
    window_tokens: float
    sparse_layers: float
    sparse_tokens: float
    index_bytes: float
    index_flop: float
    latent_flop: float
    pair_flop: float
    memory_bytes_per_s: float
    peak_flop_per_s: float
    half_flop_per_s: float
    attention_flop_per_s: float
    dense_flop_per_s: float
    memory_bytes: float
    weight_bytes: float
    pp: float
    adp: float
    attention_tp: float
    link_bytes_per_s: float
    machine_link_bytes_per_s: float
    reduce_count: float
    reduce_bytes: float
    reduce_network_bytes: float
    gather_count: float
    gather_bytes: float
    stream_bytes: float
    hop_count: float
    hop_bytes: float
    network_bytes_per_s: float
    nic_share_bytes_per_s: float


def profile_replica(
    llm: Llm, layout: ReplicaLayout, node: Node
) -> ReplicaProfile:
    """Count the bytes and FLOP of a replica of `llm` in `layout` on `node`.

    Attention and dense layers are divided over tp / adp accelerators, experts over all tp.
    """
    return ReplicaProfile(
        layers=llm.layers,
        full_layers=llm.whole_entries,
        window_layers=llm.window_layers,
        moe_layers=llm.moe_layers,
        latent_layers=llm.attending_layers if llm.kv_lora_rank else 0,
        vocabulary_size=float(llm.vocab),
        **_dense_work(llm, layout),
        **_expert_work(llm, layout),
        **_attention_work(llm, layout, node.accelerator),
        memory_bytes_per_s=(node.accelerator.bandwidth_gb_s or 0.0)
        * 1e9
        # A slice of an accelerator has a share of its bandwidth.
        * node.compute_fraction,
        **_peak_speeds(llm, layout, node),
        memory_bytes=node.memory_gib * BYTES_PER_GIB,
        weight_bytes=memory.weight_bytes(llm, layout),
        pp=float(layout.pp),
        adp=float(layout.adp),
        attention_tp=float(layout.attention_tp),
        **_collectives(llm, layout, node),
    )


def _dense_work(llm: Llm, layout: ReplicaLayout) -> dict[str, float]:
    """Return weight bytes, and FLOP of a token, of attention, dense layers and head."""
    attention_tp = layout.attention_tp
    precision = layout.precision
    attention_bytes = llm.attention_params * memory.attention_bytes(
        llm, precision
    )
    head_params = llm.vocab * llm.hidden
    # Parameters outside attention, experts, embedding and head.
    dense_params = max(0.0, llm.dense_params - llm.attention_params)
    return {
        "read_attention_bytes": attention_bytes / attention_tp,
        "read_dense_bytes": dense_params
        * memory.dense_bytes(precision)
        / attention_tp,
        # No format quantizes the output head.
        "read_head_bytes": head_params
        * memory.unquantized_bytes(precision)
        / attention_tp,
        # One multiplication and one addition for each parameter.
        "attention_flop": 2.0 * llm.attention_params / attention_tp,
        "dense_flop": 2.0 * dense_params / attention_tp,
        "head_flop": 2.0 * head_params / attention_tp,
    }


def _expert_work(llm: Llm, layout: ReplicaLayout) -> dict[str, float]:
    """Return weight bytes, and FLOP of a token, of routed experts, with their share and width."""
    return {
        "read_experts_bytes": llm.expert_params
        * memory.quantized_bytes(layout.precision)
        / layout.tp,
        # One multiplication and one addition for each parameter.
        "experts_flop": 2.0 * llm.active_expert_params / layout.tp,
        "expert_share": llm.experts_per_token / llm.experts
        if llm.experts
        else 0.0,
        # Extreme of r ranks: sqrt(2 ln r) deviations, of a mean over E / r experts.
        "rank_spread": math.sqrt(
            2 * math.log(layout.ep) * layout.ep / llm.experts
        )
        if llm.experts
        else 0.0,
        "expert_columns": float(
            # Expert parallelism leaves experts whole; tp divides their width.
            (llm.moe_ffn or DEFAULT_EXPERT_WIDTH) * layout.ep / layout.tp
        ),
    }


def _attention_work(
    llm: Llm, layout: ReplicaLayout, accelerator: Accelerator
) -> dict[str, float]:
    """Return KV bytes of a token, and FLOP of attention beside its projections.

    latent FLOP  2 * heads * (2 * rank + rope) * entries of a token, with latent attention (MLA)
    pair FLOP    2 * heads * (width of a key + width of a value); of latent entries that are chosen
                 the width of the entries, since no key of a head is made of them
    """
    heads = computed_heads(llm, layout, accelerator)
    token_kv_bytes = memory.kv_token_bytes(llm, layout)
    # Scores over rank + rope, values over rank. A shared entry is a value as a whole.
    latent_width = (
        2 * llm.kv_lora_rank + (2 if llm.has_entries else 1) * llm.qk_rope_dim
    )
    pair_width = (
        latent_width
        if llm.chooses_latents
        else llm.head_dim + (llm.v_head_dim or llm.head_dim)
    )
    return {
        "kv_full_bytes": token_kv_bytes * llm.whole_entries + llm.index_bytes,
        "kv_window_bytes": token_kv_bytes * llm.window_layers,
        "kv_state_bytes": float(llm.state_bytes * llm.state_layers)
        / layout.attention_tp,
        "window_tokens": float(llm.window),
        "sparse_layers": llm.choosing_entries,
        "sparse_tokens": float(llm.sparse or UNLIMITED_TOKENS),
        "index_bytes": float(llm.index_bytes),
        # Engines repeat the index on every rank of tensor parallelism.
        "index_flop": 2.0 * llm.index_width,
        # One multiplication and one addition each.
        "latent_flop": 2.0 * heads * latent_width * llm.whole_entries
        if llm.kv_lora_rank
        else 0.0,
        "pair_flop": 2.0 * heads * pair_width,
    }


def _peak_speeds(
    llm: Llm, layout: ReplicaLayout, node: Node
) -> dict[str, float]:
    """Return the peak FLOP/s of one accelerator for each part, by its precision."""
    accelerator = node.accelerator
    precision = layout.precision

    def peak_flop_per_s(format_name: str) -> float:
        return accelerator.tflops(format_name) * 1e12 * node.compute_fraction

    # What is not quantized runs in 16 bit, or in the 32 bits of the weights.
    half_flop_per_s = peak_flop_per_s(
        precision if precision == "fp32" else "bf16"
    )
    # Format of the products, which can be wider than that of the weights.
    full_flop_per_s = peak_flop_per_s(accelerator.compute_precision(precision))
    return {
        "peak_flop_per_s": full_flop_per_s,
        "half_flop_per_s": half_flop_per_s,
        "attention_flop_per_s": half_flop_per_s
        if memory.attention_bytes(llm, precision) == HALF_BYTES
        else full_flop_per_s,
        "dense_flop_per_s": half_flop_per_s
        if memory.dense_bytes(precision) == HALF_BYTES
        else full_flop_per_s,
    }


def _collectives(
    llm: Llm, layout: ReplicaLayout, node: Node
) -> dict[str, float]:
    """Return the collectives of a step, their bytes for one token, and the wires they pass.

    all-reduce   those of each layer over the attention group, usually two. Norms of queries and
                 keys over all heads need more of them, of hardly any bytes; a layer that is
                 attention or MLP alone, or begins both at one norm, has one
    all-to-all   dispatch and return of tokens in each expert layer, with attention-DP. Up to
                 `gathered_ranks` accelerators each get all tokens; wider groups have kernels
                 that send a token to those that have an expert of it
    hop          activations between pipeline stages
    """
    attention_tp = layout.attention_tp
    layer_reduces = llm.layer_reduces or BLOCKS_OF_A_LAYER
    gather_count = 2.0 * llm.moe_layers if layout.adp > 1 else 0.0
    # One of tp is the token's own accelerator.
    remote_ranks = layout.tp - 1.0
    if layout.tp > constant("gathered_ranks"):
        # Expected share of accelerators that k experts of a token are on.
        remote_ranks *= 1 - (1 - 1 / layout.tp) ** llm.experts_per_token
    # MLP width that one token uses.
    inner_width = (
        llm.moe_ffn * (llm.experts_per_token + llm.shared_experts)
        if llm.experts
        else llm.ffn
    )
    # Stages of one machine transfer over links, at no cost in bytes here.
    spans_nodes = layout.accelerators > node.accelerator_count
    reduce_bytes = (
        float(min(layer_reduces, BLOCKS_OF_A_LAYER))
        * llm.layers
        * llm.hidden
        * 2
        * 2
        # Ring all-reduce: each rank sends 2 (t - 1) / t of the data.
        * (attention_tp - 1)
        / attention_tp
    )
    # Attention groups within one machine reduce without a network.
    machine_ranks = node.group_ranks(attention_tp)
    return {
        "link_bytes_per_s": node.link_gb_s(layout.tp) * 1e9,
        "machine_link_bytes_per_s": node.link_gb_s(
            min(layout.tp, node.accelerator_count)
        )
        * 1e9,
        "reduce_count": float(layer_reduces * llm.layers)
        if attention_tp > 1
        else 0.0,
        "reduce_bytes": reduce_bytes,
        "reduce_network_bytes": reduce_bytes * ring_network_share(machine_ranks)
        if attention_tp > machine_ranks
        else 0.0,
        "gather_count": gather_count,
        "gather_bytes": gather_count
        * remote_ranks
        * llm.hidden
        * DISPATCH_BYTES,
        "stream_bytes": 2.0
        * llm.layers
        # 16 bit of the hidden state and of a quarter of the inner width.
        * (llm.hidden + inner_width / layout.tp / 4),
        "hop_count": float(layout.pp - 1),
        "hop_bytes": float((layout.pp - 1) * llm.hidden * 2)
        if spans_nodes
        else 0.0,
        # The minimum avoids a division by zero without a network.
        "network_bytes_per_s": max(node.network_gb_s, 1e-3) * 1e9,
        "nic_share_bytes_per_s": max(node.network_gb_s, 1e-3)
        * 1e9
        / node.accelerator_count,
    }
