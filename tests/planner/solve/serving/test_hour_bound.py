"""Bounds of what groups cost by the hour: below all choices, and below each other."""

from __future__ import annotations

import itertools
import math
import random
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from planner.solve.serving.hour_bound import BoundKind, HourBounds
from planner.solve.serving.hour_program import HourLoad, no_kind
from tests.planner.solve.serving.test_hour_program import (
    Kinds,
    commitments,
    committed,
    cost_usd,
    drawn_kind,
    states_of,
    weighted,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def drawn(seed: int) -> tuple[Kinds, list[HourLoad]]:
    """Two kinds of groups, and three hours of two loads."""
    draw = random.Random(seed)
    rates = [draw.uniform(0.5, 5) for _ in range(2)]
    hours = [HourLoad(draw.choice(rates), 1.0) for _ in range(3)]
    kinds = drawn_kind(draw, rates, 3), drawn_kind(draw, rates, 3)
    return weighted(kinds, rates[0]), hours


def bound_kinds(
    bounds: HourBounds, kinds: Kinds, hours: Sequence[HourLoad]
) -> list[BoundKind]:
    week_hours = sum(hour.hours for hour in hours)
    return [
        bounds.kind(
            kind.least_usd(week_hours),
            kind.group_rps,
            kind.most_groups,
            kind.always_usd
            if kind.machine_usd == math.inf and not kind.owned_groups
            else 0.0,
        )
        for kind in kinds
    ]


@pytest.mark.parametrize("committed_kinds", [0, 1, 2])
@pytest.mark.parametrize("seed", range(60))
def test_bounds_are_no_more_than_what_both_kinds_cost(
    seed: int, committed_kinds: int
) -> None:
    """Of all choices in which both run in some hour, however the weights are chosen."""
    (first, second), hours = drawn(seed)
    kinds = (
        committed(first) if committed_kinds > 0 else first,
        committed(second) if committed_kinds > 1 else second,
    )
    bounds = HourBounds(hours)
    bound = bound_kinds(bounds, kinds, hours)
    linear_usd, whole_usd = bounds.linear_usd(bound), bounds.whole_usd(bound)
    assert linear_usd <= whole_usd * (1 + 1e-9)
    states = [states_of(kinds, hour) for hour in hours]
    for counts in itertools.product(*states):
        if all(any(each[number] for each in counts) for number in (0, 1)):
            usd = min(
                cost_usd(kinds, hours, counts, always)
                for always in commitments(kinds)
            )
            assert whole_usd <= usd * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_a_bound_of_one_kind_is_what_its_hours_cost(seed: int) -> None:
    """Where a start costs nothing, and nothing is owned or committed to."""
    (kind, _), hours = drawn(seed)
    kind = replace(
        kind, start_usd=0.0, opening_usd=0.0, owned_groups=0, most_always=0
    )
    kind = replace(kind, always_usd=math.inf)
    bounds = HourBounds(hours)
    bound, _ = bound_kinds(bounds, (kind, no_kind(hours)), hours)
    alone = weighted((kind, kind), hours[0].rate_rps)[0], no_kind(hours)
    states = [states_of(alone, hour) for hour in hours]
    expected = min(
        (
            cost_usd(alone, hours, counts, (0, 0))
            for counts in itertools.product(*states)
        ),
        default=math.inf,
    )
    assert bounds.whole_usd([bound]) == pytest.approx(expected)
    assert bounds.linear_usd([bound]) <= expected * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_groups_of_a_bound_carry_its_loads(seed: int) -> None:
    """They get all requests, and none of them gets more than it carries."""
    kinds, hours = drawn(seed)
    loads = [*dict.fromkeys(hours)]
    bounds = HourBounds(loads)
    bound = bound_kinds(bounds, kinds, loads)
    total_usd = 0.0
    for load, shares in bounds.cheapest(bound):
        carried_rps = [kind.group_rps[load.rate_rps] for kind in kinds]
        assert sum(
            groups * group_rps for groups, group_rps in shares
        ) == pytest.approx(load.rate_rps)
        for (groups, group_rps), most_rps in zip(
            shares, carried_rps, strict=True
        ):
            assert not groups or group_rps <= most_rps * (1 + 1e-9)
        total_usd += load.hours * sum(
            groups * kind.usd
            for (groups, _), kind in zip(shares, bound, strict=True)
        )
    assert total_usd <= bounds.whole_usd(bound) * (1 + 1e-9)
