"""Budgets over many stacks: against sums by hand, with the stacks that stand."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import Place, SpecError
from planner.plan.budget import Budget, Spending, judge, read_budgets
from tests.conftest import ROOT, chat, present
from tests.planner.cli.conftest import Command

TEAMS = st.sampled_from(["chat", "search", ""])
STACKS = st.lists(
    st.tuples(TEAMS, st.decimals("0", "9999", places=2)), max_size=6
)


def spending(number: int, team: str, usd: Decimal) -> Spending:
    labels = {"team": team, "env": "prod"} if team else {}
    return Spending(name=f"s{number}", labels=labels, usd=usd)


@given(STACKS, TEAMS, st.decimals("1", "20000", places=2))
def test_a_budget_is_exceeded_by_the_sum_of_its_stacks(
    stacks: list[tuple[str, Decimal]], team: str, limit: Decimal
) -> None:
    budget = Budget(
        place=Place("b.yaml", 1, 1),
        name=None,
        labels={"team": team} if team else {},
        limit=limit,
        warn=Decimal("0.8"),
    )
    spent = sum(
        (usd for its_team, usd in stacks if team in ("", its_team)), Decimal(0)
    )
    problems, warnings = judge(
        [budget],
        [spending(number, *stack) for number, stack in enumerate(stacks)],
    )
    assert bool(problems) == (spent > limit)
    assert bool(warnings) == (limit >= spent >= limit * Decimal("0.8"))


SPEC = chat(extra="labels: {team: chat}\nwhere: {clouds: [aws]}")


def total_of(tonnage: Command, path: str) -> Decimal:
    plan = json.loads(tonnage("plan", path, "-f", "json")[1])
    return Decimal(plan["cost"]["total"])


def test_plans_of_one_command_share_a_budget(
    tonnage: Command, here: Path
) -> None:
    (here / "a.yaml").write_text(SPEC)
    (here / "b.yaml").write_text(SPEC.replace("name: chat", "name: other", 1))
    total = total_of(tonnage, "a.yaml")
    (here / "b.budgets").write_text(
        f"budgets: [{{labels: {{team: chat}}, limit: {total * 3 / 2:.2f}}}]\n"
    )
    flags = ("--budgets", "b.budgets")
    assert tonnage("plan", "a.yaml", *flags)[0] == 0
    code, out, told = tonnage("plan", "a.yaml", "b.yaml", *flags)
    assert code == 5
    # The plans are shown all the same.
    assert out.count("a month") >= 2
    assert "b.budgets:1:" in told
    assert "stacks with team: chat would cost" in told


def test_a_stack_that_stands_is_carried(tonnage: Command, here: Path) -> None:
    (here / "a.yaml").write_text(SPEC)
    (here / "b.yaml").write_text(SPEC.replace("name: chat", "name: other", 1))
    total = total_of(tonnage, "a.yaml")
    (here / "b.budgets").write_text(
        f"budgets: [{{limit: {total * 3 / 2:.2f}, warn: 50%}}]\n"
    )
    flags = ("--simulate", "--yes", "--budgets", "b.budgets")
    code, _, told = tonnage("apply", "a.yaml", *flags)
    assert code == 0
    assert "warning: b.budgets:1:11: all stacks would cost" in told
    code, _, told = tonnage("apply", "b.yaml", *flags)
    assert code == 5
    assert "(stands)" in told
    assert tonnage("status", "other", "--simulate")[0] == 6
    # The same stack again is counted once.
    assert tonnage("apply", "a.yaml", *flags)[0] == 0


def test_the_nearest_change_that_is_enough_is_named(
    tonnage: Command, here: Path
) -> None:
    (here / "a.yaml").write_text(SPEC)
    plan = json.loads(tonnage("plan", "a.yaml", "-f", "json")[1])
    changes = [
        change
        for change in plan["solution"]["binding"]
        if Decimal(change["saves_usd_month"] or 0) > 0
    ]
    least = min(changes, key=lambda change: Decimal(change["saves_usd_month"]))
    limit = Decimal(plan["cost"]["total"]) - Decimal("0.01")
    (here / "b.budgets").write_text(
        f"budgets: [{{name: chat, limit: {limit}}}]\n"
    )
    told = tonnage("plan", "a.yaml", "--budgets", "b.budgets")[2]
    assert f"loosen {least['constraint']} of chat ({least['relax_to']})" in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("budgets: [{name: chat}]", "limit is missing"),
        ("budgets: [{limit: 0}]", "too small"),
        ("budget: []", "budgets"),
    ],
)
def test_a_wrong_file_of_budgets_is_refused(text: str, told: str) -> None:
    with pytest.raises(SpecError, match=told) as refusal:
        read_budgets(text.encode(), "b.yaml")
    assert present(refusal.value.problems[0].place).path == "b.yaml"


def test_of_several_specs_the_wish_that_helps_is_named_too(
    tonnage: Command, here: Path
) -> None:
    """As of one spec alone."""
    for name in ("chat-8b", "code-assistant"):
        text = (ROOT / f"blueprints/{name}.yaml").read_text()
        (here / f"{name}.yaml").write_text(text)
    (here / "b.yaml").write_text("budgets: [{limit: 2200}]\n")
    specs = ("chat-8b.yaml", "code-assistant.yaml")
    code, _, told = tonnage("plan", *specs, "--budgets", "b.yaml")
    assert code == 5
    assert "loosen buy of chat-8b" in told


@pytest.mark.parametrize("flags", [("--share",), ("--budgets", "b.yaml")])
def test_a_stack_counts_once(
    tonnage: Command, here: Path, flags: tuple[str, ...]
) -> None:
    (here / "b.yaml").write_text("budgets: [{limit: 500}]\n")
    for name in ("one.yaml", "two.yaml"):
        (here / name).write_text(chat())
    code, _, told = tonnage("plan", "one.yaml", "two.yaml", *flags)
    assert code == 2
    assert "2 of the SPECs are of the stack chat" in told
