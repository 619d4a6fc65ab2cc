"""Memory that vLLM reports at start-up, with the KV pool and its tokens.

    pool = share * memory - weights - peak activation - non-torch - CUDA graphs

The peak activation is that of a profiling run with the largest step that the engine allows.
Sizes are in bytes unless the name says GiB. Version-dependent constants are rows of
data/vllm_memory.csv, fitted to published start-up logs.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.facts import table
from planner.perf.common import memory
from planner.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.common.layout import Node, ReplicaLayout

BLOCK_TOKENS: Final = 16  # tokens of a block
LATENT_BLOCK_TOKENS: Final = 64
LARGE_GIB: Final = 70.0  # memory from which the defaults are larger
# Context beyond which early versions profile in chunks.
LONG_CONTEXT_TOKENS: Final = 32_768
VOCABULARY_PADDING: Final = 64  # rows to which a vocabulary is padded
# Sequences from which graphs are captured for large batches too.
LARGE_GRAPH_SEQUENCES: Final = 512
WIDE_TP: Final = 8
# Layer kinds within this ratio share the larger group size.
GROUP_RATIO: Final = 1.5


class StepLimits(Struct, frozen=True, kw_only=True):
    """The largest step of an engine.

    max_tokens     tokens of one step (max_num_batched_tokens)
    max_sequences  sequences of one step (max_num_seqs); 0 when the profile samples none
    """

    max_tokens: int
    max_sequences: int


SMALL_STEP: Final = StepLimits(max_tokens=2048, max_sequences=256)


class VllmAccelerator(Struct, frozen=True, kw_only=True):
    """One accelerator under the vLLM of a given year.

    total_gib       memory, GiB
    software_year   release date of vLLM, in years with fraction
    memory_share    share of memory that vLLM uses (gpu_memory_utilization)
    has_link        whether the tp group has a scale-up link; PCIe otherwise
    small_defaults  whether vLLM takes its small step limits despite the memory size
    """

    total_gib: float
    software_year: float
    memory_share: float
    has_link: bool = True
    small_defaults: bool = False


class StartupMemory(Struct, frozen=True, kw_only=True):
    """Memory of one accelerator after start-up, in GiB.

    total_gib       memory of the accelerator
    weights_gib     weights with the rotary table
    activation_gib  peak of the profiling run
    non_torch_gib   driver context and buffers of collectives
    graph_gib       CUDA graphs
    kv_gib          KV pool; negative when the model does not fit
    kv_tokens       tokens that the pool holds
    max_sequences   most sequences in one step
    max_step_tokens  most tokens in one step, prompts and answers together
    told_share      share of memory that the engine is told to fill
    """

    total_gib: float
    weights_gib: float
    activation_gib: float
    non_torch_gib: float
    graph_gib: float
    kv_gib: float
    kv_tokens: int
    max_sequences: int
    max_step_tokens: int
    told_share: float

    @property
    def overhead_gib(self) -> float:
        """GiB that are neither weights nor KV cache."""
        return self.activation_gib + self.non_torch_gib + self.graph_gib


@cache
def _version_rows() -> tuple[table.TableRow, ...]:
    number_column = table.real_between(0, 10_000)
    columns: table.Columns = {
        "from_year": number_column,
        "sampler_bytes": number_column,
        "buffers_gib": number_column,
        "non_torch_gib": number_column,
        "non_torch_tp_gib": number_column,
        "non_torch_tp8_gib": number_column,
        "non_torch_pcie_gib": number_column,
        "graph_gib": number_column,
        "graph_large_gib": number_column,
        "chunked": table.yes_or_no,
        "share": number_column,
        **table.SOURCE_COLUMNS,
    }
    return tuple(table.load_rows("planner.perf", "vllm_memory.csv", columns))


@cache
def vllm_constants(software_year: float) -> table.TableRow:
    """Return the row of the newest vLLM version at a year (with fraction)."""
    return [
        version_row
        for version_row in _version_rows()
        if version_row["from_year"]
        # Years before the first row take the first row.
        <= max(software_year, _version_rows()[0]["from_year"])
    ][-1]


def default_limits(
    accelerator: VllmAccelerator, context_tokens: int
) -> StepLimits:
    """Return the default step limits of `vllm serve`.

    Versions without chunked prefill by default take the whole context in one step.
    """
    # vLLM up to 0.8: a step takes a whole context unless it is very long.
    if not vllm_constants(accelerator.software_year)["chunked"]:
        long_context = context_tokens > LONG_CONTEXT_TOKENS
        return StepLimits(
            max_tokens=2048 if long_context else max(context_tokens, 2048),
            # The chunked profiling run of these versions samples nothing.
            max_sequences=0 if long_context else 256,
        )
    large_memory = (
        accelerator.total_gib >= LARGE_GIB and not accelerator.small_defaults
    )
    return (
        StepLimits(max_tokens=8192, max_sequences=1024)
        if large_memory
        else SMALL_STEP
    )


def step_limits(
    accelerator: VllmAccelerator, context_tokens: int, token_budget: int = 0
) -> StepLimits:
    """Return the step limits of an engine that is started with a token budget; 0 states none.

    Without one they are the defaults. A sequence takes at least one token of a step, so that
    sequences <= tokens; vLLM refuses to start otherwise.
    """
    limits = default_limits(accelerator, context_tokens)
    if not token_budget:
        return limits
    return StepLimits(
        max_tokens=token_budget,
        max_sequences=min(limits.max_sequences, token_budget),
    )


def vllm_accelerator(
    node: Node, tp: int, software_year: float
) -> VllmAccelerator:
    """Return an accelerator of a node with the vLLM defaults of a year."""
    # vLLM excludes the A100 from the defaults of large memory.
    small_defaults = node.accelerator.architecture == "Ampere"
    return VllmAccelerator(
        total_gib=node.memory_gib,
        software_year=software_year,
        memory_share=vllm_constants(software_year)["share"],
        has_link=node.has_link(tp),
        small_defaults=small_defaults,
    )


def replica_memory(
    llm: Llm,
    layout: ReplicaLayout,
    node: Node,
    software_year: float,
    *,
    token_budget: int = 0,
) -> StartupMemory:
    """Return the start-up memory of a replica with the defaults of vLLM.

    `token_budget` is the most tokens of a step, where it is stated.
    """
    accelerator = vllm_accelerator(node, layout.tp, software_year)
    return startup_memory(
        llm,
        layout,
        accelerator,
        step_limits(accelerator, llm.max_context, token_budget),
    )


def startup_memory(
    llm: Llm,
    layout: ReplicaLayout,
    accelerator: VllmAccelerator,
    step_limits: StepLimits,
) -> StartupMemory:
    """Return the start-up memory of one accelerator."""
    version_row = vllm_constants(accelerator.software_year)
    weights_gib = vllm_weight_bytes(llm, layout) / BYTES_PER_GIB
    activation_gib = (
        activation_bytes(llm, layout, accelerator.software_year, step_limits)
        / BYTES_PER_GIB
        + version_row["buffers_gib"]
    )
    # Allocated outside PyTorch: driver context, NCCL buffers.
    driver_gib = non_torch_gib(layout, accelerator)
    # Graphs are captured up to a batch that follows max_sequences.
    graph_gib = version_row[
        "graph_large_gib"
        if step_limits.max_sequences >= LARGE_GRAPH_SEQUENCES
        else "graph_gib"
    ]
    # vLLM gives the rest of its share to the KV cache.
    kv_pool_gib = (
        accelerator.memory_share * accelerator.total_gib
        - weights_gib
        - activation_gib
        - driver_gib
        - graph_gib
    )
    return StartupMemory(
        total_gib=accelerator.total_gib,
        weights_gib=weights_gib,
        activation_gib=activation_gib,
        non_torch_gib=driver_gib,
        graph_gib=graph_gib,
        kv_gib=kv_pool_gib,
        kv_tokens=pool_tokens(
            llm,
            layout,
            max(0.0, kv_pool_gib) * BYTES_PER_GIB,
            accelerator.software_year,
        ),
        max_sequences=step_limits.max_sequences,
        max_step_tokens=step_limits.max_tokens,
        told_share=accelerator.memory_share,
    )


def vllm_weight_bytes(llm: Llm, layout: ReplicaLayout) -> float:
    """Return weight bytes of one accelerator as vLLM loads them.

        weight_bytes + rotary table + repeated K and V projections
        rotary table = max_context * rotary width * 2 bytes
        repeated     = 2 * layers * hidden * head_dim * 2 bytes * (1 - kv_heads / tp)

    The last term applies where tp exceeds the number of KV heads.
    """
    rotary_width = llm.qk_rope_dim or llm.head_dim
    # Cosine and sine of every position in 16 bit.
    extra_bytes = float(llm.max_context * rotary_width * 2)
    if layout.attention_tp > llm.kv_heads > 0 and not llm.kv_lora_rank:
        # Each accelerator loads one whole KV head, so copies exist.
        repeated_share = 1 - llm.kv_heads / layout.attention_tp
        extra_bytes += (
            2
            * llm.attending_layers
            * llm.hidden
            * llm.head_dim
            * 2
            * repeated_share
            / layout.pp
        )
    return memory.weight_bytes(llm, layout) + extra_bytes


def activation_bytes(
    llm: Llm,
    layout: ReplicaLayout,
    software_year: float,
    step_limits: StepLimits,
) -> float:
    """Return the peak bytes of the profiling run.

    It is the larger of sampling and the forward pass:

        sampling = sampler_bytes * sequences * vocabulary + 2 * tokens * hidden
        forward  = 2 * tokens * (3 * ffn / tp + 3 * hidden)

    with 4 bytes in place of 2 in fp32.

    With experts their workspace takes the place of the ffn term; mxfp4 releases have none. With
    pp > 1 nothing is sampled, and 4 * tokens * hidden go to the next stage.
    """
    element_bytes = memory.unquantized_bytes(layout.precision)
    sampled_rows = min(step_limits.max_sequences, step_limits.max_tokens)
    # vLLM pads the logits to a multiple of 64 columns.
    padded_vocabulary = (
        math.ceil(llm.vocab / VOCABULARY_PADDING) * VOCABULARY_PADDING
    )
    sampler_bytes = (
        vllm_constants(software_year)["sampler_bytes"]
        * sampled_rows
        * padded_vocabulary
        # Hidden states of all tokens.
        + element_bytes * step_limits.max_tokens * llm.hidden
    )
    has_head = layout.pp == 1  # the first stage of several has no head
    forward_bytes = element_bytes * step_limits.max_tokens * 3 * llm.hidden
    workspace_bytes = 0.0
    # Dense MLP: gate, up and their product.
    if not llm.experts:
        forward_bytes += (
            element_bytes
            * step_limits.max_tokens
            * 3
            * llm.ffn
            / layout.attention_tp
        )
    elif llm.precision != "mxfp4":
        gate_up_width = 2 * llm.moe_ffn / layout.tp
        # Two workspaces of the fused expert kernel for each routed token.
        token_width = max(gate_up_width / 2, llm.hidden) + max(
            gate_up_width, llm.hidden
        )
        workspace_bytes = (
            element_bytes
            * step_limits.max_tokens
            * llm.experts_per_token
            * token_width
        )
    # Hidden states and residual that go to the next stage.
    if not has_head:
        forward_bytes += 2 * element_bytes * step_limits.max_tokens * llm.hidden
    # vLLM 0.17 and later: the workspace stays allocated while sampling.
    reserved_bytes = (
        workspace_bytes
        if software_year >= _version_rows()[2]["from_year"]
        else 0.0
    )
    return max(
        sampler_bytes + reserved_bytes if has_head and sampled_rows else 0.0,
        forward_bytes + workspace_bytes,
    )


def non_torch_gib(layout: ReplicaLayout, accelerator: VllmAccelerator) -> float:
    """Return GiB of the driver context and the buffers of collectives."""
    # A single accelerator has no buffers of collectives.
    if layout.tp == 1:
        column_name = "non_torch_gib"
    elif accelerator.has_link:
        column_name = (
            "non_torch_tp8_gib" if layout.tp >= WIDE_TP else "non_torch_tp_gib"
        )
    else:
        column_name = "non_torch_pcie_gib"
    return float(vllm_constants(accelerator.software_year)[column_name])


def pool_tokens(
    llm: Llm, layout: ReplicaLayout, pool_bytes: float, software_year: float
) -> int:
    """Return the number of tokens that vLLM reports for a KV pool.

        tokens = blocks / groups * block size

    Layers of one kind (full, sliding, state-space) form groups of equal size; the last group
    is padded. A state-space layer takes pages of the attention's size, so the block grows
    until one state fits.
    """
    token_bytes = memory.kv_token_bytes(llm, layout)
    block_tokens = LATENT_BLOCK_TOKENS if llm.kv_lora_rank else BLOCK_TOKENS
    # Attention blocks as large as one state, in multiples of 16 tokens.
    if llm.state_layers:
        state_bytes = llm.state_bytes / layout.attention_tp
        block_tokens = BLOCK_TOKENS * math.ceil(
            state_bytes / (BLOCK_TOKENS * token_bytes)
        )
    if llm.has_entries:
        # How blocks divide over its kinds of layers is not known: bytes decide.
        entry_bytes = token_bytes * llm.whole_entries + llm.index_bytes
        return int(pool_bytes * layout.pp / entry_bytes)
    # Index of sparse attention, in equal parts on the attention layers.
    index_bytes = llm.index_bytes / llm.attending_layers
    kind_layers = [
        llm.attending_layers - llm.window_layers,
        llm.window_layers,
        llm.state_layers,
    ]
    # vLLM up to 0.8 stores all tokens of sliding-window layers.
    if not vllm_constants(software_year)["chunked"]:
        kind_layers = [llm.attending_layers, 0, llm.state_layers]
    stage_layers = [
        math.ceil(layer_count / layout.pp)
        for layer_count in kind_layers
        if layer_count
    ]
    # Kinds of nearly equal size share the larger group; else the smallest.
    group_layers = (
        max(stage_layers)
        if max(stage_layers) < GROUP_RATIO * min(stage_layers)
        else min(stage_layers)
    )
    group_count = sum(
        math.ceil(layer_count / group_layers) for layer_count in stage_layers
    )
    # One block has the same tokens of all layers of one group.
    block_count = int(
        pool_bytes
        // (block_tokens * (token_bytes + index_bytes))
        // group_layers
    )
    return block_count // group_count * block_tokens
