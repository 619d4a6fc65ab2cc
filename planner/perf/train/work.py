"""What one rank does in a training step, in bytes, FLOP and counts: no coefficient in it.

Quantities are those of one forward pass of one micro-batch on one pipeline stage unless they say
otherwise. As in serving, every field may be an array with one number for each of many jobs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from planner.facts import table
from planner.perf.constant import constant
from planner.perf.memory import GIB
from planner.perf.train import memory
from planner.perf.train.job import SIXTEEN
from planner.perf.train.memory import HALF
from planner.perf.train.shard import sharded

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.train.job import Job

BYTES: Final = {
    **dict.fromkeys(SIXTEEN, 2.0),
    "nvfp4": 0.5625,
}  # of an operand of a product; 8-bit formats take 1
OTHER_RATE: Final = (
    250.0  # 16-bit FLOP for each exponential, where nobody publishes the rate
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One rank of a job in numbers.

    gemm_*, expert_*, head_*  FLOP and operand bytes of products; `local` experts times layers
    attention, exponentials, scores   FLOP, count, and bytes of a score matrix that is stored
    traffic, expert_traffic   element-wise bytes, each tensor once
    tensor, context, hops     bytes of tensor, context and pipeline parallelism
    permuted, exchange_*      bytes of tokens sorted, and sent over the link and the network
    again_*                   share of products, attention and traffic that is recomputed
    forced                    share of activations that does not fit, where nobody states it
    shard_*, reduce_*         bytes that sharding moves in a micro-batch, and once a step
    """

    tokens: float
    micros: float
    bubble: float
    pipelined: float
    stages: float
    passes: float
    gemm_flop: float
    gemm_bytes: float
    expert_flop: float
    expert_bytes: float
    local: float
    head_flop: float
    head_bytes: float
    attention: float
    exponentials: float
    scores: float
    traffic: float
    expert_traffic: float
    quantized: float
    tensor: float
    tensor_network: float
    context: float
    hops: float
    hops_network: float
    permuted: float
    exchange_link: float
    exchange_network: float
    dense_layers: float
    moe_layers: float
    again_gemm: float
    again_attention: float
    again_traffic: float
    forced: float
    shard_link: float
    shard_network: float
    shard_calls: float
    once: float
    reduce_link: float
    reduce_network: float
    updated: float
    doublings: float
    peak: float
    half: float
    bandwidth: float
    link: float
    network: float
    rate: float
    power: float


@cache
def _rates() -> dict[str, float]:
    columns = {
        "architecture": table.text,
        "rate": table.real(0.1, 1000),
        "unit": table.text,
        **table.SOURCED,
    }
    text = (
        files("planner.perf")
        .joinpath("data", "exponentials.csv")
        .read_text(encoding="utf-8")
    )
    return {
        r["architecture"]: r["rate"]
        for r in table.rows(text, "exponentials.csv", columns)
    }


def work(job: Job) -> Work:
    """Count what one rank of a job does."""
    s, soft = job.spread, job.software
    accelerators = s.accelerators
    return Work(
        tokens=job.batch * job.sequence / accelerators,
        micros=job.micros,
        bubble=(s.pp - 1) / s.vpp,
        pipelined=float(s.pp > 1),
        stages=float(s.pp),
        passes=2.0 if job.frozen else 3.0,
        quantized=float(soft.precision not in SIXTEEN),
        doublings=max(0.0, math.log2(accelerators / 8)),
        **_products(job),
        **_attention(job),
        **_traffic(job),
        **_parallel(job),
        **_experts(job),
        **_again(job),
        **sharded(job)._asdict(),
        **_chip(job),
    )


def _products(job: Job) -> dict[str, float]:
    """Products of attention, MLP and shared experts, op by op, and the head."""
    llm, t, tokens = job.llm, job.spread.tp, job.tokens
    each, stages = BYTES.get(job.software.precision, 1.0), job.spread.pp
    layers = [(llm.attending / stages, n, k) for n, k in _projections(job)]
    gates = llm.mlp_matrices - 1
    shared = llm.shared_experts * llm.moe_ffn * (2 if llm.state_layers else 1)
    for count, width in (
        (_plain(llm), llm.ffn),
        (llm.moe_layers if shared else 0, shared),
    ):
        layers += [
            (count / stages, gates * width / t, llm.hidden),
            (count / stages, llm.hidden, width / t),
        ]
    flop = sum(n * 2 * tokens * wide * deep for n, wide, deep in layers)
    moved = sum(
        n * (each * (tokens * deep + wide * deep) + HALF * tokens * wide)
        for n, wide, deep in layers
    )
    if (
        llm.state_layers
    ):  # projections of state-space layers: what is left of the parameters
        counted = (
            flop * t * stages / (2 * tokens)
            + llm.expert_active
            + llm.vocab * llm.hidden
        )
        rest = max(0.0, llm.active - counted) * 2 * tokens / (t * stages)
        flop, moved = flop + rest, moved + rest / (2 * llm.hidden) * 3
    return {
        "gemm_flop": flop,
        "gemm_bytes": moved,
        "head_flop": 2.0 * tokens * llm.vocab * llm.hidden / t * _heads(job),
        "head_bytes": 12.0 * tokens * llm.vocab / t,
    }


def _heads(job: Job) -> float:
    """Passes of the head over those of training: a reference rates every token once."""
    passes = 2.0 if job.frozen else 3.0
    return 1.0 if job.reference == "none" else 1 + 1 / passes


def _plain(llm: Llm) -> int:
    """Layers with an MLP that is no mixture of experts."""
    if llm.experts:
        return llm.dense_layers
    if llm.state_layers:
        return max(0, llm.layers - llm.state_layers - llm.attending)
    return llm.layers


def _projections(job: Job) -> list[tuple[float, float]]:
    """Width and depth of the projections of attention on one rank."""
    llm, t = job.llm, job.spread.tp
    query, value = llm.heads * llm.head_dim, llm.v_head_dim or llm.head_dim
    if llm.kv_lora_rank:
        low, rope = llm.q_lora_rank, llm.qk_rope_dim
        up = llm.heads * (llm.head_dim - rope + value)
        return [
            (low + llm.kv_lora_rank + rope, llm.hidden),
            (query / t, low or llm.hidden),
            (up / t, llm.kv_lora_rank),
            (llm.hidden, llm.heads * value / t),
        ]
    kept = llm.kv_heads * llm.head_dim
    return [((query + 2 * kept) / t, llm.hidden), (llm.hidden, query / t)]


def _attention(job: Job) -> dict[str, float]:
    """Causal attention over half the sequence, the window, or packed documents."""
    llm, s, length = job.llm, job.spread, job.sequence
    full = min(length / 2, job.software.packed or math.inf)
    window = full
    if 0 < llm.window < length:
        window = min(length / 2, llm.window - llm.window**2 / (2 * length))
    slid = llm.window_layers * llm.attending / llm.layers
    context = ((llm.attending - slid) * full + slid * window) / s.pp
    pairs = job.tokens * context * llm.heads / s.tp
    stored = job.software.kernels == "megatron21" or job.software.sinks
    matrix = (
        HALF * job.tokens * length * llm.heads / s.tp * llm.attending / s.pp
    )
    return {
        "attention": 2
        * pairs
        * (llm.head_dim + (llm.v_head_dim or llm.head_dim)),
        "exponentials": pairs,
        "scores": matrix if stored else 0.0,
    }


def _traffic(job: Job) -> dict[str, float]:
    """Element-wise bytes: norms, rotary, gates, residuals, adapters; each tensor once."""
    llm, t, stages = job.llm, job.spread.tp, job.spread.pp
    residual = t if job.software.sequence_parallel else 1
    query, kept = llm.heads * llm.head_dim, llm.kv_heads * llm.head_dim
    wide = query + 2 * kept
    if llm.kv_lora_rank:
        value = llm.v_head_dim or llm.head_dim
        wide = query + llm.heads * (llm.head_dim - llm.qk_rope_dim + value)
        wide += llm.kv_lora_rank + llm.q_lora_rank
    gates = llm.mlp_matrices - 1
    moved = llm.attending * (6 * llm.hidden / residual + 2 * wide / t)
    moved += (
        llm.layers * 4 * llm.hidden / residual
        + _plain(llm) * 2 * gates * llm.ffn / t
    )
    moved += llm.state_layers * 14 * llm.hidden / t
    if job.frozen:
        moved += (
            2
            * llm.attending
            * (5 * llm.hidden / residual + (3 * wide + 2 * query) / t)
        )
    routed = job.tokens * llm.experts_per_token / t
    return {
        "traffic": HALF * job.tokens * moved / stages,
        "expert_traffic": llm.moe_layers
        / stages
        * routed
        * 4
        * gates
        * llm.moe_ffn,
    }


def _parallel(job: Job) -> dict[str, float]:
    """Bytes of tensor, context and pipeline parallelism."""
    llm, s = job.llm, job.spread
    residual = s.tp if job.software.sequence_parallel else 1
    whole = s.micro * job.sequence
    kept = HALF * 2 * llm.kv_heads * llm.head_dim / s.tp * llm.attending / s.pp
    wide = (
        4
        * HALF
        * job.tokens
        * llm.hidden
        * (s.tp - 1)
        / s.tp
        * llm.layers
        / s.pp
    )
    return {
        "tensor": wide,
        "tensor_network": float(s.tp > job.domain),
        "context": (s.cp - 1) / s.cp * whole * kept,
        "hops": job.tokens * llm.hidden * HALF / residual * 2 * s.vpp
        if s.pp > 1
        else 0.0,
        # Published runs within one link hand over as slowly as over a network.
        "hops_network": float(
            job.chip.link != "none" or s.accelerators > job.domain
        ),
    }


def _experts(job: Job) -> dict[str, float]:
    """Products of routed experts, the sorting of tokens, and their way to their experts and back.

    A token goes once to each machine that holds one of its experts.
    """
    llm, s = job.llm, job.spread
    layers = llm.moe_layers / s.pp
    names = (
        "expert_flop",
        "expert_bytes",
        "local",
        "permuted",
        "exchange_link",
        "exchange_network",
    )
    counted = {"moe_layers": layers, "dense_layers": llm.layers / s.pp - layers}
    if not llm.experts:
        return dict.fromkeys(names, 0.0) | counted
    cut = (
        s.tp if s.ep == 1 else 1
    )  # experts of all ranks alike are cut as other products are
    routed, wide = (
        job.tokens * llm.experts_per_token * cut / s.tp,
        llm.expert_hidden or llm.hidden,
    )
    each, held = BYTES.get(job.software.precision, 1.0), llm.experts / s.ep
    gates, width = llm.mlp_matrices - 1, llm.moe_ffn / cut
    flop = 2 * routed * wide * width * (gates + 1)
    moved = each * (routed * (wide + width) + held * wide * width * (gates + 1))
    moved += HALF * routed * (gates * width + wide)
    sent = layers * routed * wide * HALF
    across = layers * job.tokens / s.tp * wide * HALF * crossing(job)
    found = (
        layers * flop,
        layers * moved,
        layers * held,
        sent,
        sent * (1 - 1 / s.ep),
        across,
    )
    return dict(zip(names, found, strict=True)) | counted


def crossing(job: Job) -> float:
    """Other machines that a token is sent to, when its experts lie on several."""
    machines = max(1.0, job.spread.ep / min(job.spread.ep, job.domain))
    reached = machines * (1 - (1 - 1 / machines) ** job.llm.experts_per_token)
    return reached * (1 - 1 / machines)


def _again(job: Job) -> dict[str, float]:
    """Shares of the forward pass that are computed again; a reference is one pass more."""
    shares = {
        "full": (1.0, 1.0, 1.0),
        "attention": (0.0, 1.0, 0.0),
        "layer": (0.5, 0.5, 0.5),
        "ops": (0.5, 0.0, 1.0),
    }.get(job.spread.recompute, (0.0, 0.0, 0.0))
    more = float(job.reference != "none")
    names = ("again_gemm", "again_attention", "again_traffic")
    found = {
        name: share + more for name, share in zip(names, shares, strict=True)
    }
    forced = missing(job) if job.spread.recompute == "forced" else 0.0
    return found | {"forced": forced}


def missing(job: Job) -> float:
    """Share of the activations that memory has no room for when everything is kept."""
    peak = memory.fuller(job)
    kept = memory.activations(job)
    over = (
        constant("train_overhead")
        + (1 + constant("train_fragmentation")) * peak.total / GIB
    )
    return min(
        1.0, max(0.0, (over - job.chip.memory_gib) * GIB / max(kept, 1.0))
    )


def _chip(job: Job) -> dict[str, float]:
    """Rates of the accelerator, in units a second."""
    chip, half = job.chip, (job.chip.bf16_tflops or 0.0) * 1e12
    low = {
        **dict.fromkeys(SIXTEEN, 0.0),
        "int8": chip.int8_tops,
        "nvfp4": chip.fp4_tflops,
    }
    peak = (low.get(job.software.precision, chip.fp8_tflops) or 0.0) * 1e12
    link = chip.link_gb_s / 2 * 1e9
    if chip.link == "none" or not link:
        lanes = constant("pcie_gen", str(max(3, chip.pcie_gen)))
        link = constant("pcie_reached") * lanes * 1e9
    watts = (chip.tdp_w or math.inf) / (
        (chip.bf16_tflops or 1.0) * constant("train_watts")
    )
    return {
        "peak": peak or half,
        "half": half,
        "bandwidth": (chip.bandwidth_gb_s or 0.0) * 1e9,
        "link": link,
        "network": job.network,
        "rate": _rates().get(chip.architecture, half / OTHER_RATE / 1e12)
        * 1e12,
        "power": min(1.0, watts),
    }
