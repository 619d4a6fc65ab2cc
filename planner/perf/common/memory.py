"""Memory of weights, checkpoints and the KV cache.

Sizes are in bytes unless the name says GiB. The functions do not depend on price or speed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from planner.facts.accelerator import SIXTEEN_BIT
from planner.perf.common.constant import constant

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.common.layout import ReplicaLayout

# Bytes of one element of the KV cache.
KV_ELEMENT_BYTES: Final = {"fp32": 4, "bf16": 2, "fp8": 1}


def weight_bytes(llm: Llm, layout: ReplicaLayout) -> float:
    """Return weight bytes of one accelerator, quantization scales included.

        (attention + dense) / (tp / adp) / pp
        + experts / tp / pp
        + unquantized * embedding parameters / tp / stages that share them

    The embedding and the output head are not quantized: they have 2 bytes, or 4 in fp32. With
    pp > 1 they are on the first and the last stage, so the fuller of these has half of their
    bytes.
    """
    precision = layout.precision
    attention_tp = layout.attention_tp
    # Parameters outside attention, experts, embedding and head.
    dense_params = max(0.0, llm.dense_params - llm.attention_params)
    body_bytes = llm.attention_params * attention_bytes(
        llm, precision
    ) + dense_params * dense_bytes(precision)
    # Experts are divided over the whole tp group, with or without ADP.
    expert_bytes = llm.expert_params * quantized_bytes(precision) / layout.tp
    # The embedding is on the first stage, the head on the last.
    embedding_stages = 1 if layout.pp == 1 else 2
    return (
        body_bytes / attention_tp + expert_bytes
    ) / layout.pp + llm.embedding_params * unquantized_bytes(precision) / (
        layout.tp * embedding_stages
    )


def quantized_bytes(precision: str) -> float:
    """Return bytes of one quantized parameter, with its share of the scales."""
    return constant("weight_bytes", precision)


def unquantized_bytes(precision: str) -> float:
    """Return bytes of a parameter or an activation that no format quantizes."""
    return quantized_bytes("fp32" if precision == "fp32" else "bf16")


def cache_precision(precision: str, kv_precision: str) -> str:
    """Return the format of the KV cache: what is not quantized is kept as activations are.

    Activations are fp32 with weights in fp32, and have 16 bits with all others.
    """
    if precision == "fp32" and kv_precision == "bf16":
        return "fp32"
    return kv_precision


def dense_bytes(precision: str) -> float:
    """Return bytes of one parameter outside the experts.

    mxfp4 releases quantize only the experts; the rest has 16 bits.
    """
    return 2.0 if precision == "mxfp4" else quantized_bytes(precision)


def attention_bytes(llm: Llm, precision: str) -> float:
    """Return bytes of one attention parameter.

    fp4 releases with latent attention (MLA) have 16-bit attention weights.
    """
    return (
        2.0
        if precision == "fp4" and llm.kv_lora_rank
        else dense_bytes(precision)
    )


def checkpoint_bytes(llm: Llm, layout: ReplicaLayout) -> float:
    """Return bytes of the checkpoint to load.

    An fp8 deployment of a 16-bit release loads 16-bit weights and quantizes them on loading.
    """
    if layout.precision == "fp8" and llm.precision in SIXTEEN_BIT:
        return 2.0 * llm.params
    return weight_bytes(llm, layout) * layout.accelerators


def kv_token_bytes(llm: Llm, layout: ReplicaLayout) -> float:
    """Return KV bytes of one token in one layer on one accelerator.

    Grouped-query attention: 2 * head_dim * max(1, ceil(kv_heads / attention_tp)) * element bytes.
    Latent attention (MLA): (kv_lora_rank + qk_rope_dim) * element bytes on every accelerator.
    """
    element_bytes = KV_ELEMENT_BYTES[layout.kv_precision]
    # MLA: one latent vector serves all heads, so tp does not divide it.
    if llm.kv_lora_rank:
        return float((llm.kv_lora_rank + llm.qk_rope_dim) * element_bytes)
    return float(
        # K and V.
        2
        * llm.head_dim
        # A KV head is repeated when there are fewer heads than accelerators.
        * max(1, math.ceil(llm.kv_heads / layout.attention_tp))
        * element_bytes
    )


def kv_bytes(llm: Llm, layout: ReplicaLayout, context_tokens: float) -> float:
    """Return KV bytes of one sequence on one accelerator, in whole pages of 16 tokens.

    full layers            all tokens, or an entry for several, plus the index of sparse attention
    sliding-window layers  min(tokens, window)
    linear, state-space    a state of constant size
    """
    page_tokens = constant("kv_block")
    # The last page of a sequence is allocated as a whole.
    full_tokens = math.ceil(context_tokens / page_tokens) * page_tokens
    window_tokens = min(
        full_tokens, math.ceil(llm.window / page_tokens) * page_tokens
    )
    layer_tokens = (
        llm.whole_entries * full_tokens + llm.window_layers * window_tokens
    )
    state_bytes = (
        # Recurrent state of linear and state-space layers.
        llm.state_layers * llm.state_bytes / layout.attention_tp
        # Keys of the indexer that selects tokens in sparse attention.
        + llm.index_bytes * full_tokens
    )
    return (
        kv_token_bytes(llm, layout) * layer_tokens + state_bytes
    ) / layout.pp
