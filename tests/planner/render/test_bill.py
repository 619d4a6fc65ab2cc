"""A bill without some price: its total, and what is derived from it, are lower bounds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from planner.render import markdown, text
from planner.render.bill import cost_blocks, exact_total_text
from planner.render.plan import decision_blocks
from tests.stacks.engine.test_simulated import plan_of

if TYPE_CHECKING:
    from planner.plan.types import Plan
    from planner.render.page import Block

TODAY = "2026-11-20"
CHAT = (
    "apiVersion: tonnage/v1\nkind: Inference\nname: chat\n"
    "model: {name: llama-3.1-8b}\n"
    "sla: {ttft_p95: 2s}\n"
    "traffic: {peak_rps: 1, input_tokens: 400, output_tokens: 100}\n"
    "where: {clouds: [gcp], regions: [us-central1]}\n"
)


@pytest.fixture(scope="module")
def whole(catalog) -> Plan:
    return plan_of(catalog, CHAT)


def with_a_hole(plan: Plan) -> Plan:
    """The plan with an unknown price of its last line."""
    *others, last = plan.cost.lines
    hole = replace(last, usd=None, price_found=False)
    return replace(plan, cost=replace(plan.cost, lines=(*others, hole)))


def told_amounts(blocks: list[Block]) -> list[str]:
    """All amounts of some blocks, with their marks."""
    page = text.render(tuple(blocks))
    marked = re.findall(r"(?:>= )?\$[\d,.]+", markdown.render(tuple(blocks)))
    assert sorted(marked) == sorted(re.findall(r"(?:>= )?\$[\d,.]+", page))
    return marked


def test_what_a_lower_bound_gives_is_a_lower_bound(whole: Plan) -> None:
    amounts = told_amounts(decision_blocks(with_a_hole(whole)))
    # The total, both prices of tokens, and that of requests.
    assert len(amounts) == 4
    assert all(amount.startswith(">= ") for amount in amounts)
    assert not any(
        ">=" in told for told in told_amounts(decision_blocks(whole))
    )


def test_the_band_of_a_lower_bound_is_one(whole: Plan) -> None:
    assert whole.cost.band is not None
    plan = with_a_hole(whole)
    [row] = [
        line
        for line in text.render(
            tuple(cost_blocks(plan, today=TODAY, full=True))
        ).splitlines()
        if line.startswith("  total, and its")
    ]
    assert row.count(">= $") == row.count("$") == 3
    assert exact_total_text(plan) in row
