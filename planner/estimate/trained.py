"""Predicts one training run: speed, time of a step, MFU and peak memory, each with its band."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from planner.estimate.answer import Answer, Number
from planner.estimate.names import RefusedError
from planner.estimate.training import job
from planner.perf.constant import constant
from planner.perf.memory import GIB
from planner.perf.train.band import half, rests
from planner.perf.train.coefficient import TRAINING, keys
from planner.perf.train.memory import activations, fuller, peak_gib
from planner.perf.train.mfu import mfu
from planner.perf.train.states import states
from planner.perf.train.step import step
from planner.perf.train.work import work

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.perf.train.job import Job

COLUMNS: Final = (
    "tokens_per_s_per_gpu",
    "step_time_s",
    "mfu_pct",
    "peak_mem_gib",
)
HOPELESS: Final = 1.5  # states over memory, beyond which no gradient format or offload explains it
ANALYTIC: Final = 18.0  # bytes of a parameter of mixed-precision Adam


def answer(table_row: Mapping[str, str]) -> Answer:
    """Predict a row; tokens of one accelerator a second, seconds, percent, GiB.

    Raises RefusedError when it cannot run.
    """
    parsed_job = job(table_row)
    training_job = parsed_job.job
    states_gib, memory_gib = (
        states(training_job).total / GIB,
        training_job.chip.memory_gib,
    )
    if states_gib > HOPELESS * memory_gib:
        raise RefusedError(
            f"does not fit: states take {states_gib:,.1f} of {memory_gib:,.1f} GiB on each"
        )
    step_work = work(training_job)
    step_time_s = step(step_work, TRAINING.select(keys(training_job))).total
    tokens_per_s = step_work.tokens / step_time_s
    half_width = half(training_job, assumed=parsed_job.is_assumed)
    return Answer(
        rests(training_job, assumed=parsed_job.is_assumed),
        {
            "tokens_per_s_per_gpu": _around(tokens_per_s, half_width),
            "step_time_s": _around(step_time_s, half_width),
            "mfu_pct": _around(
                100 * mfu(training_job, tokens_per_s), half_width
            ),
            "peak_mem_gib": _around(
                peak_gib(training_job),
                _memory(training_job, assumed=parsed_job.is_assumed),
            ),
        },
    )


def held(table_row: Mapping[str, str]) -> dict[str, Number]:
    """Predict a memory row of training: states, activations and the peak of the fuller stage."""
    memory_kind = (table_row.get("kind") or "").lower()
    if "percent" in memory_kind:
        raise RefusedError(
            "a share of a baseline whose sequence and batch are not stated"
        )
    if not (table_row.get("seq_len") and table_row.get("micro_batch")):
        raise RefusedError(
            "seq_len or micro_batch is missing: activations follow from them"
        )
    training_job = job(table_row).job
    if memory_kind.startswith("training_state"):
        return _analytic(training_job)
    state_bytes, peak_stage = states(training_job), fuller(training_job)
    peak_half_width, activation_bytes = (
        _memory(training_job, assumed=False),
        peak_stage.activations + peak_stage.working_set + peak_stage.logits,
    )
    return {
        "weights_gib_per_gpu": _around(
            state_bytes.weights / GIB, constant("train_memory", "states")
        ),
        "state_gib_per_gpu": _around(
            state_bytes.total / GIB, constant("train_memory", "states")
        ),
        "activation_gib_per_gpu": _around(
            activation_bytes / GIB, constant("train_memory", "activations")
        ),
        "peak_mem_gib": _around(peak_gib(training_job), peak_half_width),
    }


def _analytic(training_job: Job) -> dict[str, Number]:
    """States and activations of the layers alone, as formulas in papers count them."""
    parallel_layout, layer_params = (
        training_job.layout,
        12.0 * training_job.llm.layers * training_job.llm.hidden**2,
    )
    local_params_gib = (
        layer_params / (parallel_layout.tp * parallel_layout.pp) / GIB
    )
    states_half_width = constant("train_memory", "states")
    return {
        "weights_gib_per_gpu": _around(2 * local_params_gib, states_half_width),
        "state_gib_per_gpu": _around(
            ANALYTIC * local_params_gib, states_half_width
        ),
        "activation_gib_per_gpu": _around(
            activations(training_job) / GIB, states_half_width
        ),
    }


def _memory(training_job: Job, *, assumed: bool) -> float:
    """Half width of a peak in ln: narrow where it was measured."""
    is_measured = (
        training_job.software.is_torch
        and training_job.layout.pp == 1
        and not training_job.llm.experts
    )
    if assumed or training_job.layout.recompute == "forced":
        return constant("train_memory", "unstated")
    if training_job.frozen_bytes or training_job.software.counts_allocated:
        return constant("train_memory", "adapters")
    return constant("train_memory", "measured" if is_measured else "counted")


def _around(predicted: float, half_width: float) -> Number:
    return Number(
        predicted,
        predicted * math.exp(-half_width),
        predicted * math.exp(half_width),
    )
