"""The memory that vLLM reports when it starts: weights, peak activation, KV pool and its tokens.

    pool = share * memory - weights - peak activation - non-torch - graphs

The peak is that of a profiling run with the largest step that the engine allows. Sizes in bytes
unless the name says GiB. What changed between versions is a row of data/vllm_memory.csv.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from planner.facts import table
from planner.perf import memory
from planner.perf.memory import GIB

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.layout import Layout, Node

PAGE: Final = 16  # tokens of a block
LATENT_PAGE: Final = 64
LARGE_GIB: Final = 70.0  # memory from which the defaults are larger
LONG: Final = 32_768  # context beyond which early versions profile in chunks
PADDED: Final = 64  # rows to which a vocabulary is padded
MANY: Final = (
    512  # sequences from which graphs are captured for large batches too
)
WIDE: Final = 8
GROUPED: Final = (
    1.5  # layer kinds within this ratio share the larger group size
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The largest step of an engine: tokens in it, and sequences that are sampled."""

    tokens: int
    sequences: int


SMALL: Final = Steps(tokens=2048, sequences=256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One accelerator under the vLLM of a year: its memory, the share that vLLM takes, its link.

    `small` marks cards whose defaults stay small although their memory is large.
    """

    total_gib: float
    year: float
    share: float
    linked: bool = True
    small: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup:
    """What one accelerator holds, in GiB, how many tokens of KV cache fit, and the most sequences.

    The pool, `kv_gib`, is what is left of the engine's share; negative when it does not fit.
    """

    total_gib: float
    weights_gib: float
    activation_gib: float
    non_torch_gib: float
    graph_gib: float
    kv_gib: float
    kv_tokens: int
    sequences: int

    @property
    def kept_gib(self) -> float:
        """What is neither weights nor cache."""
        return self.activation_gib + self.non_torch_gib + self.graph_gib


@cache
def _eras() -> tuple[table.Row, ...]:
    number = table.real(0, 10_000)
    columns: dict[str, Any] = {
        "from_year": number,
        "sampler_bytes": number,
        "buffers_gib": number,
        "non_torch_gib": number,
        "non_torch_tp_gib": number,
        "non_torch_tp8_gib": number,
        "non_torch_pcie_gib": number,
        "graph_gib": number,
        "graph_large_gib": number,
        "chunked": table.yes,
        "share": number,
        **table.SOURCED,
    }
    text = (
        files("planner.perf")
        .joinpath("data", "vllm_memory.csv")
        .read_text(encoding="utf-8")
    )
    return tuple(table.rows(text, "vllm_memory.csv", columns))


@cache
def era(year: float) -> table.Row:
    """Return the constants of the vLLM of a year (with fraction)."""
    return [
        row
        for row in _eras()
        if row["from_year"] <= max(year, _eras()[0]["from_year"])
    ][-1]


def steps(card: Card, context: int) -> Steps:
    """Return the defaults of `vllm serve`; early versions step over the whole context."""
    if not era(card.year)["chunked"]:
        long = context > LONG
        return Steps(
            tokens=2048 if long else max(context, 2048),
            sequences=0 if long else 256,
        )
    large = card.total_gib >= LARGE_GIB and not card.small
    return Steps(tokens=8192, sequences=1024) if large else SMALL


def card(node: Node, tp: int, year: float) -> Card:
    """Return an accelerator of a node under the defaults of the vLLM of a year."""
    small = node.accelerator.architecture == "Ampere"
    return Card(
        total_gib=node.memory_gib,
        year=year,
        share=era(year)["share"],
        linked=node.linked(tp),
        small=small,
    )


def served(llm: Llm, layout: Layout, node: Node, year: float) -> Startup:
    """Return the start-up memory of a replica on a node, with every default of vLLM."""
    one = card(node, layout.tp, year)
    return startup(llm, layout, one, steps(one, llm.max_context))


def startup(llm: Llm, layout: Layout, card: Card, step: Steps) -> Startup:
    """Return the start-up memory of one accelerator."""
    rules = era(card.year)
    held = weights(llm, layout) / GIB
    peak = activation(llm, layout, card.year, step) / GIB + rules["buffers_gib"]
    other = non_torch(layout, card)
    graphs = rules["graph_large_gib" if step.sequences >= MANY else "graph_gib"]
    pool = card.share * card.total_gib - held - peak - other - graphs
    return Startup(
        total_gib=card.total_gib,
        weights_gib=held,
        activation_gib=peak,
        non_torch_gib=other,
        graph_gib=graphs,
        kv_gib=pool,
        kv_tokens=tokens(llm, layout, max(0.0, pool) * GIB, card.year),
        sequences=step.sequences,
    )


def weights(llm: Llm, layout: Layout) -> float:
    """Weight bytes with the rotary table, and with K and V repeated where tp exceeds KV heads.

    table = context * rotary width * 2; repeats = 2 * layers * hidden * head_dim * 2 (1 - kv / tp).
    """
    rotary = llm.qk_rope_dim or llm.head_dim
    extra = float(llm.max_context * rotary * 2)
    if layout.tensor > llm.kv_heads > 0 and not llm.kv_lora_rank:
        share = 1 - llm.kv_heads / layout.tensor
        extra += (
            2
            * llm.attending
            * llm.hidden
            * llm.head_dim
            * 2
            * share
            / layout.pp
        )
    return memory.weights(llm, layout) + extra


def activation(llm: Llm, layout: Layout, year: float, step: Steps) -> float:
    """Peak bytes of the profiling run: the sampler's logits, or the widest layer of a forward.

    sampler = bytes * sequences * vocabulary + 2 * tokens * hidden
    forward = 2 * tokens * (3 * ffn / tp + 3 * hidden); with experts their workspace instead.
    """
    rows = min(step.sequences, step.tokens)
    vocabulary = math.ceil(llm.vocab / PADDED) * PADDED
    sampler = (
        era(year)["sampler_bytes"] * rows * vocabulary
        + 2.0 * step.tokens * llm.hidden
    )
    last = layout.pp == 1  # the first stage of several has no head
    forward = 2.0 * step.tokens * 3 * llm.hidden
    workspace = 0.0
    if not llm.experts:
        forward += 2.0 * step.tokens * 3 * llm.ffn / layout.tensor
    elif llm.precision != "mxfp4":
        wide = 2 * llm.moe_ffn / layout.tp
        each = max(wide / 2, llm.hidden) + max(wide, llm.hidden)
        workspace = 2.0 * step.tokens * llm.experts_per_token * each
    if not last:
        forward += 4.0 * step.tokens * llm.hidden
    kept = workspace if year >= _eras()[2]["from_year"] else 0.0
    return max(sampler + kept if last and rows else 0.0, forward + workspace)


def non_torch(layout: Layout, card: Card) -> float:
    """GiB of the driver's context and the collectives' buffers."""
    if layout.tp == 1:
        name = "non_torch_gib"
    elif card.linked:
        name = "non_torch_tp8_gib" if layout.tp >= WIDE else "non_torch_tp_gib"
    else:
        name = "non_torch_pcie_gib"
    return float(era(card.year)[name])


def tokens(llm: Llm, layout: Layout, pool: float, year: float) -> int:
    """How many tokens vLLM says that a pool holds: blocks, shared by groups of equal layers.

    Layers of one kind form groups of equal size; the last group is padded. State-space layers
    take pages as large as attention's, whose blocks grow until a state fits in one.
    """
    each = memory.kv_per_token(llm, layout)
    block = LATENT_PAGE if llm.kv_lora_rank else PAGE
    if llm.state_layers:
        state = llm.state_bytes / layout.tensor
        block = PAGE * math.ceil(state / (PAGE * each))
    index = llm.index_bytes / llm.attending
    kinds = [
        llm.attending - llm.window_layers,
        llm.window_layers,
        llm.state_layers,
    ]
    if not era(year)["chunked"]:
        kinds = [llm.attending, 0, llm.state_layers]
    counts = [math.ceil(n / layout.pp) for n in kinds if n]
    size = max(counts) if max(counts) < GROUPED * min(counts) else min(counts)
    groups = sum(math.ceil(n / size) for n in counts)
    blocks = int(pool // (block * (each + index)) // size)
    return blocks // groups * block
