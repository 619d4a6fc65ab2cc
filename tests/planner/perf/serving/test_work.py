"""Bytes and collectives of a step, counted by hand."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from planner.facts.llm import find_model
from planner.perf.common.layout import ReplicaLayout
from planner.perf.serving.work import ReplicaProfile, profile_replica
from tests.planner.perf.test_serving import node


def profile(model: str, tp: int) -> ReplicaProfile:
    layout = ReplicaLayout(precision="bf16", kv_precision="bf16", tp=tp)
    return profile_replica(find_model(model), layout, node("h100-sxm"))


@pytest.mark.parametrize(
    ("model", "reduces", "wide"),
    [
        # After attention and after the MLP.
        ("llama-3.3-70b", 2 * 80, 2 * 80),
        # Attention and MLP begin at one norm, and are added before they are reduced.
        ("falcon-40b", 60, 60),
        # A layer is a state-space part, attention or experts.
        ("nemotron-h-56b", 118, 118),
        # Variances of queries and keys over all heads: two numbers of a token.
        ("minimax-m2.5", 3 * 62, 2 * 62),
    ],
)
def test_a_layer_reduces_as_often_as_its_architecture_says(
    model: str, reduces: int, wide: int
) -> None:
    llm = find_model(model)
    found = profile(model, 4)
    assert found.reduce_count == reduces
    # A rank of a ring sends 2 * 3 / 4 of the 16-bit numbers of each hidden state.
    assert found.reduce_bytes == pytest.approx(wide * llm.hidden * 2 * 1.5)


def test_a_rank_alone_reduces_nothing() -> None:
    alone = profile("falcon-7b", 1)
    assert (alone.reduce_count, alone.reduce_bytes) == (0, 0)


def test_a_model_that_says_nothing_reduces_twice_in_a_layer() -> None:
    llm = find_model("llama-3.3-70b")
    layout = ReplicaLayout(precision="bf16", kv_precision="bf16", tp=2)
    machine = node("h100-sxm")
    assert profile_replica(llm, layout, machine) == profile_replica(
        replace(llm, layer_reduces=2), layout, machine
    )
