"""A model by its name, by the columns of its shape, and by its config.json."""

from __future__ import annotations

import csv
import io
import json
from functools import partial
from typing import Final

import pytest

from planner.estimate.inference_row import row_deployment
from planner.estimate.model_row import shaped_model
from planner.estimate.table import predict_table
from planner.facts.llm import find_model
from planner.perf.common.memory import kv_token_bytes, weight_bytes
from tests.planner.estimate.rows import answered

SERVING: Final = {
    "row_id": "one",
    "model": "llama-3.1-70b",
    "gpu": "h100-sxm",
    "framework": "vllm",
    "weight_precision": "bf16",
    "tp": "4",
    "load_kind": "concurrency",
    "concurrency": "16",
    "input_len": "1024",
    "output_len": "512",
}
TRAINING: Final = {
    "row_id": "one",
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm",
    "framework": "megatron-lm",
    "n_gpus": "8",
    "dp": "8",
    "sharding": "zero1",
    "seq_len": "4096",
    "micro_batch": "1",
}
SHAPES: Final = (
    "layers",
    "hidden",
    "ffn",
    "heads",
    "kv_heads",
    "head_dim",
    "vocab",
    "experts",
    "experts_per_token",
    "moe_ffn",
    "shared_experts",
)
LLAMA_CONFIG: Final = {
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}


def written(row: dict[str, str]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(row), lineterminator="\n")
    writer.writeheader()
    writer.writerow(row)
    return buffer.getvalue()


def answer(
    row: dict[str, str], files: dict[str, bytes] | None = None
) -> dict[str, str]:
    read = None if files is None else partial(dict.__getitem__, files)
    text = predict_table(written(row), "rows.csv", read)
    return next(csv.DictReader(io.StringIO(text)))


def shape(name: str) -> dict[str, str]:
    model = find_model(name)
    cells = {column: str(getattr(model, column) or "") for column in SHAPES}
    return cells | {
        "tied": "yes" if model.tied else "no",
        "gated": "yes" if model.mlp_matrices == 3 else "no",
    }


@pytest.mark.parametrize(
    "name",
    [
        "llama-3.1-8b",
        "llama-3.1-70b",
        "llama-3.1-405b",
        "qwen3-32b",
        "qwen2.5-7b",
        "mistral-7b",
        "mixtral-8x7b",
        "qwen3-235b-a22b",
    ],
)
def test_a_listed_model_by_its_columns_has_the_same_bytes(name: str) -> None:
    """Weights to the rounding of published counts; the cache exactly."""
    by_name = row_deployment(SERVING | {"model": name})
    by_shape = row_deployment(SERVING | {"model": "ours"} | shape(name))
    assert by_shape.llm.model == "ours"
    assert kv_token_bytes(by_shape.llm, by_shape.layout) == kv_token_bytes(
        by_name.llm, by_name.layout
    )
    assert weight_bytes(by_shape.llm, by_shape.layout) == pytest.approx(
        weight_bytes(by_name.llm, by_name.layout), rel=0.01
    )
    assert by_shape.llm.active_params == pytest.approx(
        by_name.llm.active_params, rel=0.02
    )


def test_a_model_by_its_columns_is_as_fast_and_less_sure() -> None:
    by_name = answer(SERVING)
    by_shape = answer(SERVING | {"model": "ours"} | shape("llama-3.1-70b"))
    assert by_name["basis"] == "calibrated"
    assert by_shape["basis"] == "physics"
    assert float(by_shape["tpot_ms_mean"]) == pytest.approx(
        float(by_name["tpot_ms_mean"]), rel=0.01
    )
    low, high = (
        float(x["tpot_ms_mean_high"]) / float(x["tpot_ms_mean_low"])
        for x in (by_name, by_shape)
    )
    assert high > 1.05 * low


def test_a_model_of_a_size_alone_is_the_least_sure() -> None:
    sized = answer(SERVING | {"model": "ours", "params_b": "70"})
    shaped = answer(SERVING | {"model": "ours"} | shape("llama-3.1-70b"))
    assert sized["status"] == "ok"
    widths = [
        float(x["tpot_ms_mean_high"]) / float(x["tpot_ms_mean_low"])
        for x in (shaped, sized)
    ]
    assert widths == sorted(widths)
    assert widths[0] < widths[1]


def test_a_name_without_a_shape_is_refused_as_before() -> None:
    assert (
        "no model is named 'ours'"
        in answer(SERVING | {"model": "ours"})["reason"]
    )
    close = answer(SERVING | {"model": "llama-3.1-71b", "params_b": "70"})
    assert "did you mean" in close["reason"]


def test_a_config_beside_the_table_is_the_model_in_both_kinds() -> None:
    files = {"mine/config.json": json.dumps(LLAMA_CONFIG).encode()}
    told = {"model": "mine", "config": "mine/config.json"}
    by_config = answer(SERVING | told, files)
    assert float(by_config["tpot_ms_mean"]) == pytest.approx(
        float(answer(SERVING)["tpot_ms_mean"]), rel=0.01
    )
    trained = answer(TRAINING | {"n_gpus": "64", "tp": "8"} | told, files)
    assert trained["status"] == "ok"
    named = TRAINING | {"n_gpus": "64", "tp": "8", "model": "llama-3.1-70b"}
    assert float(trained["tokens_per_s_per_gpu"]) == pytest.approx(
        float(answer(named)["tokens_per_s_per_gpu"]), rel=0.02
    )


def test_a_quantized_config_is_served_in_its_format() -> None:
    quantized = LLAMA_CONFIG | {"quantization_config": {"quant_method": "fp8"}}
    files = {"config.json": json.dumps(quantized).encode()}
    row = SERVING | {"weight_precision": "", "config": "config.json"}
    stated = answer(row | {"weight_precision": "fp8"}, files)
    assert answer(row, files) == stated


def test_a_config_that_is_not_to_be_read_refuses_its_row_alone() -> None:
    row = SERVING | {"config": "config.json"}
    assert "no file is read here" in answer(row)["reason"]
    for content, reason in (
        (b"{", "not JSON"),
        (b'{"model_type": "mamba"}', "architecture 'mamba' is not known"),
    ):
        found = answer(row, {"config.json": content})
        assert found["status"] == "refused"
        assert reason in found["reason"]


def test_no_cell_of_a_table_stands_for_a_file() -> None:
    row = SERVING | {
        "config": "config.json",
        "content of config": json.dumps(LLAMA_CONFIG),
    }
    assert answer(row)["status"] == "refused"


@pytest.mark.parametrize("base", [SERVING, TRAINING])
@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (
            {"experts": "4", "experts_per_token": "8", "moe_ffn": "768"},
            "8 experts per token of 4",
        ),
        ({"heads": "16", "kv_heads": "32"}, "32 kv_heads of 16 heads"),
    ],
)
def test_an_impossible_shape_refuses_its_row_alone(
    base: dict[str, str], shape: dict[str, str], reason: str
) -> None:
    row = base | {"model": "odd", "layers": "48", "hidden": "2048"} | shape
    answer = answered(row)
    assert answer["status"] == "refused"
    assert answer["reason"] == reason


@pytest.mark.parametrize("hidden", range(1024, 16_385, 1024))
@pytest.mark.parametrize("tp", ["1", "2", "4", "8"])
def test_a_usual_shape_can_be_cut(hidden: int, tp: str) -> None:
    row = {"model": "odd", "layers": "8", "hidden": str(hidden), "tp": tp}
    answer = answered(SERVING | row)
    assert answer["status"] == "ok", answer["reason"]


def test_a_usual_mlp_is_that_of_the_first_llama() -> None:
    """11,008 of 4,096, 13,824 of 5,120 and 22,016 of 8,192 (arXiv:2302.13971, its config.json)."""
    for hidden, ffn in ((4096, 11_008), (5120, 13_824), (8192, 22_016)):
        shape = {"layers": "8", "hidden": str(hidden)}
        assert shaped_model(shape).ffn == ffn
