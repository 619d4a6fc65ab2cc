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
from planner.plan.canonical import parse_plan
from planner.plan.status import StackFacts, StackStatus
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


AMOUNTS = st.tuples(st.decimals("0", "9999", places=2), st.booleans())


@given(st.lists(AMOUNTS, max_size=6), st.decimals("1", "20000", places=2))
def test_what_may_exceed_a_budget_is_not_within_it(
    amounts: list[tuple[Decimal, bool]], limit: Decimal
) -> None:
    """An unknown price is any number from 0, so a lower bound below the limit decides nothing."""
    spendings = [
        Spending(
            name=f"s{number}",
            labels={},
            usd=usd,
            is_complete=is_complete,
            unpriced=() if is_complete else ("public address",),
        )
        for number, (usd, is_complete) in enumerate(amounts)
    ]
    budget = Budget(
        place=Place("b.yaml", 1, 1),
        name=None,
        labels={},
        limit=limit,
        warn=Decimal(1),
    )
    problems, _ = judge([budget], spendings)
    spent = sum((usd for usd, _ in amounts), Decimal(0))
    is_complete = all(is_complete for _, is_complete in amounts)
    assert bool(problems) == (spent > limit or not is_complete)
    for problem in problems:
        assert (">= $" in problem.message) == (not is_complete)
        assert ("no price is known of public address" in problem.cause) == (
            not is_complete
        )


# At a small cloud only the machines have a known price.
PARTLY_PRICED = chat(extra="where: {clouds: [lambda]}")


def test_a_plan_of_which_a_price_is_unknown_is_within_no_budget(
    tonnage: Command, here: Path
) -> None:
    (here / "a.yaml").write_text(PARTLY_PRICED)
    plan = json.loads(tonnage("plan", "a.yaml", "-f", "json")[1])
    unpriced = [
        line["name"] for line in plan["cost"]["lines"] if line["usd"] is None
    ]
    limit = Decimal(plan["cost"]["total"]) * 2
    (here / "b.budgets").write_text(f"budgets: [{{limit: {limit:.2f}}}]\n")
    code, _, told = tonnage("plan", "a.yaml", "--budgets", "b.budgets")
    assert code == 5
    assert "all stacks would cost >= $" in told
    assert f"no price is known of {', '.join(unpriced)}" in told
    # The same of the other way to keep to an amount.
    (here / "aws.yaml").write_text(SPEC)
    growth = ("--fail-if", f"+{limit:.2f}/month")
    assert tonnage("diff", "aws.yaml", "a.yaml", *growth)[0] == 5


def test_what_stands_with_an_unknown_price_is_counted_as_such(
    tonnage: Command, here: Path
) -> None:
    (here / "a.yaml").write_text(PARTLY_PRICED)
    assert tonnage("plan", "a.yaml", "-o", "a.plan.json")[0] == 0
    plan = parse_plan((here / "a.plan.json").read_bytes(), "a.plan.json")
    facts = StackFacts.of(plan)
    status = StackStatus(
        stack="chat",
        plan="",
        state_sha256="",
        complete=True,
        operation="applied",
        resources=(),
        outputs={},
        facts=facts,
    )
    stands = present(Spending.of_stack(status))
    planned = Spending.of_plan(plan)
    assert (stands.usd, stands.is_complete) == (planned.usd, False)
    limit = stands.usd * 2
    budget = Budget(
        place=Place("b.yaml", 1, 1),
        name=None,
        labels={},
        limit=limit,
        warn=Decimal(1),
    )
    [problem], _ = judge([budget], [stands])
    assert "no price is known of a part of chat" in problem.cause


def test_a_budget_of_a_spec_says_what_is_not_in_the_total(
    tonnage: Command, here: Path
) -> None:
    (here / "a.yaml").write_text(PARTLY_PRICED + "buy: {budget: 90000/month}\n")
    code, page, _ = tonnage("plan", "a.yaml")
    assert code == 0
    told = " ".join(page.split())
    assert "so it may be more than the budget" in told
    assert "! no price is known of boot disks" in told


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
