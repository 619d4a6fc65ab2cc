"""How far prices move: exactly the rows where they are, and never less for an older price."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.market.price_change import (
    PriceChange,
    PriceKind,
    price_changes,
    price_ratios,
)

KINDS = st.sampled_from(["on_demand", "spot"])
CLOUDS = st.sampled_from(["aws", "gcp", "azure"])


@pytest.mark.parametrize(
    "row", price_changes(), ids=lambda row: f"{row.cloud}-{row.days}"
)
def test_at_the_days_of_a_row_it_is_the_row(row: PriceChange) -> None:
    cloud = "gcp" if row.cloud == "*" else row.cloud
    assert price_ratios(cloud, row.purchase, row.days) == pytest.approx(
        (row.low, row.high)
    )


@given(CLOUDS, KINDS, st.integers(0, 5000), st.integers(0, 5000))
def test_an_older_price_has_moved_no_less(
    cloud: str, purchase: PriceKind, one: int, other: int
) -> None:
    new, old = sorted((one, other))
    low, high = price_ratios(cloud, purchase, new)
    older_low, older_high = price_ratios(cloud, purchase, old)
    assert older_low <= low * (1 + 1e-12)
    assert high <= older_high * (1 + 1e-12)
    assert low <= 1 <= high


def test_a_price_of_today_is_what_it_is() -> None:
    assert price_ratios("aws", "spot", 0) == (1.0, 1.0)


def test_beyond_the_rows_four_times_the_age_is_twice_the_distance() -> None:
    """As a walk of independent steps: its spread grows with the root of their number."""
    low, high = price_ratios("aws", "spot", 400)
    older = price_ratios("aws", "spot", 1600)
    assert older == pytest.approx((low**2, high**2))


def test_a_price_of_unknown_age_is_as_unsure_as_the_oldest_row() -> None:
    *_, oldest = [row for row in price_changes() if row.purchase == "on_demand"]
    assert price_ratios("aws", "on_demand", None) == pytest.approx(
        (oldest.low, oldest.high)
    )
