"""Spare groups against the binomial law and what a person counts."""

from __future__ import annotations

import itertools
import math

import pytest
from msgspec.structs import replace

from planner.cost.weekly_load import NO_SPARES, SpareGroups, weekly_load
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
        assert spare_groups(rule, 3, span, 1).count == spares
    assert spare_groups(FLAT, 3, span, 1) == NO_SPARES


def test_a_week_of_less_load_is_up_more_of_the_time() -> None:
    week = weekly_load("business-hours", None)
    rule = SpareRule(None, None, week.load_shares)
    assert sum(share for _, share in rule.load_shares) == pytest.approx(1)
    assert up_share(rule, 8, NO_SPARES, 1) > up_share(FLAT, 8, NO_SPARES, 1)
    assert up_share(FLAT, 8, NO_SPARES, 1) < up_share(
        FLAT, 8, SpareGroups(1), 1
    )


def test_hours_that_do_not_run_do_not_count() -> None:
    week = weekly_load("flat", "weekdays 08:00-20:00")
    assert week.load_shares == ((1.0, 1.0),)


def test_what_may_fail_leaves_enough_for_the_peak() -> None:
    for peak in range(1, 40):
        rule = replace(FLAT, survives="node")
        assert spare_groups(rule, peak, 1, 1) == SpareGroups(1)
        for zones in (2, 3, 5):
            rule = replace(FLAT, survives="zone")
            spares = spare_groups(rule, peak, 1, zones).count
            fullest = math.ceil((peak + spares) / zones)
            assert peak + spares - fullest >= peak
            fewer = peak + spares - 1
            assert fewer - math.ceil(fewer / zones) < peak
    with pytest.raises(ValueError, match="one zone"):
        spare_groups(replace(FLAT, survives="zone"), 3, 1, 1)


WEEKS = (
    ((0.2, 0.5), (0.6, 0.3), (1.0, 0.2)),
    ((0.1, 0.1), (0.3, 0.2), (0.5, 0.4), (0.9, 0.2), (1.0, 0.1)),
)


@pytest.mark.parametrize("load_shares", WEEKS)
@pytest.mark.parametrize("peak", [1, 3, 8, 20])
@pytest.mark.parametrize("share", [0.998, 0.999, 0.9995, 0.9999, 0.99999])
def test_a_spare_for_availability_runs_where_it_is_worth_most(
    load_shares: tuple[tuple[float, float], ...], peak: int, share: float
) -> None:
    """Of all ways to give each load its spares none costs less by more than the hours of one."""
    rule = SpareRule(share, None, load_shares)
    chosen = spare_groups(rule, peak, 1, 1)
    up = 1 / (1 + 0.0065 * 2 / 24)

    def quorum(load: float, spares: int) -> float:
        needed = max(1, math.ceil(peak * load - 1e-9))
        return sum(
            math.comb(needed + spares, lost)
            * (1 - up) ** lost
            * up ** (needed + spares - lost)
            for lost in range(spares + 1)
        )

    def costs(spares: tuple[int, ...]) -> float:
        return sum(
            count * hours
            for count, (_, hours) in zip(spares, load_shares, strict=True)
        )

    enough = [
        spares
        for spares in itertools.product(range(4), repeat=len(load_shares))
        if sum(
            hours * quorum(load, count)
            for count, (load, hours) in zip(spares, load_shares, strict=True)
        )
        >= share
    ]
    found = tuple(chosen.at(load) for load, _ in load_shares)
    assert found in enough
    assert costs(found) <= min(map(costs, enough)) + max(
        hours for _, hours in load_shares
    )


def test_more_groups_never_take_fewer_hours() -> None:
    """The search looks for the fewest groups, because they cost least."""
    for profile in ("flat", "diurnal", "business-hours"):
        week = weekly_load(profile, None)
        for share in (0.999, 0.9995, 0.9999):
            rule = SpareRule(share, None, week.load_shares)
            hours = [
                week.node_hours(peak, 1, spare_groups(rule, peak, 1, 1))
                for peak in range(1, 40)
            ]
            assert hours == sorted(hours), (profile, share)


def test_what_must_survive_a_failure_does_so_in_every_hour() -> None:
    week = weekly_load("business-hours", None)
    rule = SpareRule(0.9999, "node", week.load_shares)
    for peak in (1, 5, 30):
        spares = spare_groups(rule, peak, 1, 1)
        assert all(spares.at(load) >= 1 for load, _ in week.load_shares)
