"""Facts: every row is checked, the bad one is named, and known truths hold."""

from __future__ import annotations

import json

import pytest

from planner.errors import CatalogError, MissingError, SpecError
from planner.facts import huggingface, table
from planner.facts.accelerator import accelerators, mig_profiles
from planner.facts.llm import dense_model, find_model, models, unsized_models
from tests.conftest import present


def test_a_bad_cell_is_named_by_file_line_and_column() -> None:
    columns = {"a": table.nonempty_text, "b": table.integer_between(0, 9)}
    with pytest.raises(CatalogError) as caught:
        list(table.read_rows("a,b\nx,1\ny,12\n", "t.csv", columns))
    problem = caught.value.problems[0]
    assert present(problem.place).line == 3
    assert "b: '12' is not between 0 and 9" in problem.message


@pytest.mark.parametrize("bad", ["nan", "-1", "0", "inf", "", "1e12", "x"])
def test_prices_must_be_positive_and_finite(bad: str) -> None:
    with pytest.raises(CatalogError):
        list(
            table.read_rows(
                "p\n" + (bad or '""') + "\n", "t.csv", {"p": table.usd_price}
            )
        )


@pytest.mark.parametrize("header", ["a,b,c", "a", "b,a,a"])
def test_unknown_or_missing_columns_are_refused(header: str) -> None:
    with pytest.raises(CatalogError, match="columns differ"):
        list(
            table.read_rows(
                header + "\n",
                "t.csv",
                {"a": table.nonempty_text, "b": table.nonempty_text},
            )
        )


def test_data_sheets_agree_with_what_the_vendors_publish() -> None:
    known = accelerators()
    assert known["h100-sxm"].bandwidth_gb_s == 3350
    assert known["h100-sxm"].bf16_tflops == pytest.approx(989.4)
    assert known["a100-80gb-sxm"].fp8_tflops is None
    assert known["l4"].supports("fp8")
    assert not known["a10g"].supports("fp8")
    assert known["h100-sxm"].compute_precision("mxfp4") == "bf16"
    assert known["b200-sxm"].compute_precision("mxfp4") == "fp4"


@pytest.mark.parametrize("name", ["v100-16gb", "v100-32gb", "t4", "t4g"])
def test_volta_and_turing_have_units_for_fp16_and_none_for_bf16(
    name: str,
) -> None:
    chip = accelerators()[name]
    assert not chip.supports("bf16")
    assert chip.supports("fp16")
    assert chip.served_precisions(("bf16", "fp8", "fp16")) == ("fp16",)


def test_both_formats_of_sixteen_bit_run_at_one_rate_where_there_are_both() -> (
    None
):
    for chip in accelerators().values():
        assert chip.tflops("fp16") == chip.tflops("bf16")
        assert chip.compute_precision("fp16") == "bf16"
        if chip.supports("bf16") and chip.supports("fp16"):
            assert chip.served_precisions(("bf16", "fp16")) == ("bf16",)
            assert chip.served_precisions(("fp16", "bf16")) == ("fp16",)


def test_fp32_runs_below_the_rate_of_matrix_units_in_sixteen_bit() -> None:
    # NVIDIA's data sheets: 19.5 on A100, 67 on H100 SXM, 8.1 on T4.
    known = accelerators()
    for name, peak in (("a100-80gb-sxm", 19.5), ("h100-sxm", 67), ("t4", 8.1)):
        assert known[name].tflops("fp32") == peak
    for chip in known.values():
        assert chip.tflops("fp32") < (chip.bf16_tflops or 1e9)
        assert chip.supports("fp32") == bool(chip.fp32_tflops)
    assert known["t4"].compute_precision("fp32") == "fp32"


def test_mig_slices_never_exceed_their_gpu() -> None:
    known = accelerators()
    for profile in mig_profiles():
        whole = (
            known[profile.accelerator].memory_gib * 1.08
        )  # marketed GB against usable GiB
        assert profile.memory_gb * profile.max_instances <= whole * 1.15


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [
        ("llama-3.1-8b", 8.03, 8.03),
        ("deepseek-r1", 671.03, 37.55),
        ("mixtral-8x7b", 46.7, 12.88),
    ],
)
def test_parts_of_a_model_add_up_to_its_published_size(
    name: str, billions: float, active: float
) -> None:
    model = find_model(name)
    total = model.dense_params + model.expert_params + model.embedding_params
    used = (
        model.dense_params + model.active_expert_params + model.embedding_params
    )
    assert total / 1e9 == pytest.approx(billions, rel=0.001)
    assert used / 1e9 == pytest.approx(active, rel=0.02)


def test_models_are_found_by_hugging_face_name_and_offer_a_near_miss() -> None:
    assert find_model("meta-llama/Meta-Llama-3.1-8B").model == "llama-3.1-8b"
    assert find_model("DeepSeek-V3").model == "deepseek-r1"
    with pytest.raises(MissingError) as caught:
        find_model("llama-3.1-8")
    assert "llama-3.1" in caught.value.problems[0].next_step


def test_known_models_that_cannot_be_sized_are_refused_with_the_reason() -> (
    None
):
    assert unsized_models()
    for name in unsized_models():
        with pytest.raises(MissingError, match="cannot be sized yet"):
            find_model(name)


def test_a_size_alone_gives_a_model_near_the_published_shape_of_that_size() -> (
    None
):
    for name in ("llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b"):
        real = find_model(name)
        guess = dense_model(int(find_model(name).params))
        assert guess.layers == pytest.approx(real.layers, rel=0.25)
        assert guess.hidden == pytest.approx(real.hidden, rel=0.25)
        assert guess.kv_heads == real.kv_heads


CONFIGS: dict[str, dict[str, object]] = {
    "llama-3.1-8b": {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    },
    "qwen2.5-7b": {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_attention_heads": 28,
        "num_hidden_layers": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "use_sliding_window": False,
        "sliding_window": 131072,
        "tie_word_embeddings": False,
    },
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_attention_heads": 32,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "vocab_size": 151936,
        "tie_word_embeddings": False,
    },
    "mistral-7b-v0.3": {
        "model_type": "mistral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "vocab_size": 32768,
        "sliding_window": None,
        "tie_word_embeddings": False,
    },
    "mixtral-8x7b": {
        "model_type": "mixtral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "vocab_size": 32000,
        "tie_word_embeddings": False,
    },
    "deepseek-r1": {
        "model_type": "deepseek_v3",
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "num_attention_heads": 128,
        "num_hidden_layers": 61,
        "num_key_value_heads": 128,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "first_k_dense_replace": 3,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "vocab_size": 129280,
        "tie_word_embeddings": False,
        "quantization_config": {"quant_method": "fp8"},
    },
    "gemma-3-27b": {
        "model_type": "gemma3",
        "text_config": {
            "hidden_size": 5376,
            "intermediate_size": 21504,
            "num_attention_heads": 32,
            "num_hidden_layers": 62,
            "num_key_value_heads": 16,
            "head_dim": 128,
            "vocab_size": 262144,
            "sliding_window": 1024,
            "sliding_window_pattern": 6,
        },
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss",
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_attention_heads": 64,
        "num_hidden_layers": 24,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "num_local_experts": 32,
        "experts_per_token": 4,
        "vocab_size": 201088,
        "sliding_window": 128,
        "tie_word_embeddings": False,
        "layer_types": ["sliding_attention", "full_attention"] * 12,
        "quantization_config": {"quant_method": "mxfp4"},
    },
    "phi-4": {
        "model_type": "phi3",
        "hidden_size": 5120,
        "intermediate_size": 17920,
        "num_attention_heads": 40,
        "num_hidden_layers": 40,
        "num_key_value_heads": 10,
        "vocab_size": 100352,
        "sliding_window": None,
        "tie_word_embeddings": False,
    },
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_json_gives_the_published_architecture(name: str) -> None:
    found = huggingface.parse_config(
        json.dumps(CONFIGS[name]).encode(), "config.json"
    )
    known = models()[name]
    assert found.params == pytest.approx(known.params, rel=0.03)
    # Some publishers leave the input embedding out of the active parameters.
    counts = (
        found.active_params,
        found.active_params - found.vocab * found.hidden,
    )
    assert any(
        count == pytest.approx(known.active_params, rel=0.06)
        for count in counts
    )
    for key in (
        "layers",
        "hidden",
        "kv_heads",
        "head_dim",
        "experts",
        "kv_lora_rank",
        "window_layers",
        "precision",
    ):
        if key == "kv_heads" and known.kv_lora_rank:
            continue
        assert getattr(found, key) == getattr(known, key), key


def group(number_type: str, bits: int) -> dict[str, object]:
    return {"weights": {"type": number_type, "num_bits": bits}}


@pytest.mark.parametrize(
    ("quantization", "precision"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "gptq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "fp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": group("int", 4)},
            },
            "int4",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": group("float", 8)},
            },
            "fp8",
        ),
        # What cannot be read is not taken for 16 bit.
        ({"quant_method": "gptq", "bits": 3}, None),
        ({"quant_method": "gptq"}, None),
        ({"quant_method": "awq", "bits": [4]}, None),
        ({"quant_method": "bitsandbytes"}, None),
        ({"quant_method": "hqq"}, None),
        ({"quant_method": "compressed-tensors"}, None),
        ({"quant_method": "compressed-tensors", "config_groups": 1}, None),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": group("int", 4), "b": group("int", 8)},
            },
            None,
        ),
        ("awq", None),
    ],
)
def test_weights_are_in_the_format_that_a_config_quantizes_them_to(
    quantization: object, precision: str | None
) -> None:
    config = {**CONFIGS["phi-4"], "quantization_config": quantization}

    def found() -> str:
        raw = json.dumps(config).encode()
        return huggingface.parse_config(raw, "config.json").precision

    if precision is not None:
        assert found() == precision
        return
    with pytest.raises(SpecError) as caught:
        found()
    assert caught.value.problems[0].code == "config"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"model_type": "mamba"}',
        b'{"model_type": "llama"}',
        b"{" * 5000,
        b'{"model_type": "llama", "hidden_size": -1}',
        b'{"model_type":"llama","hidden_size":0,"num_attention_heads":0,"num_hidden_layers":0,'
        b'"vocab_size":1,"intermediate_size":1}',
    ],
)
def test_a_broken_config_is_a_typed_error(raw: bytes) -> None:
    with pytest.raises(SpecError):
        huggingface.parse_config(raw, "config.json")


@pytest.mark.parametrize(
    "wrong",
    [
        {"text_config": [1]},
        {"hidden_size": 3},
        {"num_key_value_heads": 0},
        {"num_key_value_heads": 10**6},
        {"vocab_size": 0},
        {"intermediate_size": 0},
        {"max_position_embeddings": 0},
        {"num_local_experts": 8},
        {"num_local_experts": 8, "num_experts_per_tok": 9},
    ],
    ids=str,
)
def test_a_config_of_a_shape_that_no_model_has_is_refused(
    wrong: dict[str, object],
) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
        "intermediate_size": 14_336,
        "vocab_size": 128_256,
        "max_position_embeddings": 131_072,
    }
    assert (
        huggingface.parse_config(
            json.dumps(config).encode(), "config.json"
        ).params
        > 8e9
    )
    with pytest.raises(SpecError):
        huggingface.parse_config(
            json.dumps({**config, **wrong}).encode(), "config.json"
        )
