"""Fits the coefficients: robust least squares on log ratios, shrunk to priors. Deterministic.

`python -m tests.accuracy.fit` rewrites the values of the coefficient table, and the bands.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from planner.perf import shape
from planner.perf.coefficient import SERVING
from planner.perf.physics import first, prompt, rates
from tests.accuracy.sample import Array, Batch

if TYPE_CHECKING:
    from planner.perf.coefficient import Coefficients

TABLE: Final = Path(__file__).parents[2] / "planner" / "perf" / "data" / "coefficients.csv"
SOFT: Final = 0.08  # log ratio beyond which an error counts linearly
STEP: Final = 1e-4  # of the finite differences
TURNS: Final = 12
CLOSE: Final = 1e-3  # relative gain below which the fit stops
WEIGHT: Final = {"A": 1.0, "B": 0.15}
SHARED: Final = 0.5  # rows of a cell are worth their number to the power of 1 - this


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


def server(batch: Batch, c: Coefficients) -> shape.Server:
    """The replica of each row; prefill workers of their own serve all replicas."""
    own, ahead = rates(batch.terms, c, batch.draft), rates(batch.ahead, c)
    shared = prompt(ahead, batch.prompt) * batch.replicas / batch.workers
    split = batch.split > 0
    sent = shape.handover(batch.terms, c, batch.prompt)
    kept = np.where(np.isnan(batch.kept), c.reserve_gib, batch.kept)
    room = shape.fitting(batch.terms, c, kept, batch.prompt, batch.answer)
    return shape.Server(
        rates=own, coefficients=c, prompt=batch.prompt, answer=batch.answer,
        room=np.maximum(np.minimum(room, batch.limit), 1.0),
        busy=np.where(split, shared, prompt(own, batch.prompt)),
        alone=np.where(split, first(ahead, batch.prompt) + sent, first(own, batch.prompt)),
        share=np.where(split, 0.0, c.interference),
        serial=1.0 - batch.split,
    )  # fmt: skip


def predict(batch: Batch, parameters: Array) -> Predicted:
    """Predict every row with one vector of parameters, or with each of a stack of them.

    Open loops are taken at the measured batch (Little's law), where time per token is well
    conditioned: near saturation a small error of capacity multiplies.
    """
    c = batch.coefficients(parameters)
    s = server(batch, c)
    loop = shape.closed(s, batch.users)
    seen = batch.rate * batch.answer * np.where(batch.tpot > 0, batch.tpot, 1e-3)
    step = c.server_time * shape.pace(s, np.maximum(seen, 1e-3))
    came = shape.arriving(s, batch.rate, step)
    of = {name: batch.group == name for name in ("offline", "static", "closed", "open", "server")}
    opened = of["open"] | of["server"]
    full = np.where(of["offline"], shape.offline(s), np.nan)
    full = np.where(of["static"], shape.static(s, np.minimum(batch.users, s.room)), full)
    tpot = np.where(of["closed"], loop.tpot, np.where(opened, step, np.nan))
    ttft = np.where(of["closed"], loop.ttft, np.where(opened, came.ttft, np.nan))
    ttft = np.where(of["static"], shape.together(s, batch.users), ttft)
    return Predicted(full * batch.replicas, tpot, ttft)


def outcome(batch: Batch, parameters: Array) -> Outcome:
    """Compare predictions with measurements."""
    found = predict(batch, parameters)

    def ratio(predicted: Array, measured: Array) -> Array:
        return np.log(predicted / np.where(measured > 0, measured, np.nan))

    return Outcome(
        ratio(found.throughput, batch.throughput), ratio(found.tpot, batch.tpot),
        ratio(found.ttft, batch.ttft),
    )  # fmt: skip


def weights(batch: Batch, train: Array) -> Array:
    """What each row's throughput, time per token and time to first token count in the fit."""
    count = Counter(s.cell for s, used in zip(batch.samples, train, strict=True) if used)
    each = np.array([max(1, count[s.cell]) ** -SHARED for s in batch.samples])
    each = each * np.array([WEIGHT[s.row["quality"]] for s in batch.samples])
    each = each * np.where(batch.speculative, 0.5, 1.0) * np.where(batch.split > 0, 0.4, 1.0)
    each = np.where(train, each, 0.0)
    # First tokens of B rows come from queues and clients that nobody describes.
    first_token = 0.8 * np.where(batch.quality == "A", 1.0, 0.05)
    return np.concatenate(
        [1.3 * each, np.where(batch.group == "server", 1.6, 1.0) * each, first_token * each]
    )


class Problem:
    """Robust least squares over the free parameters: soft L1 on ratios, normal priors."""

    def __init__(self, batch: Batch, train: Array) -> None:
        self.batch = batch
        self.weight = weights(batch, train)
        self.prior = np.log([row.prior for row in SERVING.rows])
        spread = np.array([row.spread for row in SERVING.rows])
        self.free = np.flatnonzero(spread)
        self.spread = spread[self.free]

    def residuals(self, parameters: Array) -> Array:
        """All log ratios in one row, 0 where nothing was measured."""
        found = outcome(self.batch, parameters)
        parts = [np.nan_to_num(x) for x in (found.throughput, found.tpot, found.ttft)]
        return np.concatenate(parts, axis=-1)

    def away(self, parameters: Array) -> Array:
        """Distance of the free parameters from their priors, in spreads."""
        return (parameters - self.prior)[self.free] / self.spread

    def cost(self, parameters: Array, residuals: Array) -> float:
        """What is minimized."""
        soft = 2 * (np.sqrt(1 + (residuals / SOFT) ** 2) - 1)
        return float(np.sum(self.weight * soft) + np.sum(self.away(parameters) ** 2))

    def jacobian(self, parameters: Array, residuals: Array) -> Array:
        """Finite differences, all parameters in one call."""
        moved = np.repeat(parameters[None], len(self.free), 0)
        moved[np.arange(len(self.free)), self.free] += STEP
        return ((self.residuals(moved) - residuals) / STEP).T


def solve(batch: Batch, train: Array, start: Array | None = None) -> Array:
    """Return the parameters that fit the rows of `train` (Levenberg and Marquardt)."""
    problem = Problem(batch, train)
    at = (problem.prior if start is None else start).copy()
    with np.errstate(all="ignore"):
        left = problem.residuals(at)
        cost, damping = problem.cost(at, left), 1e-3
        for _ in range(TURNS):
            slope = problem.jacobian(at, left)
            weight = problem.weight / np.sqrt(1 + (left / SOFT) ** 2) / SOFT**2
            normal = slope.T @ (weight[:, None] * slope) + np.diag(problem.spread**-2.0)
            gradient = slope.T @ (weight * left) + problem.away(at) / problem.spread
            better = None
            while better is None and damping < 1e3:
                damped = normal + damping * np.diag(np.diag(normal))
                trial = at.copy()
                trial[problem.free] += np.clip(np.linalg.solve(damped, -gradient), -0.7, 0.7)
                tried = problem.residuals(trial)
                worth = problem.cost(trial, tried)
                better = (trial, tried, worth) if worth < cost else None
                damping *= 0.2 if better else 5
            if better is None:
                break
            gain = cost - better[2]
            at, left, cost = better
            if gain < CLOSE * cost:
                break
    return at


def current() -> Array:
    """The parameters of the table as it stands."""
    return np.log([row.value for row in SERVING.rows])


def save(parameters: Array) -> None:
    """Write the values into the table, all else unchanged; the file is replaced whole."""
    lines = list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))
    for line, value in zip(lines, np.exp(parameters), strict=True):
        line["value"] = f"{value:.5g}"
    draft = TABLE.with_suffix(".draft")
    with draft.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    draft.replace(TABLE)


def main() -> None:
    """Fit the table to all measurements, then see how far left-out ones are off."""
    from tests.accuracy import bands, cross

    batch, _ = cross.load()
    fitted = solve(batch, np.ones(len(batch.samples), bool))
    save(fitted)
    left_out = [cross.leave(batch, name, fitted) for name in cross.LEAVES]
    bands.save(batch, [cross.whole(batch, fitted), *left_out])
    sys.stderr.write(f"fitted {len(SERVING.rows)} rows to {len(batch.samples)} measurements\n")


if __name__ == "__main__":
    main()
