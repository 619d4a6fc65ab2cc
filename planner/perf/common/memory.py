"""What weights, KV cache and training states take.

Sizes in bytes unless the name says GiB. Never looks at price or speed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from planner.perf.common.constant import constant

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.common.layout import ReplicaLayout

GIB: Final = 2**30
KV_ELEMENT_BYTES: Final = {"bf16": 2, "fp8": 1}


def weight_bytes(llm: Llm, layout: ReplicaLayout) -> float:
    """Weight bytes of one accelerator, quantization scales included.

    (attention + rest + experts) / pp + embedding * 2 / tp of the fuller pipeline stage; attention
    and rest are cut over tp / adp, experts over tp. Embedding and head stay in 16 bit.
    """
    precision = layout.precision
    attention_tp = layout.attention_tp
    dense_params = max(0.0, llm.dense_params - llm.attention_params)
    body_bytes = llm.attention_params * attention_bytes(
        llm, precision
    ) + dense_params * dense_bytes(precision)
    expert_bytes = llm.expert_params * quantized_bytes(precision) / layout.tp
    embedding_stages = 1 if layout.pp == 1 else 2
    return (
        body_bytes / attention_tp + expert_bytes
    ) / layout.pp + llm.embedding_params * 2.0 / (layout.tp * embedding_stages)


def quantized_bytes(precision: str) -> float:
    """Bytes of a quantized parameter with its share of the scales."""
    return constant("weight_bytes", precision)


def dense_bytes(precision: str) -> float:
    """Bytes of a parameter outside the experts: mxfp4 models keep attention in 16 bit."""
    return 2.0 if precision == "mxfp4" else quantized_bytes(precision)


def attention_bytes(llm: Llm, precision: str) -> float:
    """Bytes of an attention parameter: fp4 releases with latent attention keep it in 16 bit."""
    return (
        2.0
        if precision == "fp4" and llm.kv_lora_rank
        else dense_bytes(precision)
    )


def checkpoint_bytes(llm: Llm, layout: ReplicaLayout) -> float:
    """Bytes of the checkpoint: fp8 is made from a 16-bit release when it is loaded."""
    if layout.precision == "fp8" and llm.precision == "bf16":
        return 2.0 * llm.params
    return weight_bytes(llm, layout) * layout.accelerators


def kv_token_bytes(llm: Llm, layout: ReplicaLayout) -> float:
    """KV bytes that one token adds to one layer of one accelerator.

    Grouped-query attention: 2 * head_dim * max(1, kv_heads / tp) * bytes.
    Latent attention (MLA): (rank + rope) * bytes, the same on every accelerator.
    """
    element_bytes = KV_ELEMENT_BYTES[layout.kv_precision]
    if llm.kv_lora_rank:
        return float((llm.kv_lora_rank + llm.qk_rope_dim) * element_bytes)
    return float(
        2
        * llm.head_dim
        * max(1, math.ceil(llm.kv_heads / layout.attention_tp))
        * element_bytes
    )


def kv_bytes(llm: Llm, layout: ReplicaLayout, context_tokens: float) -> float:
    """KV bytes of one sequence on one accelerator, in whole pages of 16 tokens.

    Sliding layers keep min(tokens, window); linear and state-space layers keep a state of constant
    size; the others keep everything, and sparse attention its index beside it.
    """
    page_tokens = constant("kv_block")
    full_tokens = math.ceil(context_tokens / page_tokens) * page_tokens
    window_tokens = min(
        full_tokens, math.ceil(llm.window / page_tokens) * page_tokens
    )
    layer_tokens = (
        llm.attending_layers - llm.window_layers
    ) * full_tokens + llm.window_layers * window_tokens
    state_bytes = (
        llm.state_layers * llm.state_bytes / layout.attention_tp
        + llm.index_bytes * full_tokens
    )
    return (
        kv_token_bytes(llm, layout) * layer_tokens + state_bytes
    ) / layout.pp
