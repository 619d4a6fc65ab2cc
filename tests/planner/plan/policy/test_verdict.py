"""Verdicts, with an engine that is scripted: waivers, fallbacks, and no error that passes."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from planner.errors import Place, SpecError
from planner.plan.amount import CostDelta
from planner.plan.diff_report import plans_document
from planner.plan.policy.judged_plan import JudgedPlan
from planner.plan.policy.verdict import (
    RuleAnswer,
    RuleQuestion,
    Verdict,
    judge_plans,
)
from tests.conftest import TODAY
from tests.planner.plan.policy.conftest import SPEC, policy_of

RULE = {"when": "plan.cost.total > 5"}
WAIVER = {"rule": "r0", "owner": "ann", "reason": "a test", "until": TODAY}


def scripted(**answer) -> Callable:
    """An engine that gives one answer to everything."""

    def judge(question: RuleQuestion) -> list[RuleAnswer]:
        return [
            RuleAnswer(document=document, rule=rule, **answer)
            for document in range(len(question.documents))
            for rule in range(len(question.rules))
        ]

    return judge


def verdict_of(judged: JudgedPlan, rule: dict, waivers=(), **answer) -> Verdict:
    policy = policy_of(rule, waivers=waivers)
    (verdict,) = judge_plans([policy], [judged], scripted(**answer), TODAY)
    return verdict


DAYS = st.dates().filter(lambda day: 2001 <= day.year <= 2098)


@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    severity=st.sampled_from(["deny", "warn"]),
    is_broken=st.booleans(),
    fault=st.sampled_from(["", "missing key x"]),
    until=st.none() | DAYS,
    scope=st.sampled_from(
        [
            {},
            {"name": "chat"},
            {"name": "other"},
            {"labels": {"team": "chat"}},
            {"labels": {"team": "chat", "env": "dev"}},
        ]
    ),
)
def test_a_rule_passes_only_when_it_was_judged_and_holds(
    judged: JudgedPlan, severity, is_broken, fault, until, scope
) -> None:
    waivers = (
        ({**WAIVER, **scope, "until": until.isoformat()},) if until else ()
    )
    verdict = verdict_of(
        replace(judged, plan=replace(judged.plan, fallbacks=())),
        {**RULE, "severity": severity},
        waivers,
        is_broken=is_broken,
        fault=fault,
    )
    covers = scope in ({}, {"name": "chat"}, {"labels": {"team": "chat"}})
    holds = covers and until is not None and until.isoformat() >= TODAY
    if not is_broken and not fault:
        assert verdict.judgment == "passes"
    elif holds:
        assert verdict.judgment == "waived"
    else:
        wanted = "warns" if severity == "warn" and not fault else "denies"
        assert verdict.judgment == wanted
        ended = bool(until) and covers
        assert (f"the waiver of ann ended on {until}" in verdict.cause) == ended


def test_a_waiver_holds_through_its_last_day(judged: JudgedPlan) -> None:
    policy = policy_of(RULE, waivers=(WAIVER,))
    judge = scripted(is_broken=True)
    for today, judgment in ((TODAY, "waived"), ("2026-11-23", "denies")):
        (verdict,) = judge_plans([policy], [judged], judge, today)
        assert verdict.judgment == judgment


def test_what_may_be_bought_instead_is_judged_too(judged: JudgedPlan) -> None:
    def judge(question: RuleQuestion) -> list[RuleAnswer]:
        places = [d["plan"]["solution"]["pools"] for d in question.documents]
        return [
            RuleAnswer(document=number, rule=0, is_broken=pools != places[0])
            for number, pools in enumerate(places)
        ]

    (verdict,) = judge_plans([policy_of(RULE)], [judged], judge, TODAY)
    assert verdict.judgment == "denies"
    assert "with fallback 1 of the plan" in verdict.cause
    alone = replace(judged, plan=replace(judged.plan, fallbacks=()))
    (verdict,) = judge_plans([policy_of(RULE)], [alone], judge, TODAY)
    assert verdict.judgment == "passes"


def test_several_plans_and_policies_are_told_apart(judged: JudgedPlan) -> None:
    asked = []

    def judge(question: RuleQuestion) -> list[RuleAnswer]:
        asked.append(question)
        return scripted()(question)

    other = replace(judged, plan=replace(judged.plan, fallbacks=()))
    policies = [policy_of(RULE, RULE | {"id": "x"}), policy_of(RULE)]
    verdicts = judge_plans(policies, [judged, other], judge, TODAY)
    assert len(verdicts) == 6
    (question,) = asked
    assert len(question.documents) == len(judged.plan.fallbacks) + 2


@pytest.mark.parametrize(
    ("rule", "line", "start"),
    [
        ({"about": "where.clouds"}, None, "clouds"),
        ({"about": "where.regions"}, None, "where"),
        ({"about": "buy.budget"}, 2, "apiVersion"),
        ({"when": "spec.sla.limits == []"}, None, "sla"),
        ({"when": "plan.spec.normalized.labels.team == ''"}, None, "team"),
    ],
)
def test_a_denial_names_the_line_of_the_spec(
    judged: JudgedPlan, rule: dict, line: int | None, start: str
) -> None:
    place = verdict_of(judged, {**RULE, **rule}, is_broken=True).place
    assert place.path == "chat.yaml"
    text = SPEC.splitlines()[place.line - 1]
    assert text[place.column - 1 :].startswith(start)
    assert line in (None, place.line)


def test_without_a_key_or_a_file_the_place_is_the_spec(
    judged: JudgedPlan,
) -> None:
    assert verdict_of(judged, RULE, is_broken=True).place == Place("chat.yaml")
    gone = replace(judged, spec_bytes=None)
    about = {**RULE, "about": "where.clouds"}
    assert verdict_of(gone, about, is_broken=True).place == Place("chat.yaml")


def test_a_denial_says_what_the_rule_has_read(judged: JudgedPlan) -> None:
    rule = {
        "when": 'plan.cost.total > 5 && spec.labels.team == "chat" && has(spec.endpoint)'
    }
    cause = verdict_of(judged, rule, is_broken=True).cause
    assert f"plan.cost.total is {judged.plan.cost.total.normalize()}" in cause
    assert "spec.labels.team is chat" in cause
    assert "spec.endpoint is not there" in cause


def test_a_rule_about_a_difference_waits_for_one(judged: JudgedPlan) -> None:
    rule = {"when": "diff.delta.usd > 5"}
    verdict = verdict_of(judged, rule, fault="missing key diff")
    assert verdict.judgment == "not judged"
    difference = plans_document(("a", "b"), (judged.plan, judged.plan))
    changed = replace(
        judged,
        diff=replace(difference.specs[0], delta=CostDelta(usd=Decimal("7.50"))),
    )
    asked = []

    def judge(question: RuleQuestion) -> list[RuleAnswer]:
        asked.append(question.documents[0]["diff"])
        return scripted(is_broken=True)(question)

    (verdict,) = judge_plans([policy_of(rule)], [changed], judge, TODAY)
    assert verdict.judgment == "denies"
    # Amounts are numbers, other texts stay texts.
    assert asked[0]["delta"]["usd"] == 7.5
    assert asked[0]["name"] == judged.plan.workload.name


def test_a_text_that_is_no_expression_refuses_the_file(
    judged: JudgedPlan,
) -> None:
    fault = RuleAnswer(
        document=-1, rule=0, fault="Syntax error: x", line=1, column=17
    )
    with pytest.raises(SpecError, match="rule r0: Syntax error") as refusal:
        judge_plans([policy_of(RULE)], [judged], lambda _: [fault], TODAY)
    place = refusal.value.problems[0].place
    assert str(place).startswith("policy.yaml:1:")


def test_numbers_are_doubles_and_texts_stay_texts(documents: dict) -> None:
    def numbers(part):
        if isinstance(part, dict):
            return [n for inner in part.values() for n in numbers(inner)]
        if isinstance(part, list):
            return [n for inner in part for n in numbers(inner)]
        is_number = isinstance(part, int | float) and not isinstance(part, bool)
        return [part] if is_number else []

    found = numbers(documents)
    assert len(found) > 100
    assert {type(number) for number in found} == {float}
    assert documents["plan"]["spec"]["sha256"]
    assert documents["spec"]["labels"] == {"team": "chat"}
