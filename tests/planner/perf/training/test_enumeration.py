"""Layouts that a framework can run, judged by the conditions in its own source."""

from __future__ import annotations

import pytest

from planner.facts.llm import find_model
from planner.perf.training.enumeration import cut_families
from planner.perf.training.job import ParallelLayout


def cuts(model: str, accelerators: int, sequence: int) -> list[ParallelLayout]:
    families = cut_families(
        find_model(model),
        1024.0,
        sequence,
        accelerators,
        8,
        framework_name="torchtitan",
    )
    return [cut for family in families for cut in family.cut_layouts]


@pytest.mark.parametrize("accelerators", [8, 24, 64])
@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "deepseek-v3"])
def test_expert_parallelism_of_torchtitan_is_one_that_it_starts_with(
    model: str, accelerators: int
) -> None:
    """torchtitan 0.2.0 and 0.2.1, distributed/parallel_dims.py, where etp is 1."""
    experts = find_model(model).experts
    found = cuts(model, accelerators, 16_384)
    for cut in found:
        assert cut.tp * cut.pp * cut.cp * cut.dp == accelerators
        if cut.ep == 1:
            continue
        assert cut.ep % (cut.cp * cut.tp) == 0
        assert (cut.dp * cut.cp * cut.tp) % cut.ep == 0
        # Its experts are cut by their number: `num_experts // ep_degree` on each rank.
        assert experts % cut.ep == 0
    assert {cut.ep for cut in found if cut.tp == 1} >= {1, 2, 4, 8}
    assert any(cut.ep > 1 and cut.tp > 1 and cut.cp > 1 for cut in found)


def test_a_model_without_experts_has_no_expert_parallelism() -> None:
    assert {cut.ep for cut in cuts("llama-3.1-8b", 64, 16_384)} == {1}
