"""Fits the coefficients: robust least squares on log ratios, shrunk to priors. Deterministic.

`python -m tests.accuracy.fit` rewrites the values of the coefficient table, the bands and the
margins.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from planner.perf.serving import load_shape
from planner.perf.serving.coefficients import SERVING
from planner.perf.serving.prompt import prompt_busy_time, prompt_latency
from planner.perf.serving.step import step_times
from tests.accuracy.least import Array, Problem, priors, save, solve
from tests.accuracy.sample import Batch

if TYPE_CHECKING:
    from planner.perf.serving.coefficients import Coefficients

SOFT: Final = 0.08  # log ratio beyond which an error counts linearly
WEIGHT: Final = {"A": 1.0, "B": 0.15}
COLD_TIMES: Final = 1.5
COLD_S: Final = 0.5
# Rows of a cell are worth their number to the power of 1 - this.
SHARED: Final = 0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """Logarithm of predicted over measured for each row; NaN where nothing was measured."""

    throughput: Array
    tpot: Array
    ttft: Array


@dataclass(frozen=True, slots=True)
class Predicted:
    """Predictions for each row; a group that has none of a number holds NaN there."""

    throughput: Array
    tpot: Array
    ttft: Array


def server(batch: Batch, c: Coefficients) -> load_shape.ReplicaRates:
    """The replica of each row; prefill workers of their own serve all replicas."""
    own = step_times(batch.terms, c, batch.draft)
    ahead = step_times(batch.ahead, c)
    shared = (
        prompt_busy_time(ahead, batch.prompt) * batch.replicas / batch.workers
    )
    split = batch.split > 0
    sent = load_shape.kv_transfer_time(batch.terms, c, batch.prompt)
    kept: Array = np.where(np.isnan(batch.kept), c.reserve_gib, batch.kept)
    room = load_shape.memory_capacity(
        batch.terms,
        c,
        batch.pool_rule,
        kept,
        load_shape.TokenCounts(batch.prompt, batch.answer),
    )
    prompt_busy: Array = np.where(
        split, shared, prompt_busy_time(own, batch.prompt)
    )
    idle_prompt: Array = np.where(
        split,
        prompt_latency(ahead, batch.prompt) + sent,
        prompt_latency(own, batch.prompt),
    )
    interference: Array = np.where(split, 0.0, c.interference)
    return load_shape.ReplicaRates(
        step_times=own,
        coefficients=c,
        prompt_tokens=batch.prompt,
        answer_tokens=batch.answer,
        max_batch=np.maximum(np.minimum(room, batch.limit), 1.0),
        prompt_busy_s=prompt_busy,
        idle_prompt_s=idle_prompt,
        interference_share=interference,
        serial_share=1.0 - batch.split,
        message_tokens=batch.message,
        budget_tokens=batch.budget,
    )


def predict(batch: Batch, parameters: Array) -> Predicted:
    """Predict every row with one vector of parameters, or with each of a stack of them.

    Open loops are taken at the measured batch (Little's law), where time per token is well
    conditioned: near saturation a small error of capacity multiplies.
    """
    c = batch.coefficients(parameters)
    s = server(batch, c)
    loop = load_shape.closed_latency(s, batch.users)
    seen = (
        batch.rate * batch.answer * np.where(batch.tpot > 0, batch.tpot, 1e-3)
    )
    step = c.server_time * load_shape.tpot_at_batch(s, np.maximum(seen, 1e-3))
    came = load_shape.open_latency(s, batch.rate, step)
    of = {
        name: batch.group == name
        for name in (
            "offline",
            "static",
            "burst",
            "closed",
            "open",
            "server",
        )
    }
    opened = of["open"] | of["server"]
    full = np.where(of["offline"], load_shape.offline_throughput(s), np.nan)
    full = np.where(
        of["static"],
        load_shape.static_throughput(s, np.minimum(batch.users, s.max_batch)),
        full,
    )
    burst = load_shape.burst_latency(s, batch.users)
    full = np.where(of["burst"], batch.users * batch.answer / burst.run_s, full)
    tpot = np.where(of["closed"], loop.tpot_s, np.where(opened, step, np.nan))
    ttft = np.where(
        of["closed"], loop.ttft_s, np.where(opened, came.ttft_s, np.nan)
    )
    ttft = np.where(of["static"], load_shape.static_ttft(s, batch.users), ttft)
    ttft = np.where(of["burst"], burst.ttft_s, ttft)
    tpot = np.where(of["burst"], burst.tpot_s, tpot)
    return Predicted(full * batch.replicas, tpot, ttft)


def outcome(batch: Batch, parameters: Array) -> Outcome:
    """Compare predictions with measurements."""
    found = predict(batch, parameters)

    def ratio(predicted: Array, measured: Array) -> Array:
        return np.log(predicted / np.where(measured > 0, measured, np.nan))

    return Outcome(
        ratio(found.throughput, batch.throughput),
        ratio(found.tpot, batch.tpot),
        ratio(found.ttft, batch.ttft),
    )


def cold(batch: Batch) -> Array:
    """Whether the first token of a closed loop comes later than any queue of its users explains.

    The longest queue is that of all users' prompts. A mean beyond half as much again, with half
    a second to spare, is of a server that was still compiling when the first of them came. The
    queue is that of the priors, so that no fit says which rows count in another.
    """
    c = batch.coefficients(priors(SERVING))
    s = server(batch, c)
    queue_s = s.idle_prompt_s + batch.users * s.prompt_busy_s
    slots = batch.users <= s.max_batch
    late = batch.ttft > COLD_TIMES * queue_s + COLD_S
    found: Array = (batch.group == "closed") & slots & late
    return found


def weights(batch: Batch, train: Array) -> Array:
    """What each row's throughput, time per token and time to first token count in the fit."""
    count = Counter(
        s.cell for s, used in zip(batch.samples, train, strict=True) if used
    )
    each = np.array([max(1, count[s.cell]) ** -SHARED for s in batch.samples])
    each = each * np.array([WEIGHT[s.row["quality"]] for s in batch.samples])
    each = (
        each
        * np.where(batch.speculative, 0.5, 1.0)
        * np.where(batch.split > 0, 0.4, 1.0)
    )
    each = np.where(train, each, 0.0)
    # First tokens of B rows come from queues and clients that nobody describes. Some closed
    # loops of TensorRT-LLM wait for twenty steps more than others, and tuned servers as long as
    # they may: no row says which.
    closed = batch.group == "closed"
    first_token = np.select(
        [closed & batch.of_trtllm, closed, batch.group == "server"],
        [0.06, 1.8, 0.4],
        0.8,
    ) * np.where(batch.quality == "A", 1.0, 0.05)
    first_token = np.where(cold(batch), 0.0, first_token)
    # Runs of requests that are sent at once end with a tail of lengths that nobody states. They
    # are of one laboratory, and would move what loops of users say of the same engine.
    of_burst = batch.group == "burst"
    first_token = np.where(of_burst, 0.1 * first_token, first_token)
    return np.concatenate(
        [
            np.where(of_burst, 0.1, 1.3) * each,
            np.select(
                [batch.group == "server", of_burst],
                [1.9, 0.15],
                1.0,
            )
            * each,
            first_token * each,
        ]
    )


def problem(batch: Batch, train: Array) -> Problem:
    """The fit to the rows of `train`."""

    def residuals(parameters: Array) -> Array:
        found = outcome(batch, parameters)
        parts = [
            np.nan_to_num(x) for x in (found.throughput, found.tpot, found.ttft)
        ]
        return np.concatenate(parts, axis=-1)

    return Problem(SERVING, weights(batch, train), residuals, SOFT)


def main() -> None:
    """Fit the tables to all measurements, then see how far left-out ones are off."""
    from tests.accuracy import apart, bands, cross, margins, training

    batch, _ = cross.load()
    fitted = solve(problem(batch, np.ones(len(batch.samples), bool)))
    save(SERVING, fitted)
    apart.save()
    left_out = [cross.leave(batch, name) for name in cross.SCHEMES]
    schemes = [cross.whole(batch, fitted), *left_out]
    bands.save(batch, schemes)
    with np.errstate(all="ignore"):
        margins.save(batch, schemes)
    sys.stderr.write(
        f"fitted {len(SERVING.rows)} rows to {len(batch.samples)} measurements\n"
    )
    training.refit()


if __name__ == "__main__":
    main()
