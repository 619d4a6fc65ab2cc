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


def answer(row: Mapping[str, str]) -> Answer:
    """Predict a row; tokens of one accelerator a second, seconds, percent, GiB.

    Raises RefusedError when it cannot run.
    """
    read = job(row)
    made = read.job
    held, have = states(made).total / GIB, made.chip.memory_gib
    if held > HOPELESS * have:
        raise RefusedError(
            f"does not fit: states take {held:,.1f} of {have:,.1f} GiB on each"
        )
    done = work(made)
    seconds = step(done, TRAINING.at(keys(made))).total
    speed = done.tokens / seconds
    wide = half(made, assumed=read.assumed)
    return Answer(
        rests(made, assumed=read.assumed),
        {
            "tokens_per_s_per_gpu": _around(speed, wide),
            "step_time_s": _around(seconds, wide),
            "mfu_pct": _around(100 * mfu(made, speed), wide),
            "peak_mem_gib": _around(
                peak_gib(made), _memory(made, assumed=read.assumed)
            ),
        },
    )


def held(row: Mapping[str, str]) -> dict[str, Number]:
    """Predict a memory row of training: states, activations and the peak of the fuller stage."""
    kind = (row.get("kind") or "").lower()
    if "percent" in kind:
        raise RefusedError(
            "a share of a baseline whose sequence and batch are not stated"
        )
    if not (row.get("seq_len") and row.get("micro_batch")):
        raise RefusedError(
            "seq_len or micro_batch is missing: activations follow from them"
        )
    made = job(row).job
    if kind.startswith("training_state"):
        return _analytic(made)
    found, peak = states(made), fuller(made)
    wide, live = (
        _memory(made, assumed=False),
        peak.activations + peak.work + peak.logits,
    )
    return {
        "weights_gib_per_gpu": _around(
            found.weights / GIB, constant("train_memory", "states")
        ),
        "state_gib_per_gpu": _around(
            found.total / GIB, constant("train_memory", "states")
        ),
        "activation_gib_per_gpu": _around(
            live / GIB, constant("train_memory", "activations")
        ),
        "peak_mem_gib": _around(peak_gib(made), wide),
    }


def _analytic(made: Job) -> dict[str, Number]:
    """States and activations of the layers alone, as formulas in papers count them."""
    s, layers = made.spread, 12.0 * made.llm.layers * made.llm.hidden**2
    own = layers / (s.tp * s.pp) / GIB
    exact = constant("train_memory", "states")
    return {
        "weights_gib_per_gpu": _around(2 * own, exact),
        "state_gib_per_gpu": _around(ANALYTIC * own, exact),
        "activation_gib_per_gpu": _around(activations(made) / GIB, exact),
    }


def _memory(made: Job, *, assumed: bool) -> float:
    """Half width of a peak in ln: narrow where it was measured."""
    measured = (
        made.software.torch and made.spread.pp == 1 and not made.llm.experts
    )
    if assumed or made.spread.recompute == "forced":
        return constant("train_memory", "unstated")
    if made.frozen or made.software.allocated:
        return constant("train_memory", "adapters")
    return constant("train_memory", "measured" if measured else "counted")


def _around(value: float, wide: float) -> Number:
    return Number(value, value * math.exp(-wide), value * math.exp(wide))
