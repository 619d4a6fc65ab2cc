"""Predicts one training run: speed, time of a step, MFU and peak memory, each with its band."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from planner.estimate.cell import Row, read_cell
from planner.estimate.inference import BandedValue, Estimate
from planner.estimate.names import RefusedError
from planner.estimate.training_row import parse_job
from planner.perf.common.constant import constant
from planner.perf.training.coefficients import training_coefficients
from planner.perf.training.error_band import half_width_ln, prediction_basis
from planner.perf.training.memory import (
    activation_total,
    exceeds_memory,
    forced_stage,
    peak_gib,
    peak_half_width_ln,
    reserved_gib,
)
from planner.perf.training.mfu import mfu
from planner.perf.training.model_states import model_states
from planner.perf.training.step import step_time
from planner.perf.training.work import rank_work
from planner.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from planner.perf.training.job import Job

COLUMNS: Final = (
    "tokens_per_s_per_gpu",
    "step_time_s",
    "mfu_pct",
    "peak_mem_gib",
)
STATE_KIND: Final = "training_state_activation"
MEMORY_KINDS: Final = ("training_peak", STATE_KIND)  # of tables of memory
# States over memory, beyond which no gradient format or offload explains it.
STATES_LIMIT: Final = 1.5
ADAM_BYTES: Final = 18.0  # bytes of a parameter of mixed-precision Adam


def predict_training(table_row: Row) -> Estimate:
    """Predict a row; tokens of one accelerator a second, seconds, percent, GiB.

    Raises RefusedError when it cannot run.
    """
    parsed_job = parse_job(table_row)
    training_job = parsed_job.job
    states_gib = model_states(training_job).total / BYTES_PER_GIB
    memory_gib = training_job.chip.memory_gib
    if states_gib > STATES_LIMIT * memory_gib:
        raise RefusedError(
            f"does not fit: states take {states_gib:,.1f} of {memory_gib:,.1f} GiB on each"
        )
    step_work = rank_work(training_job)
    step_time_s = step_time(
        step_work, training_coefficients(training_job)
    ).total
    tokens_per_s = step_work.tokens / step_time_s
    half_width = half_width_ln(training_job, assumed=parsed_job.is_assumed)
    return Estimate(
        prediction_basis(training_job, assumed=parsed_job.is_assumed),
        {
            "tokens_per_s_per_gpu": _log_band(tokens_per_s, half_width),
            "step_time_s": _log_band(step_time_s, half_width),
            "mfu_pct": _log_band(
                100 * mfu(training_job, tokens_per_s), half_width
            ),
            "peak_mem_gib": _log_band(
                peak_gib(training_job),
                peak_half_width_ln(training_job, assumed=parsed_job.is_assumed),
            ),
        },
        _memory_doubt(training_job, assumed=parsed_job.is_assumed),
    )


def _memory_doubt(training_job: Job, *, assumed: bool) -> str:
    """Return by how much a job is counted beyond memory, or nothing where it fits.

    It is no refusal: published runs of XLA, which decides what it keeps, and of hybrids took less
    than is counted. Of others the lower end of the band is sure not to fit.
    """
    if not exceeds_memory(training_job):
        return ""
    memory_gib = training_job.chip.memory_gib
    counted_gib = reserved_gib(forced_stage(training_job))
    half_width = peak_half_width_ln(training_job, assumed=assumed)
    is_sure = (
        training_job.software.kernels != "xla"
        and not training_job.llm.state_layers
        and counted_gib * math.exp(-half_width) > memory_gib
    )
    recomputed = (
        ", with all layers recomputed"
        if training_job.layout.recompute in ("forced", "full")
        else ""
    )
    return (
        f"{'does' if is_sure else 'may'} not fit: counted at {counted_gib:,.1f} "
        f"of {memory_gib:,.1f} GiB on each{recomputed}"
    )


def training_memory(table_row: Row) -> Estimate:
    """Predict a memory row of training: states, activations and the peak of the fuller stage."""
    if not (
        read_cell(table_row, "seq_len") and read_cell(table_row, "micro_batch")
    ):
        raise RefusedError(
            "seq_len or micro_batch is missing: activations follow from them"
        )
    training_job = parse_job(table_row).job
    if read_cell(table_row, "kind").lower() == STATE_KIND:
        return Estimate("physics", _analytic_memory(training_job))
    state_bytes = model_states(training_job)
    peak_stage = forced_stage(training_job)
    peak_half_width = peak_half_width_ln(training_job, assumed=False)
    activation_bytes = (
        peak_stage.activations + peak_stage.working_set + peak_stage.logits
    )
    memory_columns = {
        "weights_gib_per_gpu": _log_band(
            state_bytes.weights / BYTES_PER_GIB,
            constant("train_memory", "states"),
        ),
        "state_gib_per_gpu": _log_band(
            state_bytes.total / BYTES_PER_GIB,
            constant("train_memory", "states"),
        ),
        "activation_gib_per_gpu": _log_band(
            activation_bytes / BYTES_PER_GIB,
            constant("train_memory", "activations"),
        ),
        "peak_mem_gib": _log_band(peak_gib(training_job), peak_half_width),
    }
    return Estimate(
        "physics", memory_columns, _memory_doubt(training_job, assumed=False)
    )


def _analytic_memory(training_job: Job) -> dict[str, BandedValue]:
    """States and activations of the layers alone, as formulas in papers count them."""
    parallel_layout = training_job.layout
    layer_params = 12.0 * training_job.llm.layers * training_job.llm.hidden**2
    local_params_gib = (
        layer_params / (parallel_layout.tp * parallel_layout.pp) / BYTES_PER_GIB
    )
    states_half_width = constant("train_memory", "states")
    return {
        "weights_gib_per_gpu": _log_band(
            2 * local_params_gib, states_half_width
        ),
        "state_gib_per_gpu": _log_band(
            ADAM_BYTES * local_params_gib, states_half_width
        ),
        "activation_gib_per_gpu": _log_band(
            activation_total(training_job) / BYTES_PER_GIB, states_half_width
        ),
    }


def _log_band(predicted: float, half_width: float) -> BandedValue:
    return BandedValue(
        predicted,
        predicted * math.exp(-half_width),
        predicted * math.exp(half_width),
    )
