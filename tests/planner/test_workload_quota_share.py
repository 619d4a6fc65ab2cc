"""Fleets that share quotas: no other choice of fleets is cheaper, at every minute of a week."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import TypeAlias

import pytest
from msgspec.structs import replace

from planner.market.live import QuotaCap, QuotaKey
from planner.workload.quota_share import (
    ANY_TIME,
    FleetChoice,
    QuotaQuestion,
    QuotaUse,
    SharedChoice,
    WorkloadHours,
    choose_together,
)

SEEDS = 400
KEYS = [
    QuotaKey("aws", region, "on_demand", "L-1") for region in ("one", "two")
]
# Hours by which zones without summer time are ahead of UTC.
ZONES = {"UTC": 0, "Asia/Tokyo": 9, "America/Phoenix": -7}
WEEK_H = 168
Fleets: TypeAlias = "list[FleetChoice]"


def minutes_ahead(zone: str) -> tuple[int, ...]:
    return (60 * ZONES[zone],) * 365


def drawn_hours(draw: random.Random) -> WorkloadHours:
    if draw.random() < 0.2:
        return ANY_TIME
    day = [draw.choice((0.25, 0.5, 1.0)) for _ in range(24)]
    schedule = draw.choice((None, "weekdays 08:00-18:00 UTC"))
    zone = draw.choice(tuple(ZONES))
    if schedule is not None:
        schedule = schedule.replace("UTC", zone)
    return WorkloadHours(tuple(day * 7), schedule, zone)


def drawn_fleets(
    draw: random.Random, hours: WorkloadHours, limits: dict[QuotaKey, float]
) -> Fleets:
    """Fleets that the account may have alone: more load never takes less of a quota."""
    fleets = [FleetChoice(Decimal(draw.randint(50, 99)), ())] * (
        draw.random() < 0.7
    )
    for _ in range(draw.randint(1, 4)):
        uses = []
        for key in KEYS:
            if draw.random() < 0.3:
                continue
            units = sorted(draw.randint(0, 6) for _ in hours.loads)
            if units[-1] <= limits[key]:
                uses.append(
                    QuotaUse(
                        key=key,
                        limit=limits[key],
                        units_by_load=dict(
                            zip(hours.loads, map(float, units), strict=True)
                        ),
                    )
                )
        fleets.append(FleetChoice(Decimal(draw.randint(1, 60)), tuple(uses)))
    return fleets


class Case:
    """Some workloads, and all the fleets that each may have."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.limits = {key: float(draw.randint(2, 12)) for key in KEYS}
        self.hours = [drawn_hours(draw) for _ in range(draw.randint(2, 4))]
        self.fleets = [
            drawn_fleets(draw, own, self.limits) for own in self.hours
        ]

    def with_limits(self, more: float) -> Case:
        other = object.__new__(Case)
        other.limits = {key: limit + more for key, limit in self.limits.items()}
        other.hours = self.hours
        other.fleets = [
            [
                FleetChoice(
                    fleet.usd,
                    tuple(
                        replace(use, limit=use.limit + more)
                        for use in fleet.uses
                    ),
                )
                for fleet in own
            ]
            for own in self.fleets
        ]
        return other

    def cheapest(self, question: QuotaQuestion) -> FleetChoice | None:
        return min(
            (
                fleet
                for fleet in self.fleets[question.number]
                if all(
                    fleet.units(cap.key, cap.load) <= cap.units
                    for cap in question.caps
                )
            ),
            key=lambda fleet: fleet.usd,
            default=None,
        )

    def chosen(self) -> SharedChoice:
        first = [
            min(fleets, key=lambda fleet: fleet.usd) for fleets in self.fleets
        ]
        return choose_together(
            self.hours,
            first,
            lambda questions: [self.cheapest(each) for each in questions],
            minutes_ahead,
        )

    def load(self, number: int, hour: int) -> float:
        """The load of a workload in an hour of a week in UTC, by hand."""
        hours = self.hours[number]
        if hours.hourly_load is None:
            return 1.0
        local = (hour + ZONES[hours.timezone]) % WEEK_H
        day, hour_of_day = divmod(local, 24)
        is_open = hours.schedule is None or (day < 5 and 8 <= hour_of_day < 18)
        return hours.hourly_load[local] if is_open else -1.0

    def brute(self) -> Decimal | None:
        """Every choice of fleets, held against the quotas in every hour."""
        moments = {
            tuple(self.load(number, hour) for number in range(len(self.hours)))
            for hour in range(WEEK_H)
        }
        return min(
            (
                sum((fleet.usd for fleet in choice), Decimal(0))
                for choice in itertools.product(*self.fleets)
                if self.fits(choice, moments)
            ),
            default=None,
        )

    def fits(
        self, choice: Sequence[FleetChoice], moments: set[tuple[float, ...]]
    ) -> bool:
        return all(
            sum(
                fleet.units(key, load)
                for fleet, load in zip(choice, loads, strict=True)
            )
            <= limit
            for key, limit in self.limits.items()
            for loads in moments
        )


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_no_other_choice_of_fleets_is_cheaper(first: int) -> None:
    for seed in range(first, first + 50):
        case = Case(seed)
        assert case.chosen().usd == case.brute(), seed


def test_cases_are_of_every_sort() -> None:
    """Some fit as they are, some only with other fleets, and some not at all."""
    found = [Case(seed).chosen() for seed in range(100)]
    assert any(one.usd is None and one.needs for one in found)
    assert any(one.usd == one.usd_alone and not one.needs for one in found)
    dearer = [one for one in found if one.usd and one.usd > one.usd_alone]
    assert dearer
    assert all(one.needs for one in dearer)


def test_more_quota_never_costs_more() -> None:
    for seed in range(100):
        usd = [Case(seed).with_limits(more).chosen().usd for more in range(5)]
        costs = [Decimal("Infinity") if one is None else one for one in usd]
        assert costs == sorted(costs, reverse=True), seed


def test_the_caps_of_a_choice_ask_for_its_fleets() -> None:
    for seed in range(100):
        case = Case(seed)
        chosen = case.chosen()
        if chosen.caps is None:
            continue
        fleets = [
            case.cheapest(QuotaQuestion(number, caps))
            for number, caps in enumerate(chosen.caps)
        ]
        assert chosen.usd == sum(
            (fleet.usd for fleet in fleets if fleet is not None), Decimal(0)
        )


def test_fifty_alike_ask_once_for_each_fleet_that_is_wanted() -> None:
    """A quota for half of them: each is asked about what it may be, and no more."""
    key = KEYS[0]
    use = QuotaUse(key=key, limit=200.0, units_by_load={1.0: 8.0, -1.0: 0.0})
    asked: list[QuotaQuestion] = []

    def answers(questions: Sequence[QuotaQuestion]) -> Fleets:
        asked.extend(questions)
        return [
            FleetChoice(Decimal(100 + each.number), ()) for each in questions
        ]

    chosen = choose_together(
        [ANY_TIME] * 50,
        [FleetChoice(Decimal(90), (use,))] * 50,
        answers,
        minutes_ahead,
    )
    # The first 25 go elsewhere: that costs them the least.
    assert chosen.usd == 25 * 90 + sum(range(100, 125))
    assert len(asked) == 50
    assert chosen.caps is not None
    assert chosen.caps[-1] == ()
    assert chosen.caps[0] == (QuotaCap(key, 1.0, 7.0),)
