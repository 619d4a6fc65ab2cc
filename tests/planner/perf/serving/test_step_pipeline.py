"""Stages of a pipeline against a played one: each micro-batch passes stage after stage."""

from __future__ import annotations

import statistics
from itertools import count

import pytest

from planner.facts.llm import find_model
from planner.perf.common.layout import ReplicaLayout
from planner.perf.serving.coefficients import SERVING
from planner.perf.serving.engine import coefficient_keys, find_engine
from planner.perf.serving.step import (
    StepTimes,
    decode_time,
    p_norm,
    step_times,
)
from planner.perf.serving.work import profile_replica
from tests.accuracy.kept_apart import ratios
from tests.accuracy.over_pcie import TABLE
from tests.planner.perf.test_serving import node

ATTENTION_S = 2e-6  # of one sequence, over all layers


def times(pp: int, model: str = "llama-3.3-70b") -> StepTimes:
    layout = ReplicaLayout(precision="fp8", kv_precision="bf16", tp=1, pp=pp)
    machine = node("h200-sxm")
    return step_times(
        profile_replica(find_model(model), layout, machine),
        SERVING.select(
            coefficient_keys(layout, machine, find_engine("trtllm")), 2026.0
        ),
    )


def played_s(stage_s: list[float], micro_batches: int) -> float:
    """Seconds between two tokens of a sequence, where a stage has one micro-batch at a time."""
    free_s = [0.0] * len(stage_s)
    ready_s = [0.0] * micro_batches
    rounds = 200
    for turn in count():
        for micro_batch in range(micro_batches):
            for stage, busy_s in enumerate(stage_s):
                start_s = max(ready_s[micro_batch], free_s[stage])
                free_s[stage] = ready_s[micro_batch] = start_s + busy_s
        if turn == rounds:
            halfway_s = max(ready_s)
        if turn == 2 * rounds:
            return (max(ready_s) - halfway_s) / rounds
    raise AssertionError


@pytest.mark.parametrize("pp", [1, 2, 4, 8])
@pytest.mark.parametrize("batch", [1, 2, 3, 8, 64, 1000])
def test_a_token_takes_what_a_played_pipeline_takes(
    pp: int, batch: int
) -> None:
    found = times(pp)
    micro_batches = min(batch, pp)
    sequences = max(batch / pp, 1.0)
    # One stage of all layers takes for a micro-batch what all stages take that share them.
    whole = times(1)
    last_s = sequences * whole.sequence_s + p_norm(
        whole.read_head_s,
        whole.flop_head_s * sequences,
        whole.overlap_exponent,
    )
    even_s = decode_time(whole, sequences, ATTENTION_S) - last_s
    even_s += found.fixed_s - whole.fixed_s - whole.scheduler_s
    stages = [even_s / pp + whole.scheduler_s] * pp
    stages[-1] += last_s
    assert decode_time(found, batch, ATTENTION_S) == pytest.approx(
        played_s(stages, micro_batches), rel=1e-6
    )


@pytest.mark.parametrize(
    ("model", "stages", "most"),
    [("llama-3.3-70b", (2, 4, 8), 0.05), ("qwen3-30b-a3b", (2, 4), 0.1)],
)
def test_published_pipelines_err_as_one_accelerator_does(
    model: str, stages: tuple[int, ...], most: float
) -> None:
    """The same tables, releases and prompts: what stages cost is all that differs."""
    samples = [
        sample
        for sample in TABLE.read()
        if sample.row["model"] == model
        and sample.row["framework_version"] == "1.2.0"
    ]
    ratio_of = {
        (
            int(sample.row["pp"]),
            sample.row["input_len"],
            sample.row["output_len"],
        ): ratio
        for sample, ratio in zip(samples, ratios(samples), strict=True)
    }
    for pp in stages:
        grown = [
            ratio - ratio_of[1, prompt, answer]
            for (parts, prompt, answer), ratio in ratio_of.items()
            if parts == pp and (1, prompt, answer) in ratio_of
        ]
        assert abs(statistics.fmean(grown)) < most
