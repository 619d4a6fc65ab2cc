"""Groups by the hour: equal to all choices counted out, and to a solver that nobody here wrote."""

from __future__ import annotations

import itertools
import math
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from msgspec.structs import replace
from scipy.optimize import Bounds, LinearConstraint, milp

from planner.solve.serving.hour_program import (
    HourKind,
    HourLoad,
    HourProgram,
    no_kind,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.solve.serving.cheapest_round import Counts

Kinds = tuple[HourKind, HourKind]


def drawn_kind(
    draw: random.Random, rates: Sequence[float], most: int
) -> HourKind:
    group_rps = draw.uniform(0.6, 4)
    always = draw.choice((0, 1, most))
    return HourKind(
        group_rps=dict.fromkeys(rates, group_rps),
        most_groups=most,
        machine_usd=draw.uniform(1, 9),
        other_usd=draw.uniform(0, 1),
        start_usd=draw.choice((0.5, 1.0, 3.0)),
        opening_usd=draw.choice((0.0, 0.5)),
        owned_groups=draw.choice((0, 0, 1)),
        always_usd=draw.uniform(5, 40) if always else math.inf,
        most_always=always,
    )


def committed(kind: HourKind) -> HourKind:
    """The same, sold by commitment alone."""
    return replace(
        kind,
        machine_usd=math.inf,
        always_usd=7 * kind.machine_usd,
        most_always=kind.most_groups,
    )


def weighted(kinds: Kinds, rate_rps: float) -> Kinds:
    """Kinds with the weights of what they carry."""
    first, second = (
        replace(kind, weight=round(10_000 * kind.group_rps[rate_rps]))
        for kind in kinds
    )
    return first, second


def states_of(kinds: Kinds, hour: HourLoad) -> list[Counts]:
    """All groups that carry an hour."""
    first, second = (range(kind.most_groups + 1) for kind in kinds)
    return [
        (groups, beside)
        for groups in first
        for beside in second
        if enough(kinds, hour, (groups, beside))
    ]


def commitments(kinds: Kinds) -> list[Counts]:
    """All numbers of groups that may be committed to."""
    first, second = (range(kind.most_always + 1) for kind in kinds)
    return [(groups, beside) for groups in first for beside in second]


def cost_usd(
    kinds: Kinds,
    hours: Sequence[HourLoad],
    counts: Sequence[Counts],
    always: Counts,
) -> float:
    """What some groups cost, by the words of the docstring."""
    usd = 0.0
    for number, kind in enumerate(kinds):
        if always[number]:
            usd += always[number] * kind.always_usd
        before = counts[-1][number]
        was_open = hours[-1].hours > 0
        for hour, each in zip(hours, counts, strict=True):
            groups = each[number]
            usd += hour.hours * groups * kind.other_usd
            if (paid := groups - kind.owned_groups - always[number]) > 0:
                usd += hour.hours * paid * kind.machine_usd
            each_usd = kind.start_usd if was_open else kind.opening_usd
            usd += each_usd * max(0, groups - before)
            was_open = hour.hours > 0
            before = groups
    return usd


def enough(kinds: Kinds, hour: HourLoad, counts: Counts) -> bool:
    """Whether no group gets more than it carries, when a router picks them by weight."""
    if not hour.hours:
        return counts == (0, 0)
    drawn = sum(
        groups * kind.weight for kind, groups in zip(kinds, counts, strict=True)
    )
    return drawn > 0 and all(
        kind.weight / drawn * hour.rate_rps
        <= kind.group_rps[hour.rate_rps] * (1 + 1e-6)
        for kind, groups in zip(kinds, counts, strict=True)
        if groups
    )


def by_counting(kinds: Kinds, hours: Sequence[HourLoad]) -> float:
    states = [states_of(kinds, hour) for hour in hours]
    return min(
        (
            cost_usd(kinds, hours, counts, always)
            for always in commitments(kinds)
            for counts in itertools.product(*states)
        ),
        default=math.inf,
    )


def check_cheapest(
    kinds: Kinds, hours: Sequence[HourLoad], expected: float
) -> None:
    """The groups that are found carry all hours, and cost what is expected."""
    found = HourProgram(kinds, hours).cheapest()
    assert (found is None) == (expected == math.inf)
    if found is None:
        return
    assert all(
        enough(kinds, hour, counts)
        for hour, counts in zip(hours, found, strict=True)
    )
    usd = min(
        cost_usd(kinds, hours, found, always) for always in commitments(kinds)
    )
    assert usd == pytest.approx(expected)


@pytest.mark.parametrize("committed_kinds", [0, 1, 2])
@pytest.mark.parametrize("seed", range(120))
def test_no_groups_cost_less(seed: int, committed_kinds: int) -> None:
    """All numbers of groups of both kinds in all hours, with commitments and what is owned.

    Of both kinds, of one or of none there is nothing on demand.
    """
    draw = random.Random(seed)
    rates = [draw.uniform(0.5, 5) for _ in range(3)]
    hours = [
        HourLoad(draw.choice(rates), draw.choice((1.0, 1.0, 0.5, 2.0)))
        for _ in range(4)
    ]
    if draw.random() < 0.3:
        hours[draw.randrange(4)] = HourLoad(rates[0], 0.0)
    first, second = weighted(
        (drawn_kind(draw, rates, 2), drawn_kind(draw, rates, 2)), rates[0]
    )
    kinds = (
        committed(first) if committed_kinds > 0 else first,
        committed(second) if committed_kinds > 1 else second,
    )
    expected = by_counting(kinds, hours)
    check_cheapest(kinds, hours, expected)


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize("seed", range(200))
def test_no_groups_of_one_kind_cost_less(
    seed: int, *, is_committed: bool
) -> None:
    """One kind alone, over more hours, some of them closed, and up to four groups."""
    draw = random.Random(seed)
    rates = [draw.uniform(0.5, 6) for _ in range(4)]
    hours = [
        HourLoad(draw.choice(rates), draw.choice((0.0, 0.5, 1.0, 1.0, 2.0)))
        for _ in range(6)
    ]
    hours[draw.randrange(6)] = HourLoad(max(rates), 1.0)
    kind, _ = weighted((drawn_kind(draw, rates, 4),) * 2, rates[0])
    kinds = (committed(kind) if is_committed else kind, no_kind(hours))
    expected = by_counting(kinds, hours)
    check_cheapest(kinds, hours, expected)


def by_milp(kinds: Kinds, hours: Sequence[HourLoad]) -> float:
    """The same as a program of whole numbers: groups and starts of both kinds in each hour."""
    length = len(hours)
    size = 4 * length
    costs = np.zeros(size)
    rows, least = [], []
    for number, hour in enumerate(hours):
        carried = np.zeros(size)
        for index, kind in enumerate(kinds):
            groups, starts = (
                (2 * index + offset) * length + number for offset in (0, 1)
            )
            costs[groups] = hour.hours * (kind.machine_usd + kind.other_usd)
            costs[starts] = kind.start_usd
            carried[groups] = kind.group_rps[hour.rate_rps]
            begun = np.zeros(size)
            begun[starts] = 1
            begun[groups] -= 1
            begun[2 * index * length + (number - 1) % length] += 1
            rows.append(begun)
            least.append(0.0)
        rows.append(carried)
        least.append(max(hour.rate_rps, 1e-3))
    answer = milp(
        costs,
        constraints=LinearConstraint(np.array(rows), np.array(least)),
        integrality=np.ones(size),
        bounds=Bounds(0, 60),
    )
    assert answer.success
    return float(answer.fun)


@pytest.mark.parametrize("seed", range(12))
def test_a_day_costs_what_a_solver_says(seed: int) -> None:
    """A curve over 24 hours, with starts; weights are those of what groups carry."""
    draw = random.Random(seed)
    hours = [
        HourLoad(5 - 4.5 * math.cos(hour / 24 * math.tau), 1.0)
        for hour in range(24)
    ]
    rates = [hour.rate_rps for hour in hours]
    first, second = (
        HourKind(
            group_rps=dict.fromkeys(rates, group_rps),
            most_groups=30,
            machine_usd=group_rps * draw.uniform(1, 2),
            other_usd=0.2,
            start_usd=draw.choice((0.0, 0.4, 1.5)),
        )
        for group_rps in (1.0, 3.0)
    )
    program = HourProgram((first, second), hours)
    found = program.cheapest()
    assert found is not None
    usd = cost_usd((first, second), hours, found, (0, 0))
    assert usd == pytest.approx(by_milp((first, second), hours), rel=1e-6)


@pytest.mark.parametrize("promise", [0.9, 0.99, 0.999, 0.9999])
def test_enough_groups_are_up_as_often_as_promised(promise: float) -> None:
    """In each hour, by all groups that may be up and down."""
    hours = [HourLoad(rate_rps, 1.0) for rate_rps in (0.4, 1.5, 3.0, 6.0)]
    rates = [hour.rate_rps for hour in hours]
    first, second = (
        HourKind(
            group_rps=dict.fromkeys(rates, group_rps),
            weight=round(1000 * group_rps),
            up_share=up_share,
            most_groups=12,
            machine_usd=group_rps,
            other_usd=0.0,
        )
        for group_rps, up_share in ((1.0, 0.98), (2.6, 0.95))
    )
    found = HourProgram((first, second), hours, promise).cheapest()
    assert found is not None
    for hour, counts in zip(hours, found, strict=True):
        chance = 0.0
        for up in itertools.product(*(range(count + 1) for count in counts)):
            carried_rps = up[0] * 1.0 + up[1] * 2.6
            if carried_rps >= hour.rate_rps * (1 - 1e-9):
                chance += math.prod(
                    math.comb(count, number)
                    * kind.up_share**number
                    * (1 - kind.up_share) ** (count - number)
                    for count, number, kind in zip(
                        counts, up, (first, second), strict=True
                    )
                )
        assert chance >= promise
