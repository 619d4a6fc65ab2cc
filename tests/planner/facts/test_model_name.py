"""Names of models as people write them: which model they mean, and what they refuse."""

from __future__ import annotations

import csv
import json

import pytest

from planner.errors import MissingError, SpecError
from planner.estimate.names import resolve_model
from planner.facts import huggingface
from planner.facts.llm import find_model, models, unsized_models
from planner.facts.model_name import (
    architecture_names,
    compact_name,
    named_precision,
    other_model,
)
from planner.solve.serving.requirement import serving_requirement
from tests.conftest import ROOT, chat, spec_of


def unread(path: str) -> bytes:
    raise AssertionError(path)


def precisions(name: str, precision: str) -> tuple[str, ...]:
    spec = spec_of(chat(model=name, precision=precision))
    return serving_requirement(spec, unread).precisions  # type: ignore[arg-type]


# Ids of checkpoints on huggingface.co, with the architecture and the weights that they have.
PUBLISHED = [
    ("Qwen/Qwen2.5-32B-Instruct", "qwen2.5-32b", "bf16"),
    ("Qwen/Qwen2.5-32B-Instruct-AWQ", "qwen2.5-32b", "int4"),
    ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8", "qwen2.5-72b", "int8"),
    ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", "qwen2.5-72b", "int4"),
    ("Qwen/Qwen2.5-Coder-32B-Instruct", "qwen2.5-coder-32b", "bf16"),
    ("Qwen/Qwen3-32B-FP8", "qwen3-32b", "fp8"),
    ("Qwen/Qwen3-235B-A22B-Thinking-2507-FP8", "qwen3-235b-a22b", "fp8"),
    ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b", "bf16"),
    ("meta-llama/Meta-Llama-3.1-70B-Instruct", "llama-3.1-70b", "bf16"),
    ("meta-llama/Llama-3.1-405B-Instruct-FP8", "llama-3.1-405b", "fp8"),
    ("meta-llama/Llama-2-70b-chat-hf", "llama-2-70b", "bf16"),
    ("mistralai/Mistral-7B-Instruct-v0.1", "mistral-7b-v0.1", "bf16"),
    ("mistralai/Mistral-7B-Instruct-v0.2", "mistral-7b-v0.2", "bf16"),
    ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3", "bf16"),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b", "bf16"),
    ("TheBloke/Mixtral-8x7B-Instruct-v0.1-AWQ", "mixtral-8x7b", "int4"),
    ("nvidia/Llama-3.1-405B-Instruct-FP4", "llama-3.1-405b", "fp4"),
    (
        "RedHatAI/Llama-3.3-70B-Instruct-quantized.w8a8",
        "llama-3.3-70b",
        "int8",
    ),
    (
        "RedHatAI/Meta-Llama-3.1-70B-Instruct-FP8-dynamic",
        "llama-3.1-70b",
        "fp8",
    ),
    ("deepseek-ai/DeepSeek-V3-0324", "deepseek-r1", "fp8"),
    ("unsloth/DeepSeek-R1-BF16", "deepseek-r1", "bf16"),
    ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "llama-3.3-70b", "bf16"),
    ("openai/gpt-oss-120b", "gpt-oss-120b", "mxfp4"),
    ("google/gemma-3-27b-it", "gemma-3-27b", "bf16"),
]


@pytest.mark.parametrize(("name", "model", "precision"), PUBLISHED)
def test_ids_mean_the_same_in_specs_and_in_tables(
    name: str, model: str, precision: str
) -> None:
    for found in (find_model(name), resolve_model(name)):
        assert (found.model, found.precision) == (model, precision)


def test_no_name_means_two_models() -> None:
    path = ROOT / "planner" / "facts" / "data" / "models.csv"
    meant: dict[str, str] = {}
    for row in csv.DictReader(path.read_text().splitlines()):
        for name in (row["model"], *row["aliases"].split(";"), row["hf_name"]):
            if name:
                key = compact_name(name.split("/")[-1])
                assert meant.setdefault(key, row["model"]) == row["model"], name


def test_every_model_is_found_by_its_own_name_and_in_any_case() -> None:
    for name in models():
        assert find_model(name) == find_model(name.upper()) == models()[name]
    assert not models().keys() & unsized_models().keys()


def test_a_word_is_dropped_only_when_it_stands_alone() -> None:
    assert named_precision("awqward-7b") == ""
    assert named_precision("fp8/llama-3.1-8b") == ""
    assert "model" in architecture_names("model-it")
    assert "model-iteration" in architecture_names("model-iteration")
    assert "model" not in architecture_names("model-iteration")


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen2.5-33B-Instruct",
        "llama-3.1-8",
        "microsoft/Phi-3-mini-128k-instruct",
        "mistralai/Mistral-7B-Instruct-v0.9",
    ],
)
def test_another_model_is_not_taken_for_its_neighbor(name: str) -> None:
    with pytest.raises(MissingError) as caught:
        find_model(name)
    [problem] = caught.value.problems
    assert problem.code == "model"
    assert problem.next_step.startswith("did you mean")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("openai/whisper-large-v3", "a speech model"),
        ("openai/clip-vit-large-patch14", "a vision encoder"),
        ("google/siglip-so400m-patch14-384", "a vision encoder"),
        ("BAAI/bge-m3", "an embedding model"),
        ("intfloat/e5-mistral-7b-instruct", "an embedding model"),
        ("Qwen/Qwen3-Embedding-8B", "an embedding model"),
        ("BAAI/bge-reranker-v2-m3", "a reranking model"),
        ("Qwen/Qwen3-Reranker-8B", "a reranking model"),
        ("google-bert/bert-base-uncased", "an encoder of text"),
        ("stabilityai/stable-diffusion-3.5-large", "a diffusion model"),
        ("stabilityai/sdxl-turbo", "a diffusion model"),
        ("black-forest-labs/FLUX.1-dev", "a diffusion model"),
    ],
)
def test_models_that_write_no_text_are_refused_by_what_they_are(
    name: str, kind: str
) -> None:
    with pytest.raises(MissingError) as caught:
        find_model(name)
    [problem] = caught.value.problems
    assert problem.code == "unsupported-model"
    assert f"{name} is {kind}" in problem.message
    assert "tonnage models" in problem.next_step


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"model_type": "whisper"}, "a speech model"),
        ({"model_type": "clip"}, "a vision encoder"),
        ({"model_type": "vit_mae"}, "a vision encoder"),
        ({"model_type": "vits"}, "a speech model"),
        ({"model_type": "xlm-roberta"}, "an encoder of text"),
        ({"_class_name": "FluxTransformer2DModel"}, "a diffusion model"),
        ({"_class_name": "StableDiffusionPipeline"}, "a diffusion model"),
    ],
)
def test_configs_of_other_models_are_refused_by_what_they_are(
    config: dict[str, str], kind: str
) -> None:
    with pytest.raises(SpecError, match=kind) as caught:
        huggingface.parse_config(json.dumps(config).encode(), "config.json")
    assert caught.value.problems[0].code == "unsupported-model"


def test_no_known_model_is_refused_by_the_table_of_others() -> None:
    for name in {**models(), **unsized_models()}:
        assert other_model(name) is None


AWQ = "Qwen/Qwen2.5-32B-Instruct-AWQ"


@pytest.mark.parametrize(
    ("name", "precision", "wanted"),
    [
        (AWQ, "auto", ("int4",)),
        (AWQ, "int4", ("int4",)),
        (AWQ, "[fp8, int4]", ("int4",)),
        ("Qwen/Qwen3-32B-FP8", "auto", ("fp8",)),
        ("qwen2.5-32b", "auto", ("bf16", "fp8", "fp16")),
        ("qwen2.5-32b", "int4", ("int4",)),
        ("unsloth/DeepSeek-R1-BF16", "auto", ("bf16", "fp8", "fp16")),
    ],
)
def test_a_quantized_name_sets_the_precision(
    name: str, precision: str, wanted: tuple[str, ...]
) -> None:
    assert precisions(name, precision) == wanted


@pytest.mark.parametrize("precision", ["fp8", "bf16", "[bf16, fp8]"])
def test_a_precision_that_the_named_weights_do_not_have_is_refused(
    precision: str,
) -> None:
    with pytest.raises(SpecError) as caught:
        precisions(AWQ, precision)
    [problem] = caught.value.problems
    assert problem.code == "conflict"
    assert "has int4 weights" in problem.message
    assert problem.place is not None
    assert problem.place.line > 1
