"""Amounts with unknown parts: what a difference says holds, whatever the unknown prices are."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from planner.plan.amount import (
    NOTHING,
    CostAmount,
    add_amounts,
    add_deltas,
    cost_delta,
    percent_of,
    sum_amounts,
)

CENTS = st.decimals(min_value=0, max_value=10**6, places=2)
# Each price is known or not; the second number is what it really is.
PRICES = st.lists(st.tuples(st.booleans(), CENTS), max_size=6)


def told(prices: list[tuple[bool, Decimal]]) -> CostAmount:
    return sum_amounts(usd if known else None for known, usd in prices)


def really(prices: list[tuple[bool, Decimal]]) -> Decimal:
    return sum((usd for _, usd in prices), Decimal(0))


def holds(bound: str, told_usd: Decimal | None, usd: Decimal) -> bool:
    if bound == "unknown" or told_usd is None:
        return bound == "unknown"
    return {
        "exact": usd == told_usd,
        "at_least": usd >= told_usd,
        "at_most": usd <= told_usd,
    }[bound]


@given(PRICES, PRICES)
def test_a_difference_holds_whatever_the_unknown_prices_are(
    before: list[tuple[bool, Decimal]], after: list[tuple[bool, Decimal]]
) -> None:
    delta = cost_delta(told(before), told(after))
    assert holds(delta.bound, delta.usd, really(after) - really(before))


@given(st.lists(st.tuples(PRICES, PRICES), max_size=4))
def test_a_sum_of_differences_holds_too(
    pairs: list[tuple[list[tuple[bool, Decimal]], list[tuple[bool, Decimal]]]],
) -> None:
    before = add_amounts(told(old) for old, _ in pairs)
    delta = add_deltas(
        (cost_delta(told(old), told(new)) for old, new in pairs), before
    )
    usd = sum((really(new) - really(old) for old, new in pairs), Decimal(0))
    assert holds(delta.bound, delta.usd, usd)


@given(PRICES)
def test_an_unknown_price_is_never_zero(
    prices: list[tuple[bool, Decimal]],
) -> None:
    amount = told(prices)
    assert amount.is_complete == all(known for known, _ in prices)
    if prices and not any(known for known, _ in prices):
        assert amount.usd is None


def test_what_is_unknown_on_both_sides_and_the_same_makes_no_difference() -> (
    None
):
    before = CostAmount(usd=Decimal(5), is_complete=False)
    after = CostAmount(usd=Decimal(8), is_complete=False)
    assert cost_delta(before, after).bound == "unknown"
    delta = cost_delta(before, after, cancels=True)
    assert (delta.usd, delta.bound) == (Decimal(3), "exact")


def test_percentages_are_of_what_is_wholly_known() -> None:
    whole = CostAmount(usd=Decimal(200))
    assert percent_of(Decimal(50), whole) == Decimal("25.0")
    assert percent_of(Decimal(50), NOTHING) is None
    part = CostAmount(usd=Decimal(200), is_complete=False)
    assert percent_of(Decimal(50), part) is None
