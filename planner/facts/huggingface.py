"""Read the architecture of a model from a Hugging Face config.json.

Covers Llama, Qwen, Mistral, Mixtral, DeepSeek V3 and R1 (MLA), Kimi K2, GLM, MiniMax, Gemma
(sliding window), gpt-oss, OLMo 3, Seed-OSS, SmolLM3, StarCoder2 and Phi, and with `config_parts`
hybrids and sparse attention. Parameters are counted from the shapes, so no weights are needed.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from planner.errors import Place, Problem, SpecError
from planner.facts.config_parts import (
    DELTA_TYPES,
    ERNIE_TYPES,
    LLAMA4_TYPES,
    M3_TYPE,
    NEMOTRON_TYPES,
    SPARSE_TYPES,
    UNREAD_TYPES,
    ConfigParts,
    flatten_config,
    read_parts,
    stated_layers,
)
from planner.facts.llm import Llm
from planner.facts.model_name import other_model, other_model_problem

MODEL_TYPES: Final = {
    "llama",
    "qwen2",
    "qwen3",
    "qwen2_moe",
    "qwen3_moe",
    "mistral",
    "mixtral",
    "deepseek_v3",
    "deepseek_v4",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "gpt_oss",
    "phi",
    "phi3",
    "glm4_moe",
    "kimi_k2",
    "minimax_m2",
    "olmo3",
    "qwen3_vl_text",
    "qwen3_vl_moe_text",
    "seed_oss",
    "smollm3",
    "starcoder2",
    *ERNIE_TYPES,
    M3_TYPE,
    *NEMOTRON_TYPES,
    *DELTA_TYPES,
    *SPARSE_TYPES,
    *LLAMA4_TYPES,
}
# All-reduces of a layer where they are not two: a layer of Nemotron-H is one part alone, and
# MiniMax M2 and OLMo norm queries and keys over all heads.
LAYER_REDUCES: Final = {
    "minimax_m2": 3,
    "olmo3": 3,
    **dict.fromkeys(NEMOTRON_TYPES, 1),
}
# Configs that leave out what is their default: an output head that is the input embedding.
TIED_TYPES: Final = (
    "gemma2",
    "gemma3",
    "gemma3_text",
    "smollm3",
    "starcoder2",
    *ERNIE_TYPES,
)
UNGATED_TYPES: Final = ("phi", "starcoder2")
# Which layers have a full context where no list says it: every one of so many.
WINDOW_PATTERNS: Final = {
    "gemma2": 2,
    "gemma3": 6,
    "gemma3_text": 6,
    "gpt_oss": 2,
    "olmo3": 4,
}
ALL_WINDOWS: Final = ("mistral", "phi3", "starcoder2")
# Quantizations with one format of weights.
METHOD_FORMATS: Final = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4"}
NUMBER_FORMATS: Final = {
    "int4": "int4",
    "int8": "int8",
    "float4": "fp4",
    "float8": "fp8",
}
MODELOPT_FORMATS: Final = {"fp8": "fp8", "nvfp4": "fp4"}


def parse_config(raw_config: bytes, path: str) -> Llm:
    """Return the architecture that a config.json describes.

    Raises SpecError for text that is not JSON, an unknown architecture or quantization, and a
    missing or invalid size.
    """
    position = Place(path)
    try:
        config = json.loads(raw_config)
    except (ValueError, RecursionError) as error:
        _refuse(position, f"not JSON: {error}", cause=error)
    if not isinstance(config, dict):
        _refuse(position, "not a JSON object")
    text_config = config.get("text_config", {})
    if not isinstance(text_config, dict):
        _refuse(position, "text_config is not a JSON object")
    # Multimodal models nest the language model under text_config.
    config = flatten_config(config, text_config)
    # Diffusion models name a class, and no type.
    model_type = str(config.get("model_type") or config.get("_class_name", ""))
    if model_type not in MODEL_TYPES:
        family = other_model(model_type, "architecture")
        if family is not None:
            raise SpecError(
                other_model_problem(f"'{model_type[:40]}'", family, position)
            )
        if model_type in UNREAD_TYPES:
            _refuse(
                position,
                f"architecture '{model_type}' cannot be sized: "
                f"it has {UNREAD_TYPES[model_type]}",
            )
        _refuse(position, f"architecture '{model_type[:40]}' is not known")
    return _ModelConfig(config, position).build_model(model_type)


def _refuse(place: Place, message: str, cause: Exception | None = None) -> Any:
    known_types = ", ".join(sorted(MODEL_TYPES))
    next_step = f"give a config.json of one of: {known_types}"
    raise SpecError(
        Problem(
            code="config", message=message, place=place, next_step=next_step
        )
    ) from cause


class _ModelConfig:
    """Typed access to the keys of one config."""

    def __init__(self, config: dict[str, Any], place: Place) -> None:
        self.config = config
        self.place = place

    def read_size(
        self, key: str, *alternate_keys: str, default: int | None = None
    ) -> int:
        for config_key in (key, *alternate_keys):
            dimension = self.config.get(config_key)
            if (
                isinstance(dimension, int)
                # JSON true and false are integers in Python.
                and not isinstance(dimension, bool)
                and 0 <= dimension <= 10**8
            ):
                return dimension
            if dimension is not None:
                _refuse(
                    self.place,
                    f"{config_key} is not a size: {str(dimension)[:40]}",
                )
        if default is None:
            _refuse(self.place, f"{key} is missing")
        return default or 0

    def build_model(self, model_type: str) -> Llm:
        hidden_width = self.read_size("hidden_size")
        head_count = self.read_size("num_attention_heads")
        layer_count = self.read_size(
            "num_hidden_layers", default=stated_layers(self.config)
        )
        if not (hidden_width and head_count and layer_count):
            _refuse(self.place, "hidden_size, heads and layers must be above 0")
        expert_count = self._expert_count()
        latent_sizes = self._latent_sizes()
        # Some mixtures state no width of the dense MLP that they do not have.
        ffn_width = self.read_size("intermediate_size", "moe_intermediate_size")
        window_tokens, window_layers = self._sliding_window(
            model_type, layer_count
        )
        architecture: dict[str, Any] = {
            "model": _safe_name(self.config.get("_name_or_path"), model_type),
            "family": model_type,
            "layers": layer_count,
            "hidden": hidden_width,
            "ffn": ffn_width,
            "heads": head_count,
            "kv_heads": self.read_size(
                "num_key_value_heads", default=head_count
            ),
            "head_dim": self._head_dim(
                hidden_width // head_count, latent_sizes
            ),
            "vocab": self.read_size("vocab_size"),
            "experts": expert_count,
            **self._expert_sizes(expert_count, ffn_width),
            **latent_sizes,
            "window": window_tokens,
            "window_layers": window_layers,
            "tied": bool(
                self.config.get("tie_word_embeddings", model_type in TIED_TYPES)
            ),
            "max_context": self.read_size(
                "max_position_embeddings", default=131_072
            ),
            # A gated MLP has gate, up and down; without a gate there are two.
            "mlp_matrices": 2 if model_type in UNGATED_TYPES else 3,
            "layer_reduces": LAYER_REDUCES.get(model_type, 0),
            "precision": self._precision(),
            "source": f"config.json ({model_type})",
        }
        parts: ConfigParts = read_parts(
            model_type, self.config, self.read_size
        ) or _refuse(self.place, "the pattern of layers is not known")
        architecture |= parts.columns
        self._check_shapes(architecture)
        return _count_params(
            architecture,
            parts,
            self._shared_width(architecture),
        )

    def _expert_count(self) -> int:
        """Return the number of routed experts of a layer, 0 without any."""
        return self.read_size(
            "num_local_experts",
            "num_experts",
            "n_routed_experts",
            "moe_num_experts",
            default=0,
        )

    def _shared_width(self, architecture: dict[str, Any]) -> int:
        """Return the width of the shared experts of a layer together."""
        return self.read_size(
            "moe_shared_expert_intermediate_size",
            "shared_expert_intermediate_size",
            "shared_intermediate_size",
            default=architecture["shared_experts"] * architecture["moe_ffn"],
        )

    def _latent_sizes(self) -> dict[str, int]:
        """Return the sizes of latent attention (MLA), 0 without it."""
        kv_lora_rank = self.read_size("kv_lora_rank", default=0)
        query_rank = self.read_size("q_lora_rank", default=0)
        return {
            "kv_lora_rank": kv_lora_rank,
            "q_lora_rank": query_rank if kv_lora_rank else 0,
            "qk_rope_dim": self.read_size("qk_rope_head_dim", default=0),
            "v_head_dim": self.read_size("v_head_dim", default=0),
        }

    def _head_dim(
        self, even_head_dim: int, latent_sizes: dict[str, int]
    ) -> int:
        """Return the stated dimension of a head, else `even_head_dim`: width over heads."""
        if latent_sizes["kv_lora_rank"]:
            # MLA: dimensions without and with rotary positions.
            return (
                self.read_size("qk_nope_head_dim") + latent_sizes["qk_rope_dim"]
            )
        return self.read_size(
            "head_dim", "attention_head_dim", default=even_head_dim
        )

    def _expert_sizes(
        self, expert_count: int, ffn_width: int
    ) -> dict[str, int]:
        """Return how routed and shared experts divide the MLPs of the layers."""
        experts_per_token = self.read_size(
            "num_experts_per_tok", "experts_per_token", default=0
        )
        moe_ffn = (
            self.read_size("moe_intermediate_size", default=ffn_width)
            if expert_count
            else 0
        )
        shared_width = self.read_size(
            "shared_expert_intermediate_size", default=0
        )
        shared_experts = self.read_size(
            "n_shared_experts",
            default=shared_width // moe_ffn if moe_ffn else 0,
        )
        # Leading layers with a dense MLP instead of experts.
        dense_layers = (
            self.read_size("first_k_dense_replace", default=0)
            if expert_count
            else 0
        )
        return {
            "experts_per_token": experts_per_token,
            "moe_ffn": moe_ffn,
            "shared_experts": shared_experts,
            "dense_layers": dense_layers,
        }

    def _check_shapes(self, architecture: dict[str, Any]) -> None:
        """Refuse shapes that are impossible.

        Sizes above 0, KV heads <= heads, and 0 < experts per token <= experts.
        """
        for dimension in (
            "kv_heads",
            "head_dim",
            "ffn",
            "vocab",
            "max_context",
        ):
            if not architecture[dimension]:
                _refuse(self.place, f"{dimension} must be above 0")
        if architecture["kv_heads"] > architecture["heads"]:
            _refuse(
                self.place,
                f"{architecture['kv_heads']} kv heads for {architecture['heads']} heads",
            )
        if (
            architecture["experts"]
            and not 0
            < architecture["experts_per_token"]
            <= architecture["experts"]
        ):
            _refuse(
                self.place,
                (
                    f"{architecture['experts_per_token']} of {architecture['experts']} "
                    "experts per token"
                ),
            )

    def _sliding_window(
        self, model_type: str, layer_count: int
    ) -> tuple[int, int]:
        """Return the window in tokens, and the number of layers that use it.

        `layer_types` decides when it is present, else the pattern of the model family; (0, 0)
        means full attention in all layers.
        """
        window_tokens = self.config.get("sliding_window")
        if (
            not isinstance(window_tokens, int)
            or self.config.get("use_sliding_window") is False
        ):
            return 0, 0
        layer_types = self.config.get("layer_types")
        if isinstance(layer_types, list):
            return window_tokens, sum(
                layer_type == "sliding_attention" for layer_type in layer_types
            )
        if model_type not in WINDOW_PATTERNS:
            return (
                (window_tokens, layer_count)
                if model_type in ALL_WINDOWS
                else (0, 0)
            )
        pattern = self.read_size(
            "sliding_window_pattern", default=WINDOW_PATTERNS[model_type]
        )
        # Every pattern-th layer attends to the full context.
        return (
            (window_tokens, layer_count - layer_count // pattern)
            if pattern
            else (0, 0)
        )

    def _precision(self) -> str:
        """Return the format of the weights, bf16 unless a `quantization_config` names another.

        Raises SpecError for a quantization whose format is not known: as 16 bit its weights would
        be sized at several times their bytes.
        """
        settings = self.config.get("quantization_config")
        if settings is None:
            return "bf16"
        if not isinstance(settings, dict):
            _refuse(self.place, "quantization_config is not a JSON object")
        method = str(settings.get("quant_method", "")).lower()
        weight_format = METHOD_FORMATS.get(method) or _stated_format(
            method, settings
        )
        if not weight_format:
            raise SpecError(
                Problem(
                    code="config",
                    message=f"quantization '{method[:40]}' has weights of an unknown format",
                    place=self.place,
                    next_step=(
                        "remove quantization_config, and state the format in "
                        "model.precision"
                    ),
                )
            )
        return weight_format


def _stated_format(method: str, settings: dict[str, Any]) -> str:
    """Return the format of weights that a quantization states, or an empty text.

    gptq, awq           bits
    bitsandbytes        load_in_4bit, load_in_8bit
    modelopt            quant_algo
    compressed-tensors  type and num_bits of the weights of every group, which have to agree
    """
    if method in ("gptq", "awq"):
        return _number_format("int", settings.get("bits"))
    if method == "bitsandbytes":
        for bits in (4, 8):
            if settings.get(f"load_in_{bits}bit") is True:
                return _number_format("int", bits)
    if method == "modelopt":
        algorithm = str(settings.get("quant_algo", "")).lower()
        return MODELOPT_FORMATS.get(algorithm, "")
    if method != "compressed-tensors":
        return ""
    groups = settings.get("config_groups")
    formats = {
        _group_format(group)
        for group in (groups.values() if isinstance(groups, dict) else ())
    }
    return formats.pop() if len(formats) == 1 else ""


def _group_format(group: object) -> str:
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(weights, dict):
        return ""
    return _number_format(weights.get("type"), weights.get("num_bits"))


def _number_format(number_type: object, bits: object) -> str:
    return NUMBER_FORMATS.get(f"{number_type}{bits}", "")


def _count_params(
    architecture: dict[str, Any],
    parts: ConfigParts,
    shared_width: int,
) -> Llm:
    """Return the model with total and active parameters, counted from the shapes.

    Active parameters: attention, dense MLPs, shared experts, routers, embeddings, special parts
    and the routed experts of one token. Norms and biases are not counted. `shared_width` is that
    of the shared experts of a layer together.
    """
    uncounted = Llm(params=0.0, active_params=0.0, **architecture)
    dense_mlp_params = uncounted.mlp_matrices * uncounted.hidden * uncounted.ffn
    dense_layers = (
        uncounted.layers - uncounted.moe_layers
        if parts.mlp_layers is None
        else parts.mlp_layers
    )
    shared_matrices = uncounted.moe_layers * uncounted.mlp_matrices
    # One router logit for each expert, from the hidden state.
    router_params = uncounted.moe_layers * uncounted.hidden * uncounted.experts
    always_active_params = (
        uncounted.attention_params
        + parts.extra_params
        + dense_layers * dense_mlp_params
        + shared_matrices * uncounted.hidden * shared_width
        + router_params
        + uncounted.embedding_params
    )
    return Llm(
        params=always_active_params + uncounted.expert_params,
        active_params=always_active_params + uncounted.active_expert_params,
        **architecture,
    )


def _safe_name(name_or_path: object, model_type: str) -> str:
    """Return the last part of a path, with only letters, digits, `.`, `_` and `-`."""
    base_name = (
        str(name_or_path or model_type).rstrip("/").rsplit("/", 1)[-1].lower()
    )
    return (
        re.sub(r"[^a-z0-9._-]", "-", base_name)[:80].strip(".-") or model_type
    )
