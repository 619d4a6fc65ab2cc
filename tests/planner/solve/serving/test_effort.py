"""Searches that end before they have looked at all: what they say of the rest is true."""

from __future__ import annotations

import json
import math
import random
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from planner.cost.service_price import PriceBook
from planner.solve.serving import answer, replica_capacity
from planner.solve.serving.effort import Effort
from planner.solve.serving.hour_search import HourSearch
from planner.solve.serving.mixed_search import MixedSearch
from planner.solve.serving.search import ServingSearch
from tests.planner.solve.serving.test_hour_search import drawn
from tests.planner.solve.serving.test_mixed_search import (
    StatedJudge,
    priced,
    required,
)

if TYPE_CHECKING:
    from pathlib import Path

    from planner.market.offer import Catalog
    from tests.planner.cli.conftest import Command

STEPS = (0, 300, 1_000, 3_000, 10_000, 100_000)


def check_unseen(found_usd: float, effort: Effort, cheapest_usd: float) -> None:
    """What was found is the cheapest, or that is no less than what was left unseen."""
    assert found_usd >= cheapest_usd - 1e-6
    assert min(found_usd, effort.unseen_usd) <= cheapest_usd + 1e-6
    if effort.unseen_usd == math.inf:
        assert found_usd == cheapest_usd


@pytest.mark.parametrize("seed", range(12))
def test_fleets_that_follow_the_hours_are_left_unseen_above_their_bound(
    catalog: Catalog, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    requirement, search, _, offers = drawn(catalog, seed, monkeypatch)
    whole = HourSearch(requirement, search).cheapest_pair(offers, math.inf)
    cheapest_usd = math.inf if whole is None else float(whole.bill.total)
    for steps in STEPS:
        effort = Effort(steps)
        found = HourSearch(requirement, search).cheapest_pair(
            offers, math.inf, effort
        )
        found_usd = math.inf if found is None else float(found.bill.total)
        check_unseen(found_usd, effort, cheapest_usd)


@pytest.mark.parametrize("seed", range(12))
def test_fleets_of_all_hours_are_left_unseen_above_their_bound(
    catalog: Catalog, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_capacity, "CLOSE_SHARE", 1e-5)
    offers = priced(catalog, random.Random(seed))
    search = ServingSearch(PriceBook({}))
    monkeypatch.setattr(search, "judge", StatedJudge(seed))
    requirement = required(9)
    whole = MixedSearch(requirement, search).cheapest(offers, math.inf)
    cheapest_usd = math.inf if whole is None else float(whole.bill.total)
    for steps in STEPS:
        effort = Effort(steps)
        found = MixedSearch(requirement, search, effort).cheapest(
            offers, math.inf
        )
        found_usd = math.inf if found is None else float(found.bill.total)
        check_unseen(found_usd, effort, cheapest_usd)


@pytest.mark.parametrize(
    ("unseen_usd", "gap"),
    [
        (math.inf, "0"),
        (100.0, "0"),
        (99.95, "0.001"),
        (98.5, "0.015"),
        (0.0, "1.000"),
    ],
)
def test_a_gap_is_the_share_that_may_be_saved(
    unseen_usd: float, gap: str
) -> None:
    """Up to a thousandth: never less than it is."""
    effort = Effort()
    effort.leave(unseen_usd)
    effort.leave(unseen_usd + 1)
    assert effort.gap(Decimal(100)) == Decimal(gap)


SPEC = """\
apiVersion: tonnage/v1
kind: Inference
name: chat
model: {name: llama-3.1-8b}
sla: {ttft_p95: 2s, tpot_p95: 80ms}
traffic:
  peak_rps: 8
  profile: business-hours
  input_tokens: {mean: 500, p95: 1500}
  output_tokens: {mean: 200, p95: 500}
buy: {machine_types: 2, spot: never}
"""


def test_a_plan_says_what_was_not_looked_at(
    tonnage: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "chat.yaml").write_text(SPEC)
    proved = json.loads(tonnage("plan", "chat.yaml", "-f", "json")[1])
    assert proved["solution"]["status"] == "optimal"
    monkeypatch.setattr(answer, "PLAN_STEPS", 0)
    plan = json.loads(tonnage("plan", "chat.yaml", "-f", "json")[1])
    solution = plan["solution"]
    assert solution["status"] == "feasible"
    total, least = (Decimal(each["cost"]["total"]) for each in (plan, proved))
    assert total * (1 - Decimal(solution["gap"])) <= least <= total
    page = tonnage("plan", "chat.yaml")[1]
    assert "two types not all looked at" in page
    reasons = " ".join(tonnage("explain", "chat.yaml")[1].split())
    assert "fleets of two machine types may cost up to" in reasons


def test_that_nothing_meets_a_budget_is_proved_in_any_case(
    tonnage: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "chat.yaml").write_text(
        SPEC.replace("spot: never", "spot: never, budget: 200/month")
    )
    monkeypatch.setattr(answer, "PLAN_STEPS", 0)
    code, page, _ = tonnage("plan", "chat.yaml")
    assert code == 10
    assert "that is proved" in page
