"""The engine of CEL on real documents: sums by hand, and every fault told and none passed."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.market.price_age import age_days
from planner.plan.policy.judged_plan import JudgedPlan
from planner.plan.policy.verdict import RuleAnswer, RuleQuestion
from tests.conftest import TODAY

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
