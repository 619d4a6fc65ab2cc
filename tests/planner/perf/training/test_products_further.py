"""Work of trainings that learn further tokens (MTP), against published runs with and without."""

from __future__ import annotations

import pytest

from planner.facts.accelerator import accelerators
from planner.facts.further_prediction import with_further_predictions
from planner.facts.llm import find_model
from planner.perf.training.coefficients import training_coefficients
from planner.perf.training.job import Job, ParallelLayout, Software
from planner.perf.training.mfu import flop_per_token
from planner.perf.training.step import step_time
from planner.perf.training.work import rank_work

NAMES = (
    "llama-3.1-8b",
    "qwen3-30b-a3b",
    "deepseek-v3",
    "nemotron-3-nano-30b-a3b",
    "nemotron-3-super-120b-a12b",
)


def job(name: str, count: int, layout: ParallelLayout, precision: str) -> Job:
    return Job(
        llm=with_further_predictions(find_model(name), count),
        chip=accelerators()["gb200"],
        layout=layout,
        software=Software(precision=precision, parts_captured=True),
        sequence_tokens=8192,
        global_batch=512.0,
        network_bytes_s=50e9,
    )


def products(name: str, count: int, layout: ParallelLayout) -> float:
    """FLOP of all products of a forward pass on all stages, where the last one has the head."""
    work = rank_work(job(name, count, layout, "mxfp8"))
    return (
        work.stage_count * (work.gemm_flop + work.expert_flop) + work.head_flop
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [1, 2])
def test_a_module_takes_two_flop_for_each_parameter(
    name: str, count: int
) -> None:
    layout = ParallelLayout(dp=8)
    one = find_model(name)
    more = with_further_predictions(one, count)
    added = products(name, count, layout) - products(name, 0, layout)
    tokens = job(name, count, layout, "bf16").micro_tokens
    assert added == pytest.approx(
        2 * tokens * (more.active_params - one.active_params), rel=0.01
    )


@pytest.mark.parametrize("name", NAMES)
def test_no_further_token_changes_no_work(name: str) -> None:
    layout = ParallelLayout(dp=8)
    plain = job(name, 0, layout, "mxfp8")
    assert rank_work(plain) == rank_work(plain._replace(llm=find_model(name)))


def step_s(name: str, count: int, layout: ParallelLayout) -> float:
    job_of_count = job(name, count, layout, "mxfp8")
    return float(
        step_time(
            rank_work(job_of_count), training_coefficients(job_of_count)
        ).total
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "layout", [ParallelLayout(dp=8), ParallelLayout(tp=2, pp=4)]
)
def test_each_further_token_takes_more_time(
    name: str, layout: ParallelLayout
) -> None:
    times_s = [step_s(name, count, layout) for count in range(4)]
    assert times_s == sorted(set(times_s))


def test_two_runs_that_differ_in_modules_alone() -> None:
    """Nemotron 3.5 Lightning and 3 Nano on 8 GB200: 28,672 and 34,816 tokens/s.

    The recipe of Lightning is that of Nano with two further tokens (Megatron-Bridge 26.08
    src/megatron/bridge/perf_recipes/nemotronh/gb200/nemotronh.py), and its layers are those.
    """
    layout = ParallelLayout(dp=8, ep=8, micro=2)
    ratio = step_s("nemotron-3-nano-30b-a3b", 0, layout) / step_s(
        "nemotron-3.5-lightning", 2, layout
    )
    assert ratio == pytest.approx(28_672 / 34_816, rel=0.03)


def test_flop_of_a_token_grow_as_published() -> None:
    """DeepSeek-V3 in Megatron-Bridge 25.11, with a module and without.

    557 TFLOP/s at 2,139 tokens/s on B200, and 961 at 3,848 on GB300.
    """
    layout = ParallelLayout(dp=8)
    with_module, without = (
        flop_per_token(
            job("deepseek-v3", count, layout, "mxfp8")._replace(
                sequence_tokens=4096
            )
        )
        for count in (1, 0)
    )
    # The makers count half of the attention of a sequence, and round.
    assert with_module - without == pytest.approx(
        557e12 / 2139 - 961e12 / 3848, rel=0.05
    )
