"""Robust least squares on log ratios, shrunk to priors; the minimizer is scipy's."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.optimize import least_squares

from planner.perf.common.coefficient_table import (
    YEARLY_KEY,
    CoefficientTable,
    years_since,
)

Array = Any  # a numpy array; the physics takes it for a number
DATA: Final = Path(__file__).parents[2] / "planner" / "perf" / "data"
STEP: Final = 1e-4  # of the finite differences
# Parameters move in so many parts, whose arrays stay in the cache of a core.
PARTS: Final = 6
TURNS: Final = 60  # evaluations of all ratios
CLOSE: Final = 1e-5  # relative gain below which the fit stops


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
        return priors(self.book)

    @property
    def free(self) -> Array:
        """Places of the parameters that may move."""
        return np.flatnonzero([row.prior_sigma for row in self.book.rows])

    @property
    def spread(self) -> Array:
        """How far each of those may move."""
        return np.array([row.prior_sigma for row in self.book.rows])[self.free]

    def distances(self, parameters: Array) -> Array:
        """Distance of the free parameters from their priors, in spreads."""
        return (parameters - self.prior)[self.free] / self.spread

    def losses(self, squares: Array) -> Array:
        """Loss of each squared error with its first two derivatives, as scipy takes them.

        A log ratio costs weight * 2 * (sqrt(1 + z) - 1) at z = (ratio / soft)^2, so that a
        large error counts linearly. The distance of a parameter from its prior costs its square.
        """
        errors, distances = (
            squares[: len(self.weight)],
            squares[len(self.weight) :],
        )
        root = np.sqrt(1 + errors)
        return np.array(
            [
                np.concatenate([2 * self.weight * (root - 1), distances]),
                np.concatenate([self.weight / root, np.ones_like(distances)]),
                np.concatenate(
                    [-self.weight / (2 * root**3), np.zeros_like(distances)]
                ),
            ]
        )

    def at(self, moved: Array) -> Array:
        """All parameters, when the free ones are moved by so much from their priors."""
        parameters = np.repeat(self.prior[None], len(np.atleast_2d(moved)), 0)
        parameters[:, self.free] += moved
        return parameters if moved.ndim > 1 else parameters[0]

    def errors(self, moved: Array) -> Array:
        """Log ratios in units of `soft`, then distances from the priors in spreads."""
        parameters = self.at(moved)
        return np.concatenate(
            [
                self.residuals(parameters) / self.soft,
                self.distances(parameters),
            ]
        )

    def slopes(self, moved: Array) -> Array:
        """Derivatives of the errors: finite differences, some parameters in one call."""
        steps = np.repeat(moved[None], len(self.free), 0)
        steps[np.diag_indices(len(self.free))] += STEP
        parts = np.array_split(self.at(steps), PARTS)
        stepped = np.concatenate([self.residuals(part) for part in parts])
        ratios = stepped - self.residuals(self.at(moved))
        return np.concatenate(
            [ratios.T / STEP / self.soft, np.diag(1 / self.spread)]
        )


def solve(problem: Problem) -> Array:
    """Return the parameters that fit best.

    The search begins at the priors, which know no row. Begun at the fit to all rows, a fit with
    rows left out would stop at the next kink of the model, and still know them.
    """
    with np.errstate(all="ignore"):
        fitted = least_squares(
            problem.errors,
            np.zeros(len(problem.free)),
            problem.slopes,
            loss=problem.losses,
            x_scale=problem.spread,
            ftol=CLOSE,
            max_nfev=TURNS,
        )
    return problem.at(fitted.x)


def current(book: CoefficientTable[Any]) -> Array:
    """The parameters of the table as it stands."""
    return np.log([row.fitted_factor for row in book.rows])


def priors(book: CoefficientTable[Any]) -> Array:
    """The parameters of the table before any fit."""
    return np.log([row.prior_factor for row in book.rows])


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
    lines = _lines(book)
    for line, value in zip(lines, np.exp(parameters), strict=True):
        line["value"] = f"{value:.5g}"
    _write_again(book, lines)


def save_held(book: CoefficientTable[Any], parameters: Array) -> None:
    """Write the values that are not NaN as values that no fit moves: their priors too."""
    lines = _lines(book)
    for line, value in zip(lines, np.exp(parameters), strict=True):
        if np.isfinite(value):
            line["value"] = line["prior"] = f"{value:.5g}"
    _write_again(book, lines)


def _lines(book: CoefficientTable[Any]) -> list[dict[str, Any]]:
    text = (DATA / book.file_name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _write_again(
    book: CoefficientTable[Any], lines: list[dict[str, Any]]
) -> None:
    """Write the table of a book, which is read again when it is asked for its rows."""
    write(book.file_name, lines)
    vars(book).pop("rows", None)


def write(name: str, lines: list[dict[str, Any]]) -> None:
    """Write a table of planner/perf/data; the file is replaced whole."""
    draft = (DATA / name).with_suffix(".draft")
    with draft.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    draft.replace(DATA / name)
