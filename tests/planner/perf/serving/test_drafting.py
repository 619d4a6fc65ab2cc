"""Speculative decoding: what is published of it, and what it does to a replica."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from planner.errors import SpecError
from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model
from planner.perf.common.layout import Node, ReplicaLayout
from planner.perf.serving.drafting import (
    draft_rows,
    drafting,
    find_draft,
    known_methods,
)
from planner.perf.serving.load import LengthDistribution, ServingLoad
from planner.perf.serving.replica import Replica
from planner.perf.serving.step import speculate
from planner.solve.serving.requirement import serving_requirement
from planner.spec.model import Inference
from planner.units import BYTES_PER_GIB
from tests.conftest import chat, present, spec_of

LOAD = ServingLoad(
    prompt_lengths=LengthDistribution(mean_tokens=1000, p95_tokens=3000),
    answer_lengths=LengthDistribution(mean_tokens=200, p95_tokens=600),
)
LAYOUT = ReplicaLayout(precision="fp8", kv_precision="bf16", tp=2)


def node(chip: str = "h100-sxm", count: int = 8) -> Node:
    accelerator = accelerators()[chip]
    return Node(
        accelerator=accelerator,
        accelerator_count=count,
        memory_gib=accelerator.memory_gib,
        compute_fraction=1.0,
        scaleup_link=accelerator.link,
        network_gb_s=100.0,
    )


def replica(acceptance: float | None) -> Replica:
    model = find_model("llama-3.3-70b")
    row = present(find_draft("eagle3", model, "llama-3.3-70b"))
    guesses = None if acceptance is None else drafting(row, acceptance)
    return Replica(model, LAYOUT, node(), replace(LOAD, drafting=guesses))


def test_an_acceptance_gives_the_published_tokens_of_a_step() -> None:
    for row in draft_rows():
        if row.acceptance is None:
            assert row.method == "ngram"
            continue
        guesses = present(row.measured_tokens)
        tokens = speculate(guesses, row.acceptance).tokens_per_step
        assert tokens == pytest.approx(present(row.tokens_per_step))


def test_a_draft_is_of_the_weights_that_it_was_trained_for() -> None:
    model = find_model("llama-3.3-70b")
    named = "meta-llama/Llama-3.3-70B-Instruct"
    assert known_methods(model, named) == ("eagle3", "ngram")
    # The same architecture with other weights, which it was not trained for.
    assert known_methods(model, "deepseek-r1-distill-llama-70b") == ("ngram",)
    assert known_methods(find_model("deepseek-r1"), "deepseek-r1") == (
        "mtp",
        "ngram",
    )


def test_a_draft_takes_its_weights_and_a_layer_of_the_cache() -> None:
    plain, guessing = replica(None), replica(0.7)
    row = present(find_draft("eagle3", plain.llm, "llama-3.3-70b"))
    draft_gib = row.params_b * 1e9 * 2 / 2 / BYTES_PER_GIB
    memory, alone = guessing.startup_memory, plain.startup_memory
    assert memory.weights_gib - alone.weights_gib == pytest.approx(draft_gib)
    assert memory.kv_gib == pytest.approx(
        (alone.kv_gib - draft_gib) * 80 / 81, rel=1e-6
    )
    assert guessing.max_batch < plain.max_batch


def test_its_gain_shrinks_with_the_batch_and_without_right_guesses() -> None:
    plain, guessing, wrong = replica(None), replica(0.7), replica(0.01)
    gains = [
        plain.tpot(batch_size) / guessing.tpot(batch_size)
        for batch_size in (1, 16, 64, 200)
    ]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 1.5
    assert wrong.tpot(1) > plain.tpot(1)


def test_a_method_without_a_known_draft_is_refused_by_name() -> None:
    spec = spec_of(chat(extra="serving: {speculation: mtp}\n"))
    assert isinstance(spec, Inference)
    with pytest.raises(SpecError, match="no draft of mtp is known"):
        serving_requirement(spec, lambda _: b"")
