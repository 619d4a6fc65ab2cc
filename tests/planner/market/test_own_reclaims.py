"""Own reclaims bound the share of a month as their Poisson mean is bounded, and few say little."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy.stats import chi2

from planner.market.live import LiveFacts, ReclaimAnswer, ReclaimFact
from planner.market.live_catalog import with_live
from planner.market.offer import ReclaimBand
from planner.market.own_reclaims import own_band
from tests.conftest import only, present
from tests.planner.market.test_live_catalog import MACHINE, NOW, silent


def fact(reclaims: float, hours: float) -> ReclaimFact:
    return ReclaimFact(reclaims=reclaims, machine_hours=hours)


@given(reclaims=st.integers(0, 300), hours=st.floats(730, 1e6))
def test_a_band_is_that_of_an_exact_mean(reclaims: int, hours: float) -> None:
    """Garwood's bounds with the quantiles of chi-square that SciPy has.

    Those of the band are approximated by a cube, which is 0.012 off at most, without a reclaim.
    """
    band = present(own_band(fact(reclaims, hours), NOW))
    exact_low = chi2.ppf(0.05, 2 * reclaims) / 2 if reclaims else 0.0
    exact_high = chi2.ppf(0.95, 2 * reclaims + 2) / 2
    for share, mean in (
        (band.low_share, exact_low),
        (band.high_share, exact_high),
    ):
        expected = 1 - math.exp(-mean / hours * 730)
        assert share == pytest.approx(expected, abs=0.012)
    assert band.low_share <= band.high_share
    assert band.as_of == "2026-11-27"


def test_the_more_hours_the_narrower_the_band() -> None:
    bands = [
        present(own_band(fact(hours / 1000, hours), NOW))
        for hours in (1e3, 1e4, 1e5)
    ]
    widths = [band.high_share - band.low_share for band in bands]
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize(("hours", "is_own"), [(729, False), (731, True)])
def test_own_reclaims_replace_those_of_the_cloud_once_enough_ran(
    catalog, hours: float, *, is_own: bool
) -> None:
    """For that type and region on spot; nothing else changes."""
    here = only(
        catalog,
        lambda offer: (
            offer.instance.instance_type == MACHINE
            and offer.region in ("us-east-1", "us-west-2")
        ),
    )
    place = replace(
        silent(),
        reclaims=ReclaimAnswer(
            state="value",
            as_of=NOW,
            request="reclaims",
            value={MACHINE: fact(2, hours)},
        ),
    )
    live = with_live(here, LiveFacts(places=(place,)), {})
    changed = {
        (offer.region, offer.purchase): offer.reclaim_band
        for offer, before in zip(live.offers, here.offers, strict=True)
        if offer.reclaim_band != before.reclaim_band
    }
    expected: dict[tuple[str, str], ReclaimBand | None] = {
        ("us-east-1", "spot"): own_band(fact(2, hours), NOW)
    }
    assert changed == (expected if is_own else {})
