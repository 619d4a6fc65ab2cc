"""What one accelerator of a replica must hold, and how many sequences fit beside the weights.

Sizes in bytes unless the name says GiB. Never looks at price or speed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.perf.coefficient import coefficient

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.layout import Layout, Node

GIB: Final = 2**30
KV_BYTES: Final = {"bf16": 2, "fp8": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of one accelerator, in GiB; `pool` is what is left for the KV cache."""

    total_gib: float
    weights_gib: float
    activation_gib: float
    other_gib: float
    pool_gib: float

    @property
    def used_gib(self) -> float:
        """Everything but the pool and the reserve of the engine."""
        return self.weights_gib + self.activation_gib + self.other_gib


def weights(llm: Llm, layout: Layout) -> float:
    """Weight bytes of one accelerator, quantization scales included.

    (dense + experts) * bytes / (tp * pp) + embedding * 2 / tp of the fuller pipeline stage.
    Embedding and head stay in 16 bit; a model released in mxfp4 keeps its attention in 16 bit.
    """
    each = coefficient("weight_bytes", layout.precision)
    body = llm.dense * dense_bytes(layout.precision) + llm.expert * each
    stages = 1 if layout.pp == 1 else 2
    return body / (layout.tp * layout.pp) + llm.embedding * 2.0 / (layout.tp * stages)


def dense_bytes(precision: str) -> float:
    """Bytes of a parameter outside the experts: mxfp4 models keep attention in 16 bit."""
    return 2.0 if precision == "mxfp4" else coefficient("weight_bytes", precision)


def stored(llm: Llm, layout: Layout) -> float:
    """Bytes of the checkpoint: fp8 is made from a 16-bit release when it is loaded."""
    if layout.precision == "fp8" and llm.precision == "bf16":
        return 2.0 * llm.params
    return weights(llm, layout) * layout.accelerators


def kv_per_token(llm: Llm, layout: Layout) -> float:
    """KV bytes that one token adds to one layer of one accelerator.

    Grouped-query attention: 2 * head_dim * max(1, kv_heads / tp) * bytes.
    Latent attention (MLA): (rank + rope) * bytes, the same on every accelerator.
    """
    width = KV_BYTES[layout.kv_precision]
    if llm.kv_lora_rank:
        return float((llm.kv_lora_rank + llm.qk_rope_dim) * width)
    return float(2 * llm.head_dim * max(1, math.ceil(llm.kv_heads / layout.tp)) * width)


def kv(llm: Llm, layout: Layout, tokens: float) -> float:
    """KV bytes of one sequence on one accelerator, in whole pages of 16 tokens.

    Sliding layers keep min(tokens, window); the other layers keep everything.
    """
    page = coefficient("kv_block")
    full = math.ceil(tokens / page) * page
    windowed = min(full, math.ceil(llm.window / page) * page)
    held = (llm.layers - llm.window_layers) * full + llm.window_layers * windowed
    return kv_per_token(llm, layout) * held / layout.pp


def account(llm: Llm, layout: Layout, node: Node) -> Memory:
    """Account for the memory of one accelerator under vLLM.

    pool = share * total - weights - activation - non-torch; negative when it does not fit.
    """
    total = node.memory_gib
    held = weights(llm, layout) / GIB
    activation = coefficient("activation", "moe" if llm.experts else "")
    other = coefficient("non_torch", "tp" if layout.accelerators > 1 else "")
    pool = coefficient("memory_share") * total - held - activation - other
    return Memory(
        total_gib=total,
        weights_gib=held,
        activation_gib=activation,
        other_gib=other,
        pool_gib=pool,
    )


def batch(llm: Llm, layout: Layout, pool_gib: float, tokens: float) -> int:
    """How many sequences of `tokens` a pool holds, up to the engine's limit; 0 when none."""
    if pool_gib <= 0:
        return 0
    return min(int(coefficient("max_sequences")), int(pool_gib * GIB / kv(llm, layout, tokens)))


def training_gib(llm: Llm, method: str) -> float:
    """GiB that fine-tuning holds over all accelerators: states and activations.

    parameters * bytes(method) + activations of one sequence with checkpointing.
    """
    return llm.params * coefficient("optimizer_bytes", method) / GIB + coefficient(
        "training_activation"
    )
