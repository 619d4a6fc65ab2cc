"""How long a decode step and a prompt take: reads, products, collectives and overhead add up.

Seconds, bytes and FLOP. The coefficients are rows of data/coefficients.csv; the terms follow the
published additive form of inference models (see docs/sizing.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.perf import memory
from planner.perf.coefficient import coefficient

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.layout import Layout, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The terms of step time for one layout on one node, ready to be evaluated.

    dense_read, expert_read  seconds to read the dense and all expert weights once
    dense_flop, expert_flop  seconds of products for one token
    kv_byte                  seconds for one byte of KV cache, all layers of the replica
    latent_flop              seconds of latent attention for one token of context
    reduce_fixed, reduce_token  seconds of all collectives of a step: fixed, and for each token
    fixed, sequence          overhead of a step, and for each sequence
    prompt_fixed, prompt_full   overhead of a prompt, and the length that pays all of the layers'
    """

    llm: Llm
    layout: Layout
    dense_read: float
    dense_flop: float
    expert_read: float
    expert_flop: float
    kv_byte: float
    latent_flop: float
    attention_flop: float
    reduce_fixed: float
    reduce_token: float
    fixed: float
    layer_overhead: float
    sequence: float
    overlap: float
    prompt_fixed: float
    prompt_full: float

    def attention(self, context: float) -> float:
        """Seconds that the attention of one sequence adds to a decode step."""
        held = memory.kv(self.llm, self.layout, context) * self.layout.pp
        return held * self.kv_byte + self.latent_flop * context

    def decode(self, sequences: float, attention: float) -> float:
        """Seconds of one decode step with so many sequences of so much attention() each.

        Pipeline stages work on sequences / pp at a time and a token passes all of them.
        """
        batch = max(1.0, sequences / self.layout.pp)
        dense = _norm(self.dense_read, self.dense_flop * batch, self.overlap)
        experts = 0.0
        if self.expert_read:
            chosen = self.llm.experts_per_token / self.llm.experts
            touched = 1.0 - (1.0 - chosen) ** batch
            experts = _norm(self.expert_read * touched, self.expert_flop * batch, self.overlap)
        each = attention + self.reduce_token + self.sequence
        return dense + experts + self.reduce_fixed + self.fixed + batch * each

    def prefill(self, tokens: float) -> float:
        """Seconds that the prompt of one request occupies a replica.

        Products of every token + causal attention + collectives + overhead per layer.
        """
        full = self.llm.layers - self.llm.window_layers
        seen = full * tokens + self.llm.window_layers * min(tokens, 2.0 * self.llm.window)
        products = tokens * (self.dense_flop + self.expert_flop)
        attention = self.attention_flop * tokens * seen / 2
        overhead = self.prompt_fixed + min(1.0, tokens / self.prompt_full) * self.layer_overhead
        return products + attention + tokens * self.reduce_token + overhead


def step(llm: Llm, layout: Layout, node: Node) -> Step:
    """Work out the terms for a layout on a node (spread over several nodes when pp needs it)."""
    chip, arch = node.accelerator, node.accelerator.architecture
    bandwidth = (chip.bandwidth_gb_s or 0.0) * 1e9 * node.fraction
    compute = chip.computes(layout.precision)
    peak = chip.tflops(compute) * 1e12 * node.fraction
    half = chip.tflops("bf16") * 1e12 * node.fraction
    rate = peak * coefficient("flops", compute, arch) * layout.tp
    unpacked = compute == "bf16" and layout.precision not in ("bf16", "auto")
    dense_rate = rate * (coefficient("unpack_flops") if unpacked else 1.0)
    head = llm.vocab * llm.hidden
    held = llm.dense * memory.dense_bytes(layout.precision) + head * 2.0
    reading = bandwidth * coefficient("weight_bandwidth", arch) * layout.tp
    every = llm.dense + head
    vendor = "amd" if chip.vendor == "amd" else ""
    per_layer = coefficient("layer_overhead", vendor) * llm.layers
    per_layer += coefficient("moe_overhead", vendor) * llm.moe_layers
    fixed, token = _collectives(llm, layout, node)
    read, flop = _experts(llm, layout, reading, rate * _unpack(unpacked=unpacked))
    latent = 2.0 * llm.heads / layout.tp * (2 * llm.kv_lora_rank + llm.qk_rope_dim) * llm.layers
    return Step(
        llm=llm,
        layout=layout,
        dense_read=held / reading,
        dense_flop=2.0 * every / dense_rate,
        expert_read=read,
        expert_flop=flop,
        kv_byte=1.0 / (bandwidth * coefficient("kv_bandwidth")),
        latent_flop=latent / (half * coefficient("mla_decode")) if llm.kv_lora_rank else 0.0,
        attention_flop=_prompt_attention(llm) / (half * layout.tp * coefficient("flops", arch)),
        reduce_fixed=fixed,
        reduce_token=token,
        fixed=per_layer + coefficient("step_overhead", vendor),
        layer_overhead=per_layer,
        sequence=coefficient("sequence_overhead", vendor),
        overlap=coefficient("overlap"),
        prompt_fixed=coefficient("prefill_base"),
        prompt_full=coefficient("prefill_layer_tokens"),
    )


def _norm(read: float, product: float, power: float) -> float:
    return float((read**power + product**power) ** (1.0 / power))


def _unpack(*, unpacked: bool) -> float:
    return coefficient("unpack_expert_flops") if unpacked else 1.0


def _experts(llm: Llm, layout: Layout, reading: float, rate: float) -> tuple[float, float]:
    """Seconds to read all experts, and seconds of expert products for one token."""
    if not llm.experts:
        return 0.0, 0.0
    each = coefficient("weight_bytes", layout.precision)
    width = llm.moe_ffn if layout.ep > 1 else llm.moe_ffn / layout.tp
    share = coefficient("expert_flops") * (width / 2048) ** coefficient("expert_width")
    slow = coefficient("expert_imbalance") if layout.ep > 1 else 1.0
    read = llm.expert * each * coefficient("expert_bytes") * slow / reading
    return read, 2.0 * llm.expert_active * slow / (rate * share)


def _prompt_attention(llm: Llm) -> float:
    """FLOP of attention per layer for one pair of tokens: queries on keys, then on values."""
    value = llm.v_head_dim or llm.head_dim
    return 2.0 * llm.heads * (llm.head_dim + value) / coefficient("prefill_attention")


def _collectives(llm: Llm, layout: Layout, node: Node) -> tuple[float, float]:
    """Fixed seconds and seconds per token of the collectives of one step.

    Two all-reduces a layer over tp: latency, and 2 * hidden * 2 (tp - 1) / tp bytes a token.
    Pipeline stages hand over hidden * 2 bytes a token, between nodes when they span several.
    """
    fixed = token = 0.0
    if layout.tp > 1:
        if node.linked(layout.tp):
            growth = 1 + coefficient("link_latency_growth") * (layout.tp - 2)
            latency = coefficient("link_latency") * growth
            speed = node.accelerator.link_gb_s / 2 * coefficient("link_bandwidth")
        else:
            latency = coefficient("pcie_latency")
            lanes = coefficient("pcie_gen", str(max(3, node.accelerator.pcie_gen)))
            speed = lanes * coefficient("pcie_bandwidth")
        moved = llm.hidden * 2 * 2 * (layout.tp - 1) / layout.tp
        fixed += 2 * llm.layers * latency
        token += 2 * llm.layers * moved / (speed * 1e9)
    if layout.pp > 1:
        spans = layout.accelerators > node.count
        fixed += (layout.pp - 1) * coefficient("stage_hop", "network" if spans else "")
        if spans:
            speed = node.network_gb_s * coefficient("network_bandwidth") * 1e9
            token += (layout.pp - 1) * llm.hidden * 2 / speed
    return fixed, token
