"""Layouts that a framework can run, judged by the conditions in its own source."""

from __future__ import annotations

import pytest

from planner.facts.accelerator import accelerators as all_accelerators
from planner.facts.llm import find_model
from planner.perf.training.enumeration import (
    cut_families,
    expand_cut,
    least_bubbles,
)
from planner.perf.training.framework import frameworks
from planner.perf.training.job import Job, ParallelLayout


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


def interleaved(framework: str, batch: int, pp: int) -> set[tuple[int, int]]:
    """The micro-batches of a step and the stages of layouts in which chunks take turns."""
    cut = ParallelLayout(pp=pp)
    job = Job(
        llm=find_model("llama-3.1-70b"),
        chip=all_accelerators()["h100-sxm"],
        layout=cut,
        software=frameworks()[framework].software("bf16"),
        sequence_tokens=8192,
        global_batch=float(batch),
        network_bytes_s=50e9,
    )
    layouts = [*expand_cut(job, cut)]
    # The bound of a search knows the same numbers of chunks.
    assert {(x.micro, x.vpp) for x in layouts} >= {*least_bubbles(job, cut)}
    return {(batch // int(x.micro), pp) for x in layouts if x.vpp > 1}


def test_a_pipeline_of_torchtitan_has_rounds_of_one_size() -> None:
    """ScheduleInterleaved1F1B of PyTorch: what it starts with, and what it refuses."""

    def starts(micro_batches: int, pp: int) -> bool:
        return micro_batches % max(1, micro_batches // pp) == 0

    cases = [(batch, pp) for batch in range(2, 40) for pp in (2, 4, 5, 8)]
    titan, megatron = (
        set().union(*(interleaved(name, *case) for case in cases))
        for name in ("torchtitan", "megatron")
    )
    assert titan == {case for case in megatron if starts(*case)}
    assert titan < megatron
