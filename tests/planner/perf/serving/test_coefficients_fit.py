"""What a fit with rows left out may know: priors and the other rows, never the fit to all."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from planner.perf.serving.coefficients import SERVING
from tests.accuracy import cross, fit


def test_a_fit_with_rows_left_out_does_not_know_the_fitted_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with np.errstate(all="ignore"):
        batch, _ = cross.load()
        train = np.array([s.row["source_group"] for s in batch.samples])
        train = train != "inferencex_aic"
        before = fit.problem(batch, train)
        other = [
            replace(row, fitted_factor=2 * row.fitted_factor)
            for row in SERVING.rows
        ]
        monkeypatch.setitem(SERVING.__dict__, "rows", tuple(other))
        after = fit.problem(batch, train)
    assert np.array_equal(before.weight, after.weight)
    assert np.array_equal(before.prior, after.prior)
    # Rows that were left out count nothing, whatever they measured.
    assert not after.weight.reshape(3, -1)[:, ~train].any()
    assert after.weight.any()
