"""Services within one quota: against each machine type in each region alone, hour by hour."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from planner.market.live import LiveFacts, PlaceFacts, QuotaAnswer, QuotaFact
from planner.market.live_catalog import with_live
from planner.market.offer import Catalog, Offer
from planner.workload.quota_share import (
    FleetChoice,
    QuotaQuestion,
    SharedChoice,
    choose_together,
)
from planner.workload.quota_use import fleet_choice, workload_hours
from providers.live.place import LivePlace
from tests.conftest import chat, find, only, present, spec_of
from tests.oracles.standing import standing_nodes
from tests.planner.cli.test_live import NOW, facts_of

REGIONS = ("us-east-1", "us-east-2")
TYPES = ("g6e.xlarge", "g6e.2xlarge", "g6.12xlarge")
ZONES = {"UTC": 0, "Asia/Tokyo": 9}
CLOSES = {"UTC": 19, "Asia/Tokyo": 16}
VCPUS = {"g6e.xlarge": 4, "g6e.2xlarge": 8, "g6.12xlarge": 48}
TEXT = chat(
    traffic="peak_rps: RPS\n  profile: business-hours",
    extra='shutdown: {schedule: "daily 07:00-CLOSES:00 ZONE"}\nbuy: {commit: [none]}',
)
SPECS = [
    TEXT.replace("RPS", rps)
    .replace("ZONE", zone)
    .replace("CLOSES", str(CLOSES[zone]))
    for rps, zone in (("25", "UTC"), ("18", "Asia/Tokyo"), ("12", "UTC"))
]


class Fleet(NamedTuple):
    """A fleet of one machine type in one region: its vCPUs in each minute of a week in UTC."""

    usd: Decimal
    region: str
    vcpus: tuple[int, ...]


@pytest.fixture(scope="module")
def small(catalog: Catalog) -> Catalog:
    return only(
        catalog,
        lambda offer: (
            offer.region in REGIONS
            and offer.instance.instance_type in TYPES
            and offer.purchase == "on_demand"
        ),
    )


def place(region: str, limit: float) -> PlaceFacts:
    quota = QuotaFact(
        machine_types=TYPES,
        purchase="on_demand",
        unit="vcpus",
        id="L-1",
        name="G",
        limit=limit,
        used=0.0,
    )
    answer = QuotaAnswer(
        state="value", as_of=NOW, request="quota", value=(quota,)
    )
    return replace(
        facts_of(LivePlace("aws", region, TYPES), {}),
        quotas={"on_demand": answer},
    )


def facts(first: float, second: float) -> LiveFacts:
    limits = zip(REGIONS, (first, second), strict=True)
    return LiveFacts(places=tuple(place(*limit) for limit in limits))


def chosen(small: Catalog, known: LiveFacts) -> SharedChoice | None:
    """What the product chooses; None where a service has no fleet alone."""

    def found(number: int, caps: Any = ()) -> tuple[Any, FleetChoice | None]:
        spec = spec_of(SPECS[number])
        offers = with_live(small, known, {}, caps)
        solution = find(offers, SPECS[number], keep=0)
        hours = workload_hours(spec, solution)
        return hours, fleet_choice(solution, hours, known, {})

    def answers(
        questions: Sequence[QuotaQuestion],
    ) -> list[FleetChoice | None]:
        return [found(each.number, each.caps)[1] for each in questions]

    first = [found(number) for number in range(len(SPECS))]
    if any(choice is None for _, choice in first):
        return None
    return choose_together(
        [hours for hours, _ in first],
        [present(choice) for _, choice in first],
        answers,
        lambda zone: (60 * ZONES[zone],) * 365,
    )


@pytest.fixture(scope="module")
def every_fleet(small: Catalog) -> list[list[Fleet]]:
    """The fleets of each service: of each machine type in each region."""
    fleets = []
    for text in SPECS:
        zone = "Asia/Tokyo" if "Tokyo" in text else "UTC"
        own = []
        for region, name in itertools.product(REGIONS, TYPES):
            here = only(small, partial(is_of, region=region, name=name))
            solution = find(here, text, keep=0)
            if solution.bill is None:
                continue
            [pool] = solution.pools
            local = standing_nodes(
                solution, pool, partial(is_open, closes=CLOSES[zone])
            )
            ahead = 60 * ZONES[zone]
            vcpus = tuple(
                VCPUS[name] * nodes
                for nodes in (*local[ahead:], *local[:ahead])
            )
            own.append(Fleet(solution.bill.total, region, vcpus))
        fleets.append(own)
    return fleets


def is_open(minute: int, closes: int) -> bool:
    return 7 * 60 <= minute % 1440 < closes * 60


def is_of(offer: Offer, region: str, name: str) -> bool:
    return (offer.region, offer.instance.instance_type) == (region, name)


def brute(
    every_fleet: list[list[Fleet]], limits: dict[str, int]
) -> Decimal | None:
    costs = [
        sum((fleet.usd for fleet in choice), Decimal(0))
        for choice in itertools.product(*every_fleet)
        if all(
            most_at_once(choice, region) <= limit
            for region, limit in limits.items()
        )
    ]
    return min(costs, default=None)


def most_at_once(fleets: Sequence[Fleet], region: str) -> int:
    here = [fleet.vcpus for fleet in fleets if fleet.region == region]
    return max(map(sum, zip(*here, strict=True)), default=0)


LIMITS = [
    (1000, 0),
    (24, 0),
    (20, 0),
    (16, 8),
    (12, 12),
    (28, 4),
    (24, 48),
]


@pytest.mark.parametrize(("first", "second"), LIMITS)
def test_it_is_the_cheapest_of_all_machines_in_all_regions(
    small: Catalog, every_fleet: list[list[Fleet]], first: int, second: int
) -> None:
    choice = chosen(small, facts(first, second))
    usd = None if choice is None else choice.usd
    limits = dict(zip(REGIONS, (first, second), strict=True))
    assert usd == brute(every_fleet, limits)


def test_hours_of_one_night_are_of_another_day(
    small: Catalog, every_fleet: list[list[Fleet]]
) -> None:
    """Services that are busy at other hours share a quota that is too small for their peaks."""
    peaks = [max(own[0].vcpus) for own in every_fleet]
    at_once = max(
        map(sum, zip(*(own[0].vcpus for own in every_fleet), strict=True))
    )
    assert at_once < sum(peaks)
    choice = present(chosen(small, facts(at_once, 0)))
    assert choice.needs == ()
    assert present(chosen(small, facts(at_once - 1, 0))).needs
