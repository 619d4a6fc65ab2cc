"""Parts of a config.json that plain attention and MLPs do not have.

State-space and linear layers, the index of sparse attention, interleaved experts and chunks of
attention. What they hold is counted as the table of models counts it, for the same models.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

NEMOTRON_TYPES: Final = ("nemotron_h",)
DELTA_TYPES: Final = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
ENTRY_TYPE: Final = "deepseek_v4"
SPARSE_TYPES: Final = ("deepseek_v32", "glm_moe_dsa")
LLAMA4_TYPES: Final = ("llama4_text",)
M3_TYPE: Final = "minimax_m3"
ERNIE_TYPES: Final = ("ernie4_5_moe",)
# Published architectures whose layers no shape here holds, with what they have. Source: the
# modeling files of huggingface/transformers, and config.json of MiMo and Nemotron.
UNREAD_TYPES: Final = {
    "gemma3n": "layers that share keys and values, and embeddings of each layer",
    "gemma3n_text": "layers that share keys and values, and embeddings of each layer",
    "gemma4": "wider and fewer keys in the layers that attend to everything",
    "gemma4_text": "wider and fewer keys in the layers that attend to everything",
    "mimo_v2_flash": "more keys in sliding windows than in the other layers",
    "nemotron-nas": "layers of different widths",
}
BYTES: Final = {"float32": 4}
SHORT_BYTES: Final = 2  # of the convolution, and of a state of no stated type
# Letters of `hybrid_override_pattern`: state-space, attention, experts and a dense MLP.
STATE, ATTENTION, EXPERTS, MLP = "M", "*", "E", "-"
BLOCK_LETTERS: Final = {  # words of `layers_block_type`
    "mamba": STATE,
    "attention": ATTENTION,
    "moe": EXPERTS,
    "mlp": MLP,
}
SCALED_BLOCK: Final = (
    128  # values of an 8-bit index that share a scale of 4 bytes
)
SCALE_BYTES: Final = 4
ENTRY_SIZES: Final = 2  # of entries: few tokens, and many
NO_ROPE_INTERVAL: Final = (
    4  # of Llama 4: each fourth layer attends to everything
)
FULL_INTERVAL: Final = 4  # of Qwen3-Next: each fourth layer has attention


class ConfigParts(Struct, frozen=True, kw_only=True):
    """What special layers change of an architecture.

    columns       of `Llm`, in place of those of plain layers
    extra_params  parameters that plain layers would not have, in all layers together
    mlp_layers    layers with a dense MLP; None means all without experts
    """

    columns: Mapping[str, int | str]
    extra_params: float = 0.0
    mlp_layers: int | None = None


class SizeReader(Protocol):
    """Reads a size of a config; raises SpecError where it is missing or none."""

    def __call__(
        self, key: str, *alternate_keys: str, default: int | None = None
    ) -> int:
        """Return the first of the keys that is stated, else the default."""
        ...


def read_parts(
    model_type: str, config: Mapping[str, Any], read_size: SizeReader
) -> ConfigParts | None:
    """Return the special parts of a type of model; None if its layers are not stated."""
    readers_by_type = {
        **dict.fromkeys(NEMOTRON_TYPES, _nemotron_parts),
        **dict.fromkeys(DELTA_TYPES, _delta_parts),
        **dict.fromkeys(LLAMA4_TYPES, _llama4_parts),
        M3_TYPE: _block_index_parts,
        ENTRY_TYPE: _entry_parts,
    }
    if model_type in readers_by_type:
        return readers_by_type[model_type](config, read_size)
    if model_type in SPARSE_TYPES:
        return _index_parts(read_size)
    if model_type in ERNIE_TYPES:
        return _ernie_parts(read_size)
    return ConfigParts(columns={})


def flatten_config(
    config: Mapping[str, Any], text_config: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a config with its language model's keys, and those of sparse attention, on top.

    MiniMax M3 has one name alone, whatever it is called by: its bundle with a vision tower names
    the language model after the predecessor, minimax_m2.
    """
    flat_config = {**config, **text_config}
    sparse_config = flat_config.get("sparse_attention_config")
    if isinstance(sparse_config, dict):
        flat_config |= sparse_config
    stated_types = (config.get("model_type"), text_config.get("model_type"))
    if any(str(stated).startswith(M3_TYPE) for stated in stated_types):
        flat_config["model_type"] = M3_TYPE
    return flat_config


def stated_layers(config: Mapping[str, Any]) -> int | None:
    """Return the number of layers that a pattern has; None without one."""
    return len(_layer_pattern(config)) or None


def _nemotron_parts(
    config: Mapping[str, Any], read_size: SizeReader
) -> ConfigParts | None:
    """Mamba-2 layers beside attention and MLPs or experts, by a pattern or a list of layers.

    state  = heads * head_dim * state_size * bytes
    conv   = (heads * head_dim + 2 * groups * state_size) * (kernel - 1) * 2
    params = hidden * (2 * inner + 2 * groups * state_size + heads) + inner * hidden
    """
    pattern = _layer_pattern(config)
    if not pattern:
        return None
    hidden = read_size("hidden_size")
    heads = read_size("mamba_num_heads")
    inner_width = heads * read_size("mamba_head_dim")
    state_size = read_size("ssm_state_size")
    group_width = 2 * read_size("n_groups") * state_size
    kernel = read_size("conv_kernel")
    # The input projection makes gate, input, B, C and the step of each head.
    projected = 2 * inner_width + group_width + heads
    expert_layers = pattern.count(EXPERTS)
    latent_width = read_size("moe_latent_size", default=0)
    return ConfigParts(
        columns={
            "layers": len(pattern),
            "attention_layers": pattern.count(ATTENTION),
            "state_layers": pattern.count(STATE),
            "state_bytes": inner_width * state_size * _state_bytes(config)
            + _convolution_bytes(inner_width + group_width, kernel),
            "expert_layers": expert_layers,
            "expert_hidden": latent_width,
            "mlp_matrices": 2,
        },
        extra_params=float(
            pattern.count(STATE) * hidden * (projected + inner_width)
            # Experts of a narrower input share two projections.
            + expert_layers * 2 * hidden * latent_width
        ),
        mlp_layers=pattern.count(MLP),
    )


def _layer_pattern(config: Mapping[str, Any]) -> str:
    """Return one letter for each layer, or nothing where the config states none that are known."""
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        return "" if set(pattern) - set(BLOCK_LETTERS.values()) else pattern
    blocks = config.get("layers_block_type")
    if not isinstance(blocks, list) or set(map(str, blocks)) - set(
        BLOCK_LETTERS
    ):
        return ""
    return "".join(BLOCK_LETTERS[block] for block in blocks)


def _delta_parts(
    config: Mapping[str, Any], read_size: SizeReader
) -> ConfigParts:
    """Gated delta layers (linear attention) beside gated attention.

    state  = value_heads * key_dim * value_dim * bytes
    conv   = (2 * key_width + value_width) * (kernel - 1) * 2
    params = hidden * (2 * key_width + 2 * value_width + 2 * value_heads) + value_width * hidden
    """
    hidden = read_size("hidden_size")
    layers = read_size("num_hidden_layers")
    layer_types = config.get("layer_types")
    if isinstance(layer_types, list):
        full_layers = layer_types.count("full_attention")
    else:
        interval = read_size("full_attention_interval", default=FULL_INTERVAL)
        full_layers = layers // max(1, interval)
    key_dim = read_size("linear_key_head_dim")
    key_width = key_dim * read_size("linear_num_key_heads")
    value_heads = read_size("linear_num_value_heads")
    value_width = value_heads * read_size("linear_value_head_dim")
    kernel = read_size("linear_conv_kernel_dim")
    linear_params = hidden * (2 * key_width + 3 * value_width + 2 * value_heads)
    # The gate of attention is as wide as its queries.
    gate_params = (
        hidden * read_size("num_attention_heads") * read_size("head_dim")
    )
    return ConfigParts(
        columns={
            "attention_layers": full_layers,
            "state_layers": layers - full_layers,
            "state_bytes": value_width * key_dim * _state_bytes(config)
            + _convolution_bytes(2 * key_width + value_width, kernel),
        },
        extra_params=float(
            (layers - full_layers) * linear_params + full_layers * gate_params
        ),
    )


def _index_parts(read_size: SizeReader) -> ConfigParts:
    """Sparse attention of DeepSeek: an index of 8 bit for each token and layer, with scales."""
    hidden = read_size("hidden_size")
    layers = read_size("num_hidden_layers")
    index_dim = read_size("index_head_dim")
    index_heads = read_size("index_n_heads")
    scales = SCALE_BYTES * math.ceil(index_dim / SCALED_BLOCK)
    # Queries of the index come from the query latent; keys and weights from the hidden state.
    index_params = read_size("q_lora_rank") * index_heads * index_dim
    index_params += hidden * (index_dim + index_heads)
    return ConfigParts(
        columns={
            "sparse": read_size("index_topk"),
            "index_bytes": layers * (index_dim + scales),
            "index_width": index_heads * index_dim,
        },
        extra_params=float(layers * index_params),
    )


def _entry_parts(
    config: Mapping[str, Any], read_size: SizeReader
) -> ConfigParts | None:
    """Attention of DeepSeek V4: windows, and entries that each hold several tokens.

    A list tells how many tokens share an entry in each layer. Where they are few, an index of
    8 bit chooses entries; where they are many, all are read; 0 is a layer with its window alone.
    """
    layers = read_size("num_hidden_layers")
    stated = config.get("compress_ratios")
    if not isinstance(stated, list):
        return None
    # One more may be of a layer that predicts further tokens.
    ratios = stated[:layers]
    sizes = sorted({ratio for ratio in ratios if ratio})
    if len(ratios) < layers or len(sizes) != ENTRY_SIZES:
        return None
    entry_tokens, pooled_tokens = sizes
    sparse_layers, pooled_layers = (ratios.count(size) for size in sizes)
    hidden = read_size("hidden_size")
    head_dim = read_size("head_dim")
    index_dim = read_size("index_head_dim")
    index_heads = read_size("index_n_heads")
    scales = SCALE_BYTES * math.ceil(index_dim / SCALED_BLOCK)
    groups = read_size("o_groups")
    rope_dim = read_size("qk_rope_head_dim")
    # Values and weights of the tokens of an entry; of the smaller ones two that overlap.
    small_params = hidden * 4 * (head_dim + index_dim)
    index_params = read_size("q_lora_rank") * index_heads * index_dim
    return ConfigParts(
        columns={
            "kv_lora_rank": head_dim - rope_dim,
            "q_lora_rank": read_size("q_lora_rank"),
            "v_head_dim": head_dim,
            "window_layers": layers,
            "window": read_size("sliding_window"),
            "sparse": read_size("index_topk") * entry_tokens,
            "sparse_layers": sparse_layers,
            "index_bytes": sparse_layers * (index_dim + scales) // entry_tokens,
            "index_width": index_heads * index_dim,
            "entry_tokens": entry_tokens,
            "pooled_tokens": pooled_tokens,
            "pooled_layers": pooled_layers,
            "output_rank": groups * read_size("o_lora_rank"),
            "output_groups": groups,
            **(
                {"precision": "mxfp4"}
                if config.get("expert_dtype") == "fp4"
                else {}
            ),
        },
        extra_params=float(
            sparse_layers * (small_params + index_params + hidden * index_heads)
            + pooled_layers * hidden * 2 * head_dim
        ),
    )


def _block_index_parts(
    config: Mapping[str, Any], read_size: SizeReader
) -> ConfigParts:
    """Sparse attention of MiniMax M3, and experts, each in the layers that a list names.

    An index of 16 bit for each token chooses blocks of tokens, in the sparse layers alone.
    `intermediate_size` is the width of an expert; dense MLPs have a width of their own.
    """
    hidden = read_size("hidden_size")
    sparse_layers = _marked_layers(
        config, ("sparse_attention_freq", "layer_types"), "minimax_m3_sparse"
    )
    expert_layers = _marked_layers(
        config, ("moe_layer_freq", "mlp_layer_types"), "sparse"
    )
    columns = {
        "ffn": read_size("dense_intermediate_size"),
        "moe_ffn": read_size("intermediate_size"),
        "shared_experts": read_size("n_shared_experts", default=1),
    }
    if expert_layers is not None:
        columns["dense_layers"] = read_size("num_hidden_layers") - expert_layers
    # Without a list of them no layer is sparse.
    if not sparse_layers:
        return ConfigParts(columns=columns)
    index_dim = read_size("sparse_index_dim", "index_head_dim")
    index_heads = read_size("sparse_num_index_heads", "index_n_heads")
    chosen_blocks = read_size("sparse_topk_blocks", "index_topk_blocks")
    block_tokens = read_size("sparse_block_size", "index_block_size")
    return ConfigParts(
        columns=columns
        | {
            "sparse": chosen_blocks * block_tokens,
            "sparse_layers": sparse_layers,
            "index_bytes": sparse_layers * index_dim * SHORT_BYTES,
            "index_width": index_heads * index_dim,
        },
        # Queries of each head of the index, and one key.
        extra_params=float(
            sparse_layers * hidden * (index_heads + 1) * index_dim
        ),
    )


def _marked_layers(
    config: Mapping[str, Any], keys: tuple[str, ...], word: str
) -> int | None:
    """Return how many layers a list marks, with 1 or with `word`; None without a list."""
    for key in keys:
        marks = config.get(key)
        if isinstance(marks, list):
            return sum(mark in (1, word) for mark in marks)
    return None


def _ernie_parts(read_size: SizeReader) -> ConfigParts:
    """Experts from one layer on, with shared ones whose number is under a key of its own."""
    return ConfigParts(
        columns={
            "experts_per_token": read_size("moe_k", "num_experts_per_tok"),
            "shared_experts": read_size("moe_num_shared_experts", default=0),
            "dense_layers": read_size("moe_layer_start_index", default=1),
        }
    )


def _llama4_parts(
    config: Mapping[str, Any], read_size: SizeReader
) -> ConfigParts:
    """Experts in some layers, a shared one beside them, and attention in chunks.

    Dense MLPs have a width of their own. Layers without rotary positions attend to everything.
    """
    layers = read_size("num_hidden_layers")
    expert_places = config.get("moe_layers")
    if isinstance(expert_places, list):
        expert_layers = len(expert_places)
    else:
        step = read_size("interleave_moe_layer_step", default=1)
        expert_layers = layers // max(1, step)
    # 1 where a layer has rotary positions, whatever the name of the key says.
    rotary_layers = config.get("no_rope_layers")
    if isinstance(rotary_layers, list) and rotary_layers:
        chunked_layers = rotary_layers.count(1)
    else:
        interval = read_size("no_rope_layer_interval", default=NO_ROPE_INTERVAL)
        chunked_layers = layers - layers // max(1, interval)
    return ConfigParts(
        columns={
            "ffn": read_size("intermediate_size_mlp"),
            "moe_ffn": read_size("intermediate_size"),
            "shared_experts": 1,
            "dense_layers": layers - expert_layers,
            "window": read_size("attention_chunk_size", default=0),
            "window_layers": chunked_layers
            if read_size("attention_chunk_size", default=0)
            else 0,
        }
    )


def _state_bytes(config: Mapping[str, Any]) -> int:
    stated = config.get("mamba_ssm_cache_dtype") or config.get(
        "mamba_ssm_dtype"
    )
    return BYTES.get(str(stated), SHORT_BYTES)


def _convolution_bytes(width: int, kernel: int) -> int:
    """Return the bytes of the inputs that a convolution still needs."""
    return width * max(0, kernel - 1) * SHORT_BYTES
