"""Plans with TensorRT-LLM: what its engine lacks is refused by name, and nothing is pretended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from planner.errors import SpecError
from planner.market.offer import Catalog
from planner.perf.serving.margin import engine_variance, has_own_errors
from planner.solve.serving.requirement import (
    other_precisions,
    serving_requirement,
)
from planner.spec.model import Inference
from tests.conftest import chat, find, only, present, spec_of

TRTLLM = "serving: {engine: tensorrt-llm}\n"
MOE = chat(
    model="deepseek-r1", precision="fp8", sla="ttft_p95: 9s", extra=TRTLLM
)


def precisions_of(model: str, precision: str) -> tuple[str, ...]:
    spec = spec_of(chat(model=model, precision=precision, extra=TRTLLM))
    assert isinstance(spec, Inference)
    requirement = serving_requirement(spec, lambda _: b"")
    # No smaller format is proposed that the engine would have to make.
    assert other_precisions(requirement) == ()
    return requirement.precisions


@pytest.mark.parametrize(
    ("model", "precision", "expected"),
    [
        ("llama-3.1-8b", "auto", ("bf16",)),
        ("llama-3.1-8b", "[fp8, bf16]", ("bf16",)),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "auto", ("fp8",)),
        ("deepseek-r1", "auto", ("fp8",)),
        ("gpt-oss-120b", "auto", ("mxfp4",)),
    ],
)
def test_weights_are_served_as_they_are_published(
    model: str, precision: str, expected: tuple[str, ...]
) -> None:
    assert precisions_of(model, precision) == expected


def test_a_format_that_would_have_to_be_made_is_refused() -> None:
    with pytest.raises(SpecError) as refused:
        precisions_of("llama-3.1-8b", "fp8")
    told = refused.value.problems[0]
    assert "tensorrt-llm" in told.message
    assert "bf16" in told.message
    assert told.next_step is not None
    assert "engine: vllm" in told.next_step


def test_a_cache_of_16_bits_beside_quantized_weights_is_refused() -> None:
    with pytest.raises(SpecError) as refused:
        precisions_of("deepseek-r1", "fp8, kv_precision: bf16")
    assert "cache of 16 bits" in refused.value.problems[0].message
    # Beside others it is what there is.
    assert precisions_of("llama-3.1-8b", "bf16, kv_precision: bf16")


def test_quantized_weights_have_a_small_cache(catalog: Catalog) -> None:
    [pool] = find(catalog, MOE, keep=0).pools
    layout = present(pool.layout)
    assert (layout.precision, layout.kv_precision) == ("fp8", "fp8")
    # Its release was measured with whole experts alone.
    assert layout.ep == layout.tp == 8


def test_a_machine_has_one_replica_over_all_of_its_accelerators(
    catalog: Catalog,
) -> None:
    four = only(catalog, lambda o: o.instance.accelerators == 4)
    for more, replicas in (("", {4, 2, 1}), (TRTLLM, {1})):
        [pool] = find(four, chat(extra=more), keep=0).pools
        layout = present(pool.layout)
        assert pool.instance.accelerators // layout.accelerators in replicas
    assert layout.accelerators == 4


def test_a_replica_over_machines_is_refused_and_the_next_step_is_named(
    tonnage: Callable[..., tuple[int, str, str]], here: Path
) -> None:
    hopper = "where: {accelerators: {allow: [h100-sxm]}}\n"
    (here / "s.yaml").write_text(MOE + hopper)
    code, shown, _ = tonnage("plan", "s.yaml")
    assert code == 10
    [line] = [one for one in shown.splitlines() if "serving.engine" in one]
    assert line.split()[1] == "vllm"
    # With that engine it is a replica over two machines.
    (here / "s.yaml").write_text(MOE.replace(TRTLLM, "") + hopper)
    code, shown, _ = tonnage("plan", "s.yaml")
    assert code == 0
    assert "2 x" in shown


def test_room_for_a_second_replica_is_refused_on_a_given_machine(
    tonnage: Callable[..., tuple[int, str, str]], here: Path
) -> None:
    (here / "s.yaml").write_text(chat(extra=TRTLLM))
    words = ("estimate", "s.yaml", "--on", "g6e.12xlarge")
    code, _, told = tonnage(*words, "--layout", "tp=1")
    assert code == 10
    assert "a server is one replica" in told
    assert tonnage(*words)[0] == 0


def test_its_margins_are_borrowed_and_the_plan_says_so(
    tonnage: Callable[..., tuple[int, str, str]], here: Path
) -> None:
    assert not has_own_errors("trtllm")
    assert engine_variance() > 0
    (here / "s.yaml").write_text(chat(extra=TRTLLM))
    code, shown, _ = tonnage("plan", "s.yaml")
    assert code == 0
    assert "! machines start tensorrt-llm, whose margins nobody" in shown
