"""Experts in a precision of their own: between a run in one precision and one in the other."""

from __future__ import annotations

import itertools

import pytest

from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model
from planner.perf.training.coefficients import training_coefficients
from planner.perf.training.error_band import half_width_ln
from planner.perf.training.framework import frameworks
from planner.perf.training.job import Job, ParallelLayout
from planner.perf.training.memory import peak_gib
from planner.perf.training.step import StepTime, step_time
from planner.perf.training.work import rank_work

PRECISIONS = ("bf16", "fp8", "mxfp8", "nvfp4")
# Parts of a step that experts have no share in.
OF_ALL_ELSE = ("products", "attention", "traffic", "tensor_comm", "head")


def job(
    precision: str, expert_precision: str = "", model: str = "deepseek-v3"
) -> Job:
    return Job(
        llm=find_model(model),
        chip=accelerators()["b200-sxm"],
        layout=ParallelLayout(tp=2, pp=8, ep=8, dp=16),
        software=frameworks()["megatron"].software(precision, expert_precision),
        sequence_tokens=4096,
        global_batch=1024.0,
        network_bytes_s=50e9,
        network_latency_s=30e-6,
    )


def seconds(asked: Job) -> StepTime:
    return step_time(rank_work(asked), training_coefficients(asked))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_precision_of_all_is_no_other_one(precision: str) -> None:
    assert job(precision, precision) == job(precision)


@pytest.mark.parametrize(
    ("precision", "of_experts"), list(itertools.permutations(PRECISIONS, 2))
)
def test_each_product_takes_the_time_of_its_own_precision(
    precision: str, of_experts: str
) -> None:
    mixed = seconds(job(precision, of_experts))
    alone, other = seconds(job(precision)), seconds(job(of_experts))
    assert mixed.expert_products == pytest.approx(other.expert_products)
    for part in OF_ALL_ELSE:
        if part != "tensor_comm" or "bf16" not in (precision, of_experts):
            assert getattr(mixed, part) == pytest.approx(getattr(alone, part))


@pytest.mark.parametrize(
    ("precision", "of_experts"), list(itertools.permutations(PRECISIONS, 2))
)
def test_a_mix_quantizes_and_keeps_what_both_halves_do(
    precision: str, of_experts: str
) -> None:
    """What experts take in one mix, others take in the one with both exchanged."""
    mixed, exchanged = job(precision, of_experts), job(of_experts, precision)
    alone, other = job(precision), job(of_experts)

    def quantizing(asked: Job) -> float:
        return seconds(asked).quantization

    assert quantizing(mixed) + quantizing(exchanged) == pytest.approx(
        quantizing(alone) + quantizing(other)
    )
    assert peak_gib(mixed) + peak_gib(exchanged) == pytest.approx(
        peak_gib(alone) + peak_gib(other)
    )


def test_a_mix_that_nobody_measured_is_slower_and_wider() -> None:
    model = "qwen3-30b-a3b"
    plain, mixed = job("bf16", "", model), job("bf16", "nvfp4", model)
    slower = (
        training_coefficients(mixed).unlike
        / training_coefficients(plain).unlike
    )
    assert slower > 1
    assert half_width_ln(mixed) > half_width_ln(plain)
