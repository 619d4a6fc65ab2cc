"""Services on other machines than alone, against every choice of places in turn."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from planner.workload.joint_move import (
    MOST_PLANS,
    at_moves,
    cheapest_moves,
    planned_moves,
)
from planner.workload.sharing import AcceleratorPlace
from tests.planner.test_workload_portfolio import (
    ACCELERATOR,
    PLACE,
    member,
    together_at,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from planner.market.mix import PlaceKey
    from planner.workload.sharing import SharingService
    from tests.planner.cli.conftest import Command

OTHER = ("aws", "g7e.2xlarge", "us-west-2")
THIRD = ("gcp", "g2-standard-4", "us-east4")
MACHINES = (PLACE, OTHER, THIRD)
# USD an hour on demand, for a year and for three: where a commitment saves most, an hour on demand
# costs most.
PRICES = {
    PLACE: (Decimal(3), Decimal("2.6"), Decimal("2.2")),
    OTHER: (Decimal("2.8"), Decimal("2.7"), Decimal("2.5")),
    THIRD: (Decimal(4), Decimal(2), Decimal("1.5")),
}
CATALOG = SimpleNamespace(
    offers_by_place={
        machines: {
            purchase: SimpleNamespace(usd_hour=usd)
            for purchase, usd in zip(
                ("on_demand", "reserved_1y", "reserved_3y"), prices, strict=True
            )
        }
        for machines, prices in PRICES.items()
    },
    owned=(),
    price_book=SimpleNamespace(surcharges=SimpleNamespace(factor=Decimal(1))),
)
FULL_WEEK = (1,) * 168


def together_usd(members: Sequence[SharingService]) -> Decimal:
    bills = together_at(list(members), CATALOG).bills
    return sum((bill.shared_usd for bill in bills), Decimal(0))


def at(
    service: SharingService,
    machines: PlaceKey,
    usd: Decimal,
    dearer_usd: Decimal = Decimal(0),
) -> SharingService:
    [pool] = service.pools
    return replace(
        service,
        pools=(replace(pool, place=machines, machines_usd=usd),),
        total_usd=usd + 100,
        dearer_usd=dearer_usd,
    )


def place_of(machines: PlaceKey) -> AcceleratorPlace:
    return AcceleratorPlace(machines[0], machines[2], ACCELERATOR)


def alone_usd(hourly: Sequence[int], machines: PlaceKey) -> Decimal:
    """Return what machines cost alone, USD a month, of all bases and commitments the cheapest."""
    on_demand, *committed = PRICES[machines]
    return min(
        base * term * 730
        + on_demand
        * sum(max(nodes - base, 0) for nodes in hourly)
        * 730
        / len(hourly)
        for base in range(max(hourly) + 1)
        for term in committed
    ).quantize(Decimal("0.01"))


def drawn(
    draw: random.Random,
) -> tuple[
    list[SharingService], dict[tuple[int, AcceleratorPlace], SharingService]
]:
    """Draw three services where each costs least, and most of what they would have elsewhere."""
    members = []
    moved = {}
    for number in range(3):
        hours = [draw.choice((0, 0, 1, 3)) for _ in range(168)]
        fleets = []
        for machines in MACHINES:
            # It needs more machines of one type than of another.
            groups = draw.choice((1, 2))
            hourly = tuple(groups * nodes for nodes in hours)
            fleets.append((alone_usd(hourly, machines), machines, hourly))
        least_usd, *_ = cheapest = min(fleets)
        for usd, machines, hourly in fleets:
            service = at(
                member(f"s{number}", hourly), machines, usd, usd - least_usd
            )
            if machines == cheapest[1]:
                members.append(service)
            elif draw.random() < 0.9:
                moved[number, place_of(machines)] = service
    return members, moved


@pytest.mark.parametrize("seed", range(40))
def test_no_choice_of_places_costs_less(seed: int) -> None:
    members, moved = drawn(random.Random(seed))
    moves = cheapest_moves(members, moved, together_usd)
    choices = [
        [own, *(each for (at, _), each in moved.items() if at == number)]
        for number, own in enumerate(members)
    ]
    assert together_usd(at_moves(members, moved, moves)) == min(
        together_usd(choice) for choice in product(*choices)
    )


@pytest.mark.parametrize("seed", range(20))
def test_nobody_pays_more_together_than_alone(seed: int) -> None:
    """A service that has other machines for the others is paid what they cost more."""
    members, moved = drawn(random.Random(seed))
    moves = cheapest_moves(members, moved, together_usd)
    alone = {each.name: each.total_usd for each in members}
    bills = together_at(at_moves(members, moved, moves), CATALOG).bills
    assert {bill.name: bill.alone_usd for bill in bills} == alone
    assert all(bill.shared_usd <= bill.alone_usd for bill in bills)


def test_only_services_that_may_commit_go_where_another_is() -> None:
    here, there = (
        at(member(name, FULL_WEEK), machines, Decimal(1000))
        for name, machines in (("here", PLACE), ("there", OTHER))
    )
    without_terms = replace(here, terms=())
    kept = member("kept", FULL_WEEK, may_share=False)
    members = [here, without_terms, kept, there]
    planned = planned_moves(members, [[]] * 4)
    assert planned.are_all
    assert set(planned.services) == {
        (0, place_of(OTHER)),
        (3, place_of(PLACE)),
    }
    alike = planned_moves([here, replace(here, name="too")], [[], []])
    assert alike.are_all
    assert not alike.services
    # Nobody shares with one that is alone, wherever it is.
    alone = planned_moves([here, kept], [[place_of(THIRD)], []])
    assert alone.are_all
    assert not alone.services


def test_places_that_are_the_best_of_none_are_planned_too() -> None:
    here = at(member("here", FULL_WEEK), PLACE, Decimal(1000))
    planned = planned_moves(
        [here, replace(here, name="too")], [[place_of(THIRD)], []]
    )
    assert planned.services == ((0, place_of(THIRD)), (1, place_of(THIRD)))


def test_of_too_many_places_those_come_first_that_services_have() -> None:
    count = MOST_PLANS // 2
    many = [
        at(member(f"s{n}", FULL_WEEK), (PLACE, OTHER)[n % 2], Decimal(1000))
        for n in range(count)
    ]
    rivals = [[place_of(THIRD), AcceleratorPlace("azure", "eastus", "a10")]]
    planned = planned_moves(many, rivals + [[place_of(THIRD)]] * (count - 1))
    assert not planned.are_all
    assert {place for _, place in planned.services} == {
        place_of(PLACE),
        place_of(OTHER),
        place_of(THIRD),
    }
    assert len(planned.services) == MOST_PLANS


SPEC = """apiVersion: tonnage/v1
kind: Inference
name: NAME
model: {name: llama-3.1-8b}
sla: {ttft_p95: 1s, tpot_p95: 50ms}
traffic:
  peak_rps: RPS
  input_tokens: {mean: 1000, p95: 3000}
  output_tokens: {mean: 250, p95: 800}
  profile: PROFILE
buy: {commit: [none, 1y, 3y]}
WHERE
"""


def test_fleets_are_those_of_specs_that_say_so(
    tonnage: Command, here: Path
) -> None:
    """A choice that is narrowed for all of them costs no less than one that is free.

    At which rates a service moves is a matter of the fit.
    """

    def shared(peak: int, where: str = "") -> tuple[dict[str, Any], str]:
        for name, rps, profile, narrowed in (
            ("days", 50, "business-hours", ""),
            ("always", peak, "diurnal", where),
        ):
            text = SPEC.replace("NAME", name).replace("RPS", str(rps))
            text = text.replace("PROFILE", profile)
            (here / f"{name}.yaml").write_text(text.replace("WHERE", narrowed))
        code, out, _ = tonnage(
            "plan", "--share", "-f", "json", "days.yaml", "always.yaml"
        )
        assert code == 0
        document = json.loads(out)
        return {each["name"]: each for each in document["workloads"]}, document[
            "total"
        ]["together"]["usd"]

    peak, free, free_usd = next(
        (peak, found, usd)
        for peak in (50, 40, 45, 55)
        for found, usd in [shared(peak)]
        if "move" in found["always"]
    )
    assert "move" not in free["days"]
    move = free["always"]["move"]
    narrowed, narrowed_usd = shared(peak, move["where"])
    assert "move" not in narrowed["always"]
    assert narrowed_usd == free_usd
    assert narrowed["always"]["fleet"] == free["always"]["fleet"]
    assert Decimal(narrowed["always"]["alone"]["usd"]) - Decimal(
        free["always"]["alone"]["usd"]
    ) == Decimal(move["dearer_usd"])
    code, page, _ = tonnage("plan", "--share", "days.yaml", "always.yaml")
    assert code == 0
    assert "these fleets were chosen" not in page
