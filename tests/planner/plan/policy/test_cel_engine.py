"""The engine of CEL on real documents: sums by hand, and every fault told and none passed."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner import api
from planner.market.price_age import age_days
from planner.plan.policy.judged_plan import JudgedPlan
from planner.plan.policy.rule import read_policy
from planner.plan.policy.verdict import (
    RuleAnswer,
    RuleQuestion,
    Verdict,
    judge_plans,
)
from planner.plan.types import Plan
from tests.conftest import ROOT, TODAY

pytest.importorskip("cel", reason="the policy extra is not installed")
from planner.plan.policy.cel_engine import answers_to


def ask(documents: dict, when: str, unless: str | None = None) -> RuleAnswer:
    question = RuleQuestion(
        today=TODAY, documents=(documents,), rules=((when, unless),)
    )
    (answer,) = answers_to(question)
    return answer


def is_broken(documents: dict, when: str, unless: str | None = None) -> bool:
    answer = ask(documents, when, unless)
    assert answer.fault == ""
    return answer.is_broken


@settings(
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.decimals("0", "2000", places=2))
def test_a_budget_is_exceeded_where_the_bill_is(
    judged: JudgedPlan, documents: dict, limit: Decimal
) -> None:
    total = judged.plan.cost.total
    assert is_broken(documents, f"plan.cost.total > {limit}") == (total > limit)


def test_sums_are_those_of_the_plan(
    judged: JudgedPlan, documents: dict
) -> None:
    plan = judged.plan
    known = [line.usd for line in plan.cost.lines if line.usd is not None]
    text = "sum(plan.cost.lines.filter(l, l.usd != null).map(l, l.usd))"
    assert is_broken(documents, f"{text} > {sum(known) - Decimal('0.01')}")
    assert not is_broken(documents, f"{text} > {sum(known) + Decimal('0.01')}")
    for name, of in (("min", min), ("max", max)):
        text = f"{name}(plan.cost.lines.filter(l, l.usd != null).map(l, l.usd))"
        assert is_broken(documents, f"{text} == {of(known)}")


def test_ages_are_those_of_the_prices(
    judged: JudgedPlan, documents: dict
) -> None:
    ages = [
        age_days(line.price_as_of or "", TODAY)
        for line in judged.plan.cost.lines
        if line.pool
    ]
    oldest = max(age for age in ages if age is not None)
    text = "plan.cost.lines.exists(l, l.pool != null && age_days(l.price_as_of) > {})"
    assert is_broken(documents, text.format(oldest - 1))
    assert not is_broken(documents, text.format(oldest))


@pytest.mark.parametrize("when", ["true", "false"])
@pytest.mark.parametrize("unless", ["true", "false", None])
def test_a_rule_is_broken_when_and_unless(
    documents: dict, when: str, unless: str | None
) -> None:
    wanted = when == "true" and unless != "true"
    assert is_broken(documents, when, unless) == wanted


@pytest.mark.parametrize(
    ("text", "fault", "key"),
    [
        ("spec.labels.owner == ''", "missing key owner", "owner"),
        ('spec.labels["owner"] == ""', "missing key owner", "owner"),
        ("plan.cost.lines.all(l, l.usd_x > 1)", "missing key usd_x", "usd_x"),
        ("plan.cost.total", "neither true nor false", ""),
        ('"yes"', "neither true nor false", ""),
        ("null", "neither true nor false", ""),
        ("plan.cost.lines", "neither true nor false", ""),
        ("plan.cost.total > '5'", "types do not go together", ""),
        ("plan.cost.total * 2 > 5", "numbers of documents are doubles", ""),
        ("plan.shutdown.ttl > 5", "null has no keys|types do not", ""),
        ("plan.cost.lines[999].usd > 1", "index out of bounds", ""),
        ("1 / 0 == 1", "division by zero", ""),
        ("9223372036854775807 + 1 == 1", "overflow", ""),
        ("age_days('never') > 1", "no date: never", ""),
        ("age_days(plan.shutdown.ttl) > 1", "no date", ""),
        ("sum(spec.labels) > 1", "sum", ""),
        ("plan.stack.name.matches('(')", "not a valid regex", ""),
        ("double('x') > 1.0", "float", ""),
        ("timestamp('x') > timestamp('y')", "timestamp|parse", ""),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_has_no_value_is_told_and_never_passes(
    documents: dict, text: str, fault: str, key: str
) -> None:
    import re

    answer = ask(documents, text)
    assert not answer.is_broken
    assert re.search(fault, answer.fault), answer.fault
    assert answer.key == key
    # The same in the exception from the rule.
    answer = ask(documents, "true", text)
    assert answer.fault
    assert answer.expression == 1


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("plan.cost.total >", 1, 18),
        ("true)", 1, 5),
        ("true &&\n  && false", 2, 3),
        ("'abc", 1, 1),
        ("", 1, 1),
        ("plan..cost", 1, 6),
        ("if (x) { y }", 1, None),
    ],
)
def test_a_text_that_is_no_expression_is_told_with_its_place(
    documents: dict, text: str, line: int, column: int | None
) -> None:
    answer = ask(documents, text)
    assert answer.document == -1
    assert answer.fault
    assert answer.line == line
    assert column in (None, answer.column)


def test_all_texts_that_are_no_expressions_are_told(documents: dict) -> None:
    question = RuleQuestion(
        today=TODAY,
        documents=(documents,),
        rules=(("true", None), ("1 +", None), ("true", ")")),
    )
    answers = list(answers_to(question))
    assert [(a.rule, a.expression) for a in answers] == [(1, 0), (2, 1)]


# Of every kind, and quick to plan.
BLUEPRINTS_OF_KINDS = (
    "chat-8b",
    "classify-backlog",
    "pretrain-70b",
    "research-spot",
    "workspace-one-gpu",
)


@pytest.fixture(scope="module")
def verdicts(catalog) -> list[tuple[Plan, dict[str, Verdict]]]:
    """What the ready rules say of plans of every kind, with a spec that has the label owner."""
    guardrails = ROOT / "blueprints" / "policies" / "guardrails.yaml"
    policy = read_policy(guardrails.read_bytes(), "policy.yaml")
    plans = []
    for name in BLUEPRINTS_OF_KINDS:
        spec = (ROOT / "blueprints" / f"{name}.yaml").read_bytes()
        plans.append(api.plan(spec, path=f"{name}.yaml", catalog=catalog))
    found = judge_plans(
        [policy],
        [JudgedPlan(plan=plan, spec_path="x.yaml") for plan in plans],
        lambda question: list(answers_to(question)),
        TODAY,
    )
    rules = len(policy.rules)
    return [
        (
            plan,
            {v.rule.id: v for v in found[rules * n : rules * (n + 1)]},
        )
        for n, plan in enumerate(plans)
    ]


def test_ready_rules_can_be_judged_on_every_kind(verdicts) -> None:
    assert len({plan.workload.kind for plan, _ in verdicts}) == 4
    for _, by_rule in verdicts:
        for verdict in by_rule.values():
            assert "cannot be judged" not in verdict.cause, verdict


def test_ready_rules_say_what_a_loop_by_hand_says(verdicts) -> None:
    """Each over the plan and its fallbacks, in Python and with exact decimals."""
    for plan, by_rule in verdicts:
        variants = [plan.on_rung(n) for n in range(len(plan.fallbacks) + 1)]
        purchases = [
            (pool, part)
            for variant in variants
            for pool in variant.solution.pools
            for part in pool.purchases
        ]
        on_spot = any(part.purchase == "spot" for _, part in purchases)
        run = plan.solution.run
        may_stop = run is not None and run.checkpoint_interval_s <= 7200
        no_end = (plan.shutdown.idle, plan.shutdown.ttl, plan.shutdown.schedule)
        labels = plan.spec.normalized["labels"]
        broken = {
            "hourly-burn": any(v.cost.usd_hour > 1000 for v in variants),
            "owner": "owner" not in labels,
            "spot-with-checkpoints": on_spot
            and not may_stop
            and plan.workload.kind != "batch",
            "auto-shutdown": no_end == (None, None, None)
            and labels.get("env") != "prod",
            "no-unknown-price": any(v.cost.is_partial for v in variants),
            "commitment-term": any(
                part.term and not part.term.startswith("1y")
                for _, part in purchases
            ),
            "wide-band": any(
                v.solution.predicted[metric].high
                > 2 * v.solution.predicted[metric].low
                for v in variants
                for metric in v.solution.limits
            ),
        }
        for rule, is_broken in broken.items():
            passes = by_rule[rule].judgment == "passes"
            assert passes != is_broken, (plan.workload.name, rule)
