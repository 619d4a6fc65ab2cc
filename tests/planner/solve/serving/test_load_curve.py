"""Other loads than the peak: the same fleet, predicted as the plan predicts it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.conftest import chat, find, present

LIMITS = {"ttft_p95_ms": 2000, "tpot_p95_ms": 80}
TRAFFICS = {"open": "peak_rps: 12", "closed": "concurrency: 48"}


@pytest.fixture(scope="module", params=TRAFFICS)
def solution(request, catalog):
    return find(catalog, chat(traffic=TRAFFICS[request.param]), keep=0)


def curve_of(solution):
    return present(solution.find_load_curve)()


def test_at_the_peak_it_is_what_the_plan_predicts(solution) -> None:
    [peak] = [point for point in curve_of(solution) if point.share == 1]
    assert peak.predictions == solution.predictions


def test_a_higher_load_is_never_faster(solution) -> None:
    """Within the error of percentiles that are found by steps."""
    curve = curve_of(solution)
    for before, after in pairwise(curve):
        assert after.load > before.load
        for metric in LIMITS:
            assert (
                after.predictions[metric].value
                >= before.predictions[metric].value * 0.98
            )


def test_it_ends_with_the_first_load_that_misses_a_limit(solution) -> None:
    *within, _ = curve_of(solution)
    for point in within:
        for metric, limit in LIMITS.items():
            assert point.predictions[metric].value <= limit


def test_a_band_is_around_its_value(solution) -> None:
    for point in curve_of(solution):
        for found in point.predictions.values():
            assert found.low <= found.value <= found.high
