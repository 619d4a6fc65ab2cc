"""Precisions that a spec allows, and those that may be advised beside them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from planner.errors import SpecError
from planner.facts.accelerator import SIXTEEN_BIT
from planner.facts.llm import models
from planner.solve.serving.requirement import (
    other_precisions,
    serving_requirement,
)
from planner.spec.model import Inference
from tests.conftest import chat, spec_of

if TYPE_CHECKING:
    from planner.solve.serving.requirement import ServingRequirement

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128_256,
}
AWQ = {"quant_method": "awq", "bits": 4}


def required(text: str, quantization: object = None) -> ServingRequirement:
    spec = spec_of(text)
    assert isinstance(spec, Inference)
    config = json.dumps({**LLAMA, "quantization_config": quantization})
    return serving_requirement(spec, lambda _: config.encode())


def beside(precision: str) -> str:
    """A spec whose model is a config.json beside it."""
    return chat(precision=precision).replace(
        "name: llama-3.1-8b", "config: config.json"
    )


@pytest.mark.parametrize(
    ("quantization", "allowed"),
    [
        (None, ("bf16", "fp8", "fp16")),
        (AWQ, ("int4",)),
        ({"quant_method": "gptq", "bits": 4}, ("int4",)),
        ({"quant_method": "fp8"}, ("fp8",)),
    ],
)
def test_weights_of_a_config_are_sized_in_their_own_format(
    quantization: object, allowed: tuple[str, ...]
) -> None:
    assert required(beside("auto"), quantization).precisions == allowed
    assert required(beside(f"[{allowed[0]}]"), quantization).precisions == (
        allowed[0],
    )


@pytest.mark.parametrize("precision", ["bf16", "fp8", "[bf16, fp8]"])
def test_a_format_that_the_weights_of_a_config_do_not_have_is_refused(
    precision: str,
) -> None:
    with pytest.raises(SpecError) as caught:
        required(beside(precision), AWQ)
    [problem] = caught.value.problems
    assert problem.code == "conflict"
    assert "config.json has int4 weights" in problem.message


def short(**words: str) -> str:
    """A spec with lengths that every model takes."""
    return (
        chat(**words)
        .replace("{mean: 900, p95: 3000}", "90")
        .replace("{mean: 200, p95: 600}", "20")
    )


# Those with entries of several tokens are served by no release that machines start.
SERVED = [name for name, llm in models().items() if not llm.has_entries]


@pytest.mark.parametrize("name", sorted(models().keys() - set(SERVED)))
def test_what_no_engine_serves_is_refused_with_the_engine(name: str) -> None:
    for engine in ("vllm", "sglang", "tensorrt-llm"):
        made = short(model=name, extra=f"serving: {{engine: {engine}}}")
        with pytest.raises(SpecError, match=f"{engine} cannot serve {name}"):
            required(made)


@pytest.mark.parametrize("name", [*SERVED, "Qwen/Qwen3-32B-AWQ"])
def test_what_is_advised_can_be_written_and_is_then_allowed(name: str) -> None:
    """Quantized weights stay as they are: nothing is advised for them."""
    now = required(short(model=name))
    advised = other_precisions(now)
    if now.llm.precision not in SIXTEEN_BIT:
        assert advised == ()
        return
    # auto has fp8 already.
    assert advised == ("int4",)
    assert other_precisions(required(short(model=name, precision="bf16"))) == (
        "fp8",
        "int4",
    )
    for precision in advised:
        more = required(short(model=name, precision=f"[auto, {precision}]"))
        assert more.precisions == (*now.precisions, precision)
