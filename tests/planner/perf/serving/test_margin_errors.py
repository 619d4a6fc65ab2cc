"""The errors behind the margins, against the measurements and a law of variances."""

from __future__ import annotations

import numpy as np
import pytest

from planner.perf.serving.coefficients import SERVING
from tests.accuracy import cross, margins
from tests.accuracy.least import current


def test_rates_as_slow_as_their_errors_give_what_was_measured() -> None:
    with np.errstate(all="ignore"):
        batch, _ = cross.load()
        fitted = current(SERVING)
        errors = margins.latency_errors(batch, cross.whole(batch, fitted))
        decode, prefill = np.exp(errors).T
        here = margins.loops(batch, fitted) & np.isfinite(decode)
        _, ttft = margins.slowed(batch, fitted, decode, prefill)
        # One factor on both rates is a factor on the time per token.
        tpot, _ = margins.slowed(batch, fitted, decode, decode)
    assert here.sum() > 200
    assert tpot[here] == pytest.approx(batch.tpot[here], rel=1e-6)
    # A time to first token below the wait for a decode step has no such factor.
    met = here & (abs(errors[:, 1]) < 0.99 * margins.SLOWEST)
    assert ttft[met] == pytest.approx(batch.ttft[met], rel=1e-6)
    assert met.sum() > 0.95 * here.sum()


def test_moments_are_those_of_a_single_row_of_a_new_cell() -> None:
    """Cells of 1 to 9 rows with known deviations between and within, and a known correlation."""
    draw = np.random.default_rng(11)
    between = np.array([[0.04, 0.018], [0.018, 0.09]])
    within = np.array([[0.01, -0.006], [-0.006, 0.04]])
    cells = [
        draw.multivariate_normal((0.1, -0.2), between)
        + draw.multivariate_normal((0.0, 0.0), within, size=1 + index % 9)
        for index in range(20_000)
    ]
    found = margins.moments(cells)
    assert (found.cells, found.rows) == (20_000, sum(map(len, cells)))
    assert found.means == pytest.approx(np.array([0.1, -0.2]), abs=0.01)
    assert found.covariance == pytest.approx(between + within, rel=0.05)
    assert found.correlation == pytest.approx(
        0.012 / np.sqrt(0.05 * 0.13), rel=0.05
    )
