"""Published configs of hybrids, sparse attention and mixtures, against the listed models."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from planner.errors import SpecError
from planner.facts.config_parts import UNREAD_TYPES
from planner.facts.huggingface import parse_config
from planner.facts.llm import Llm, find_model

# The keys that tell a shape, of the config.json that each model is published with.
NEMOTRON: Final = {
    "model_type": "nemotron_h",
    "conv_kernel": 4,
    "head_dim": 128,
    "mamba_head_dim": 64,
    "mamba_ssm_cache_dtype": "float32",
    "max_position_embeddings": 262144,
    "n_groups": 8,
    "n_shared_experts": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "ssm_state_size": 128,
    "tie_word_embeddings": False,
    "vocab_size": 131072,
}
NANO_PATTERN: Final = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
LATENT: Final = {
    "first_k_dense_replace": 3,
    "kv_lora_rank": 512,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "qk_rope_head_dim": 64,
    "tie_word_embeddings": False,
}
LLAMA4: Final = {
    "model_type": "llama4_text",
    "attention_chunk_size": 8192,
    "head_dim": 128,
    "hidden_size": 5120,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
    "num_attention_heads": 40,
    "num_experts_per_tok": 1,
    "num_hidden_layers": 48,
    "num_key_value_heads": 8,
    "vocab_size": 202048,
}
QWEN35: Final = {
    "full_attention_interval": 4,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_value_head_dim": 128,
    "mamba_ssm_dtype": "float32",
    "max_position_embeddings": 262144,
    "vocab_size": 248320,
}
ENTRIES: Final = {
    "model_type": "deepseek_v4",
    "expert_dtype": "fp4",
    "head_dim": 512,
    "index_head_dim": 128,
    "index_n_heads": 64,
    "max_position_embeddings": 1048576,
    "n_shared_experts": 1,
    "num_experts_per_tok": 6,
    "num_key_value_heads": 1,
    "o_lora_rank": 1024,
    "qk_rope_head_dim": 64,
    "quantization_config": {"quant_method": "fp8"},
    "sliding_window": 128,
    "tie_word_embeddings": False,
    "vocab_size": 129280,
}
CONFIGS: Final[dict[str, dict[str, Any]]] = {
    "deepseek-v4-pro": ENTRIES
    | {
        # One more than layers: of the tokens that are predicted further.
        "compress_ratios": [128, 128] + [4, 128] * 29 + [4, 0],
        "hidden_size": 7168,
        "index_topk": 1024,
        "moe_intermediate_size": 3072,
        "n_routed_experts": 384,
        "num_attention_heads": 128,
        "num_hidden_layers": 61,
        "o_groups": 16,
        "q_lora_rank": 1536,
    },
    "deepseek-v4-flash": ENTRIES
    | {
        "compress_ratios": [0, 0] + [4, 128] * 20 + [4, 0],
        "hidden_size": 4096,
        "index_topk": 512,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "num_attention_heads": 64,
        "num_hidden_layers": 43,
        "o_groups": 8,
        "q_lora_rank": 1024,
    },
    "nvidia-nemotron-3-nano-30b-a3b": NEMOTRON
    | {
        "hidden_size": 2688,
        "hybrid_override_pattern": NANO_PATTERN,
        "intermediate_size": 1856,
        "mamba_num_heads": 64,
        "moe_intermediate_size": 1856,
        "moe_shared_expert_intermediate_size": 3712,
        "n_routed_experts": 128,
        "num_experts_per_tok": 6,
        "num_hidden_layers": 52,
    },
    "nvidia-nemotron-3-super-120b-a12b": NEMOTRON
    | {
        "hidden_size": 4096,
        "hybrid_override_pattern": "MEMEMEM*"
        + "EMEMEMEM*" * 2
        + "EMEMEMEMEM*" * 4
        + "EMEMEMEM*EMEMEMEME",
        "intermediate_size": 2688,
        "mamba_num_heads": 128,
        "moe_intermediate_size": 2688,
        "moe_latent_size": 1024,
        "moe_shared_expert_intermediate_size": 5376,
        "n_routed_experts": 512,
        "num_experts_per_tok": 22,
        "num_hidden_layers": 88,
    },
    "nemotron-h-56b": NEMOTRON
    | {
        "attention_head_dim": 128,
        "head_dim": None,
        "hidden_size": 8192,
        "hybrid_override_pattern": "M-M-M-M*-"
        + "M-M-M-M-M*-" * 9
        + "M-M-M-M-M-",
        "intermediate_size": 32768,
        "mamba_num_heads": 256,
        "mamba_ssm_cache_dtype": None,
        "max_position_embeddings": 8192,
        "n_shared_experts": None,
        "num_attention_heads": 64,
        "num_hidden_layers": 118,
        "num_key_value_heads": 8,
        "ssm_state_size": 256,
    },
    "deepseek-v3.2": LATENT
    | {
        "model_type": "deepseek_v32",
        "hidden_size": 7168,
        "index_head_dim": 128,
        "index_n_heads": 64,
        "index_topk": 2048,
        "intermediate_size": 18432,
        "max_position_embeddings": 163840,
        "num_attention_heads": 128,
        "num_hidden_layers": 61,
        "num_key_value_heads": 128,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "quantization_config": {"quant_method": "fp8"},
        "v_head_dim": 128,
        "vocab_size": 129280,
    },
    "glm-5": LATENT
    | {
        "model_type": "glm_moe_dsa",
        "head_dim": 64,
        "hidden_size": 6144,
        "index_head_dim": 128,
        "index_n_heads": 32,
        "index_topk": 2048,
        "intermediate_size": 12288,
        "max_position_embeddings": 202752,
        "num_attention_heads": 64,
        "num_hidden_layers": 78,
        "num_key_value_heads": 64,
        "q_lora_rank": 2048,
        "qk_nope_head_dim": 192,
        "v_head_dim": 256,
        "vocab_size": 154880,
    },
    "kimi-k2": LATENT
    | {
        "model_type": "kimi_k2",
        "first_k_dense_replace": 1,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "max_position_embeddings": 131072,
        "n_routed_experts": 384,
        "num_attention_heads": 64,
        "num_hidden_layers": 61,
        "num_key_value_heads": 64,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "quantization_config": {"quant_method": "fp8"},
        "v_head_dim": 128,
        "vocab_size": 163840,
    },
    "glm-4.5-air": {
        "model_type": "glm4_moe",
        "first_k_dense_replace": 1,
        "head_dim": 128,
        "hidden_size": 4096,
        "intermediate_size": 10944,
        "max_position_embeddings": 131072,
        "moe_intermediate_size": 1408,
        "n_routed_experts": 128,
        "n_shared_experts": 1,
        "num_attention_heads": 96,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 46,
        "num_key_value_heads": 8,
        "tie_word_embeddings": False,
        "vocab_size": 151552,
    },
    "minimax-m2.5": {
        "model_type": "minimax_m2",
        "head_dim": 128,
        "hidden_size": 3072,
        "intermediate_size": 1536,
        "max_position_embeddings": 196608,
        "num_attention_heads": 48,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 62,
        "num_key_value_heads": 8,
        "num_local_experts": 256,
        "quantization_config": {"quant_method": "fp8"},
        "vocab_size": 200064,
    },
    "minimax-m3": {
        "model_type": "minimax_m3_vl",
        # The bundle names its language model after the predecessor.
        "text_config": {
            "model_type": "minimax_m2",
            "dense_intermediate_size": 12288,
            "head_dim": 128,
            "hidden_size": 6144,
            "intermediate_size": 3072,
            "max_position_embeddings": 1048576,
            "moe_layer_freq": [0] * 3 + [1] * 57,
            "n_shared_experts": 1,
            "num_attention_heads": 64,
            "num_experts_per_tok": 4,
            "num_hidden_layers": 60,
            "num_key_value_heads": 4,
            "num_local_experts": 128,
            "shared_intermediate_size": 3072,
            "sparse_attention_config": {
                "sparse_attention_freq": [0] * 3 + [1] * 57,
                "sparse_block_size": 128,
                "sparse_index_dim": 128,
                "sparse_num_index_heads": 4,
                "sparse_topk_blocks": 16,
            },
            "vocab_size": 200064,
        },
    },
    "llama-4-scout": LLAMA4
    | {
        "interleave_moe_layer_step": 1,
        "max_position_embeddings": 10485760,
        "num_local_experts": 16,
    },
    "llama-4-maverick": LLAMA4
    | {
        "interleave_moe_layer_step": 2,
        "max_position_embeddings": 1048576,
        "num_local_experts": 128,
    },
    "qwen3.5-35b-a3b": QWEN35
    | {
        "model_type": "qwen3_5_moe_text",
        "hidden_size": 2048,
        "linear_num_value_heads": 32,
        "moe_intermediate_size": 512,
        "num_attention_heads": 16,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 40,
        "num_key_value_heads": 2,
        "shared_expert_intermediate_size": 512,
    },
    "qwen3.5-27b": QWEN35
    | {
        "model_type": "qwen3_5_text",
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "linear_num_value_heads": 48,
        "num_attention_heads": 24,
        "num_hidden_layers": 64,
        "num_key_value_heads": 4,
    },
}
# Defaults of the configuration classes that these models are published with, and the billions of
# parameters, in total and active, that their names and cards state.
PLAIN: Final[dict[str, tuple[dict[str, Any], float, float]]] = {
    "smollm3": (
        {
            "hidden_size": 2048,
            "intermediate_size": 11008,
            "num_attention_heads": 16,
            "num_hidden_layers": 36,
            "num_key_value_heads": 4,
            "vocab_size": 128256,
        },
        3.08,
        3.08,
    ),
    "seed_oss": (
        {
            "head_dim": 128,
            # Of the model card; the default of the class is narrower.
            "hidden_size": 5120,
            "intermediate_size": 27648,
            "num_attention_heads": 80,
            "num_hidden_layers": 64,
            "num_key_value_heads": 8,
            "vocab_size": 155136,
        },
        36,
        36,
    ),
    "starcoder2": (
        {
            "hidden_size": 3072,
            "intermediate_size": 12288,
            "num_attention_heads": 24,
            "num_hidden_layers": 30,
            "num_key_value_heads": 2,
            "vocab_size": 49152,
        },
        3,
        3,
    ),
    "olmo3": (
        {
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": None,
            "sliding_window": 4096,
            "vocab_size": 50304,
        },
        7,
        7,
    ),
    "ernie4_5_moe": (
        {
            "hidden_size": 2560,
            "intermediate_size": 12288,
            "moe_intermediate_size": 1536,
            "moe_k": 6,
            "moe_layer_start_index": 1,
            "moe_num_experts": 64,
            "moe_num_shared_experts": 2,
            "num_attention_heads": 20,
            "num_hidden_layers": 28,
            "num_key_value_heads": 4,
            "vocab_size": 103424,
        },
        21,
        3,
    ),
}
COUNTED: Final = ("params", "active_params")
NAMED: Final = ("model", "source", "as_of", "expert_hidden", *COUNTED)


def read(config: dict[str, Any]) -> Llm:
    return parse_config(json.dumps(config).encode(), "config.json")


@pytest.mark.parametrize("name", CONFIGS)
def test_a_published_config_has_the_shape_of_the_listed_model(
    name: str,
) -> None:
    found, listed = read(CONFIGS[name]), find_model(name)
    different = {
        field: (getattr(found, field), getattr(listed, field))
        for field in Llm.__struct_fields__
        if field not in NAMED
        and getattr(found, field) != getattr(listed, field)
    }
    assert not different
    assert (found.expert_hidden or found.hidden) == (
        listed.expert_hidden or listed.hidden
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_counted_as_they_are_published(name: str) -> None:
    """Totals to a hundredth; active ones to what a name rounds them to, 3 being 3.45.

    MiniMax states active parameters of M3 without its embeddings, of 2.5 billion.
    """
    found, listed = read(CONFIGS[name]), find_model(name)
    assert found.params == pytest.approx(listed.params, rel=0.011)
    embeddings = found.embedding_params if name == "minimax-m3" else 0
    assert found.active_params - embeddings == pytest.approx(
        listed.active_params, rel=0.11, abs=0.5e9
    )


def test_qwen3_next_has_the_parameters_of_its_name() -> None:
    """80 billion, of which 3 are active for each token."""
    shape = CONFIGS["qwen3.5-35b-a3b"]
    found = read(
        shape
        | {
            "model_type": "qwen3_next",
            "intermediate_size": 5120,
            "mamba_ssm_dtype": None,
            "num_experts": 512,
            "num_experts_per_tok": 10,
            "num_hidden_layers": 48,
            "vocab_size": 151936,
        }
    )
    assert found.params == pytest.approx(80e9, rel=0.01)
    assert found.active_params == pytest.approx(3.5e9, rel=0.15)
    assert (found.attention_layers, found.state_layers) == (12, 36)
    # A state of no stated type is of 16 bit.
    assert found.state_bytes == (32 * 128 * 128 + 3 * 8192) * 2


def test_layers_in_words_are_those_in_letters() -> None:
    letters = CONFIGS["nvidia-nemotron-3-nano-30b-a3b"]
    words = {"M": "mamba", "*": "attention", "E": "moe"}
    blocks = [words[letter] for letter in NANO_PATTERN]
    listed = letters | {
        "hybrid_override_pattern": None,
        "layers_block_type": blocks,
        "num_hidden_layers": None,
    }
    assert read(listed) == read(letters)


@pytest.mark.parametrize(
    "change",
    [
        {"hybrid_override_pattern": "MEX"},
        {"hybrid_override_pattern": ""},
        {"hybrid_override_pattern": 3},
        {"hybrid_override_pattern": None, "layers_block_type": ["rwkv"]},
        {"hybrid_override_pattern": None, "layers_block_type": [["mamba"]]},
    ],
)
def test_layers_that_nobody_knows_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="pattern of layers"):
        read(CONFIGS["nvidia-nemotron-3-nano-30b-a3b"] | change)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("nvidia-nemotron-3-nano-30b-a3b", "ssm_state_size"),
        ("deepseek-v3.2", "index_topk"),
        ("qwen3.5-27b", "linear_num_value_heads"),
        ("llama-4-scout", "intermediate_size_mlp"),
    ],
)
def test_a_special_part_without_its_size_is_refused(
    name: str, key: str
) -> None:
    config = {k: v for k, v in CONFIGS[name].items() if k != key}
    with pytest.raises(SpecError, match=f"{key} is missing"):
        read(config)


@pytest.mark.parametrize("name", PLAIN)
def test_defaults_of_a_class_have_the_parameters_of_the_name(
    name: str,
) -> None:
    shape, total, active = PLAIN[name]
    found = read(shape | {"model_type": name})
    # A name rounds to whole billions.
    assert found.params == pytest.approx(total * 1e9, rel=0.04, abs=0.5e9)
    assert found.active_params == pytest.approx(
        active * 1e9, rel=0.04, abs=0.5e9
    )


def test_a_default_that_a_config_leaves_out_is_that_of_its_class() -> None:
    """Saved configs have no default: tied heads, and three windows of four layers."""
    found = {
        name: read(shape | {"model_type": name})
        for name, (shape, _, _) in PLAIN.items()
    }
    tied = {name for name in found if found[name].tied}
    assert tied == {"smollm3", "starcoder2", "ernie4_5_moe"}
    assert (found["olmo3"].window, found["olmo3"].window_layers) == (4096, 24)
    assert found["starcoder2"].mlp_matrices == 2


def test_a_bundle_of_minimax_m3_is_no_m2() -> None:
    """Flat keys of a saved copy say what the nested ones of the release say."""
    bundle = CONFIGS["minimax-m3"]
    nested = dict(bundle["text_config"])
    del nested["sparse_attention_config"], nested["moe_layer_freq"]
    flat = nested | {
        "model_type": "minimax_m3_vl_text",
        "index_block_size": 128,
        "index_head_dim": 128,
        "index_n_heads": 4,
        "index_topk_blocks": 16,
        "layer_types": ["full_attention"] * 3 + ["minimax_m3_sparse"] * 57,
        "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 57,
    }
    assert read(flat) == read(bundle)
    dense = read(flat | {"layer_types": ["full_attention"] * 60})
    assert (dense.sparse, dense.index_bytes) == (0, 0)


def test_a_vision_bundle_of_qwen3_has_the_language_model_of_its_name() -> None:
    text_config = {
        "model_type": "qwen3_vl_moe_text",
        "head_dim": 128,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_attention_heads": 32,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
        "vocab_size": 151936,
    }
    found = read(
        {
            "model_type": "qwen3_vl_moe",
            "tie_word_embeddings": False,
            "text_config": text_config,
        }
    )
    assert found.params == pytest.approx(30.5e9, rel=0.01)
    assert found.active_params == pytest.approx(3.3e9, rel=0.02)


@pytest.mark.parametrize("name", ["kimi_linear", "mamba"])
def test_an_architecture_that_nobody_read_is_refused_by_name(name: str) -> None:
    with pytest.raises(SpecError, match=f"'{name}' is not known"):
        read(CONFIGS["qwen3.5-27b"] | {"model_type": name})


@pytest.mark.parametrize("name", UNREAD_TYPES)
def test_what_the_model_cannot_hold_is_refused_with_the_reason(
    name: str,
) -> None:
    with pytest.raises(SpecError, match=f"'{name}' cannot be sized: it has"):
        read(CONFIGS["qwen3.5-27b"] | {"model_type": name})
