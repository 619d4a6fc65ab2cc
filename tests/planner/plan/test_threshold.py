"""Thresholds: what is read, and that nothing passes that may exceed them."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.plan.amount import CostAmount, cost_delta
from planner.plan.diff_document import PeriodTotal
from planner.plan.threshold import (
    Threshold,
    judge_thresholds,
    parse_threshold,
)

if TYPE_CHECKING:
    from planner.plan.part import Period

CENTS = st.decimals(min_value=0, max_value=10**5, places=2)


def total(
    before: CostAmount, after: CostAmount, period: Period = "month"
) -> PeriodTotal:
    return PeriodTotal(
        period=period,
        before=before,
        after=after,
        delta=cost_delta(before, after),
        parts=(),
    )


@pytest.mark.parametrize(
    ("text", "percent", "usd", "period"),
    [
        ("+10%", 10, None, None),
        ("10 %", 10, None, None),
        (">+0.5%", Decimal("0.5"), None, None),
        ("+5000/month", None, 5000, "month"),
        ("+5,000/month", None, 5000, "month"),
        ("+$20/hour", None, 20 * 730, "month"),
        ("+300/run", None, 300, "run"),
        ("+300 USD/life", None, 300, "life"),
    ],
)
def test_the_forms_of_a_threshold(text, percent, usd, period) -> None:
    assert parse_threshold(text) == Threshold(
        text=text, percent=percent, usd=usd, period=period
    )


@pytest.mark.parametrize(
    "text", ["", "ten", "-5%", "+5/fortnight", "+%", "+1e9", "+nan%"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\+10%"):
        parse_threshold(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [("10", "10"), ("+5000", "5000"), ("+5,000", "5000"), (">$2.50", "2.50")],
)
def test_a_number_alone_is_told_both_of_its_spellings(
    text: str, number: str
) -> None:
    with pytest.raises(ValueError, match="has no unit") as refusal:
        parse_threshold(text)
    for spelling in (f"+{number}%", f"+{number}/month"):
        assert spelling in str(refusal.value)
        parse_threshold(spelling)


@given(CENTS, CENTS, st.booleans(), st.booleans(), CENTS, CENTS)
def test_what_passes_is_within_whatever_the_unknown_prices_are(
    old: Decimal,
    new: Decimal,
    old_known: bool,
    new_known: bool,
    old_rest: Decimal,
    new_rest: Decimal,
) -> None:
    before = CostAmount(usd=old, is_complete=old_known)
    after = CostAmount(usd=new, is_complete=new_known)
    real_old = old + (0 if old_known else old_rest)
    real_new = new + (0 if new_known else new_rest)
    limits = {"+10%": real_old / 10, "+500/month": Decimal(500)}
    for text, limit_usd in limits.items():
        [verdict] = judge_thresholds(
            [parse_threshold(text)], [total(before, after)]
        )
        if not verdict.is_exceeded:
            assert real_new - real_old <= limit_usd
        elif verdict.usd is not None:
            # What is said to exceed it does, whatever is unknown of the new side.
            assert verdict.limit_usd is not None
            assert verdict.usd > verdict.limit_usd - Decimal("0.01")


def test_each_period_is_judged_by_itself() -> None:
    nothing = CostAmount(usd=Decimal(0))
    run = total(nothing, CostAmount(usd=Decimal(900)), "run")
    month = total(CostAmount(usd=Decimal(1000)), CostAmount(usd=Decimal(1050)))

    def exceeded(text: str) -> str | None:
        [verdict] = judge_thresholds([parse_threshold(text)], [month, run])
        return verdict.period if verdict.is_exceeded else None

    assert exceeded("+40/month") == "month"
    assert exceeded("+50/month") is None
    assert exceeded("+899/run") == "run"
    assert exceeded("+900/run") is None
    assert exceeded("+1/life") is None
    # What is new has no cost before of which anything is a share.
    assert exceeded("+10%") == "run"
