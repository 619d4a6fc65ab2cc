"""Robust least squares on log ratios, shrunk to priors (Levenberg and Marquardt)."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from planner.perf.common.coefficient_table import (
    YEARLY_KEY,
    CoefficientTable,
    years_since,
)

Array = Any  # a numpy array; the physics takes it for a number
DATA: Final = Path(__file__).parents[2] / "planner" / "perf" / "data"
STEP: Final = 1e-4  # of the finite differences
TURNS: Final = 12
CLOSE: Final = 1e-3  # relative gain below which the fit stops


@dataclass(frozen=True)
class Problem:
    """Soft L1 on ratios, normal priors; parameters are logarithms of the rows of a book.

    `residuals` gives all log ratios for one vector of parameters or a stack of them, 0 where
    nothing was measured; `soft` is the ratio beyond which an error counts linearly.
    """

    book: CoefficientTable[Any]
    weight: Array
    residuals: Callable[[Array], Array]
    soft: float

    @property
    def prior(self) -> Array:
        """Where parameters are drawn to."""
        return np.log([row.prior_factor for row in self.book.rows])

    @property
    def free(self) -> Array:
        """Places of the parameters that may move."""
        return np.flatnonzero([row.prior_sigma for row in self.book.rows])

    @property
    def spread(self) -> Array:
        """How far each of those may move."""
        return np.array([row.prior_sigma for row in self.book.rows])[self.free]

    def away(self, parameters: Array) -> Array:
        """Distance of the free parameters from their priors, in spreads."""
        return (parameters - self.prior)[self.free] / self.spread

    def cost(self, parameters: Array, residuals: Array) -> float:
        """What is minimized."""
        soft = 2 * (np.sqrt(1 + (residuals / self.soft) ** 2) - 1)
        return float(
            np.sum(self.weight * soft) + np.sum(self.away(parameters) ** 2)
        )

    def jacobian(self, parameters: Array, residuals: Array) -> Array:
        """Finite differences, all parameters in one call."""
        moved = np.repeat(parameters[None], len(self.free), 0)
        moved[np.arange(len(self.free)), self.free] += STEP
        return ((self.residuals(moved) - residuals) / STEP).T


def solve(problem: Problem, start: Array | None = None) -> Array:
    """Return the parameters that fit best."""
    at = (problem.prior if start is None else start).copy()
    with np.errstate(all="ignore"):
        left = problem.residuals(at)
        cost = problem.cost(at, left)
        damping = 1e-3
        for _ in range(TURNS):
            slope = problem.jacobian(at, left)
            weight = (
                problem.weight
                / np.sqrt(1 + (left / problem.soft) ** 2)
                / problem.soft**2
            )
            normal = slope.T @ (weight[:, None] * slope) + np.diag(
                problem.spread**-2.0
            )
            gradient = (
                slope.T @ (weight * left) + problem.away(at) / problem.spread
            )
            better = None
            while better is None and damping < 1e3:
                damped = normal + damping * np.diag(np.diag(normal))
                trial = at.copy()
                trial[problem.free] += np.clip(
                    np.linalg.solve(damped, -gradient), -0.7, 0.7
                )
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


def current(book: CoefficientTable[Any]) -> Array:
    """The parameters of the table as it stands."""
    return np.log([row.fitted_factor for row in book.rows])


def design(
    book: CoefficientTable[Any], keys: list[frozenset[str]], when: list[float]
) -> dict[str, tuple[Array, Array]]:
    """For each coefficient: the parameters that act on it, and on which rows."""
    found: dict[str, tuple[list[int], list[Array]]] = {}
    age = np.array([years_since(year) for year in when])
    for place, row in enumerate(book.rows):
        applies = np.array([float(not row.key or row.key in k) for k in keys])
        index, weight = found.setdefault(row.coefficient, ([], []))
        index.append(place)
        weight.append(age if row.key == YEARLY_KEY else applies)
    return {name: (np.array(i), np.array(w)) for name, (i, w) in found.items()}


def coefficients(
    book: CoefficientTable[Any],
    made: dict[str, tuple[Array, Array]],
    parameters: Array,
) -> Any:
    """The coefficients of every row, for one vector of parameters or a stack."""
    values = {}
    for name in book.names:
        index, weight = made.get(name, (None, None))
        values[name] = (
            1.0 if index is None else np.exp(parameters[..., index] @ weight)
        )
    return book.coefficient_type(**values)


def save(book: CoefficientTable[Any], parameters: Array) -> None:
    """Write the values into the table, all else unchanged."""
    lines = list(
        csv.DictReader(
            (DATA / book.file_name).read_text(encoding="utf-8").splitlines()
        )
    )
    for line, value in zip(lines, np.exp(parameters), strict=True):
        line["value"] = f"{value:.5g}"
    write(book.file_name, lines)


def write(name: str, lines: list[dict[str, Any]]) -> None:
    """Write a table of planner/perf/data; the file is replaced whole."""
    draft = (DATA / name).with_suffix(".draft")
    with draft.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    draft.replace(DATA / name)
