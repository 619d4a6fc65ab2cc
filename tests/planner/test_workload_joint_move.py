"""Services on machines that another one has, against every choice of services in turn."""

from __future__ import annotations

import random
import re
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from planner.workload.joint_move import (
    MOST_PLANS,
    MovedServices,
    best_move,
    planned_moves,
)
from tests.planner.test_workload_portfolio import (
    PLACE,
    catalog_of,
    member,
    together_at,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from planner.market.mix import PlaceKey
    from planner.workload.sharing import SharingService
    from tests.planner.cli.conftest import Command

OTHER = ("aws", "g7e.2xlarge", "us-east-1")
THIRD = ("gcp", "g2-standard-4", "us-east4")
PRICES = {
    "on_demand": Decimal(3),
    "reserved_1y": Decimal(2),
    "reserved_3y": Decimal(1),
}
CATALOG = catalog_of(PRICES, places=(PLACE, OTHER, THIRD))


def together_usd(members: Sequence[SharingService]) -> Decimal:
    bills = together_at(list(members), CATALOG).bills
    return sum((bill.shared_usd for bill in bills), Decimal(0))


def at(
    service: SharingService, place: PlaceKey, usd: Decimal
) -> SharingService:
    [pool] = service.pools
    return replace(
        service,
        pools=(replace(pool, place=place, machines_usd=usd),),
        total_usd=usd + 100,
    )


def drawn(draw: random.Random, name: str) -> SharingService:
    hourly = tuple(draw.choice((0, 0, 1, 3)) for _ in range(168))
    usd = Decimal(draw.randint(500, 3000))
    return at(member(name, hourly), draw.choice((PLACE, OTHER, THIRD)), usd)


@pytest.mark.parametrize("seed", range(40))
def test_no_other_choice_of_services_at_one_place_costs_less(seed: int) -> None:
    draw = random.Random(seed)
    members = [drawn(draw, f"s{number}") for number in range(3)]
    moved: MovedServices = {
        (number, place): at(
            members[number], place, Decimal(draw.randint(500, 4000))
        )
        for number, place in planned_moves(members)
        if draw.random() < 0.9
    }
    costs = {together_usd(members)}
    for place in (PLACE, OTHER, THIRD):
        for stays in product((True, False), repeat=3):
            costs.add(
                together_usd(
                    [
                        service if stay else moved.get((number, place), service)
                        for number, (stay, service) in enumerate(
                            zip(stays, members, strict=True)
                        )
                    ]
                )
            )
    move = best_move(members, moved, together_usd)
    if move is None:
        assert min(costs) == together_usd(members)
    else:
        assert move.usd == min(costs)
        assert move.saved_usd == together_usd(members) - move.usd > 0


def test_only_services_that_may_commit_go_where_another_is() -> None:
    hourly = (1,) * 168
    here, there = (
        at(member(name, hourly), place, Decimal(1000))
        for name, place in (("here", PLACE), ("there", OTHER))
    )
    without_terms = replace(here, terms=())
    kept = member("kept", hourly, may_share=False)
    members = [here, without_terms, kept, there]
    assert set(planned_moves(members)) == {(0, OTHER), (3, PLACE)}
    assert planned_moves([here, replace(here, name="too")]) == ()


def test_too_many_fleets_are_not_planned() -> None:
    hourly = (1,) * 168
    many = [
        at(member(f"s{n}", hourly), (PLACE, OTHER)[n % 2], Decimal(1000))
        for n in range(MOST_PLANS + 2)
    ]
    assert len(planned_moves(many[:MOST_PLANS])) == MOST_PLANS
    assert planned_moves(many) == ()


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


def test_what_is_named_costs_as_much_when_a_spec_says_so(
    tonnage: Command, here: Path
) -> None:
    """Fleets that are narrowed to one place cost less together than those that are free."""
    nights = "[9,9,9,9,9,9,1,1,1,1,1,1,1,1,1,1,1,1,9,9,9,9,9,9]"
    where = ""

    def page() -> str:
        for name, rps, profile, narrowed in (
            ("days", "30", "business-hours", ""),
            ("nights", "40", nights, where),
        ):
            text = SPEC.replace("NAME", name).replace("RPS", rps)
            text = text.replace("PROFILE", profile)
            (here / f"{name}.yaml").write_text(text.replace("WHERE", narrowed))
        code, out, _ = tonnage("plan", "--share", "days.yaml", "nights.yaml")
        assert code == 0
        return " ".join(out.split())

    free = page()
    found = re.search(
        r"nights on .*? too: all together cost (\S+) a month then, (\S+) less: write "
        r"(where: \{.*\}\}) in nights",
        free,
    )
    assert found is not None, free
    usd, _, where = found.groups()
    assert "others, each on machines that another workload has" in free
    narrowed = page()
    assert f"2 services together · {usd} a month" in narrowed
    assert " less: write where" not in narrowed
