"""Spare groups against the binomial law and what a person counts."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from planner.cost.weekly_load import weekly_load
from planner.solve.serving.spare_groups import (
    SpareRule,
    spare_groups,
    up_share,
)

FLAT = SpareRule(None, None, ((1.0, 1.0),))


@pytest.mark.parametrize("span", [1, 8])
def test_spares_are_as_few_as_the_binomial_law_allows(span: int) -> None:
    """Of three groups none may fail, of four one: 0.0065 failures a day of two hours."""
    up = (1 / (1 + 0.0065 * 2 / 24)) ** span
    down = 1 - up
    none, one = 1 - up**3, 1 - up**4 - 4 * down * up**3
    for share, spares in (
        (1 - none * 1.001, 0),
        (1 - none * 0.999, 1),
        (1 - one * 1.001, 1),
        (1 - one * 0.999, 2),
    ):
        rule = replace(FLAT, availability=share)
        assert spare_groups(rule, 3, span, 1) == spares
    assert spare_groups(FLAT, 3, span, 1) == 0


def test_a_week_of_less_load_is_up_more_of_the_time() -> None:
    week = weekly_load("business-hours", None)
    rule = SpareRule(None, None, week.load_shares)
    assert sum(share for _, share in rule.load_shares) == pytest.approx(1)
    assert up_share(rule, 8, 0, 1) > up_share(FLAT, 8, 0, 1)
    assert up_share(FLAT, 8, 0, 1) < up_share(FLAT, 8, 1, 1)


def test_hours_that_do_not_run_do_not_count() -> None:
    week = weekly_load("flat", "weekdays 08:00-20:00")
    assert week.load_shares == ((1.0, 1.0),)


def test_what_may_fail_leaves_enough_for_the_peak() -> None:
    for peak in range(1, 40):
        assert spare_groups(replace(FLAT, survives="node"), peak, 1, 1) == 1
        for zones in (2, 3, 5):
            rule = replace(FLAT, survives="zone")
            spares = spare_groups(rule, peak, 1, zones)
            fullest = math.ceil((peak + spares) / zones)
            assert peak + spares - fullest >= peak
            fewer = peak + spares - 1
            assert fewer - math.ceil(fewer / zones) < peak
    with pytest.raises(ValueError, match="one zone"):
        spare_groups(replace(FLAT, survives="zone"), 3, 1, 1)
