"""Plans for people with policies in Rego: OPA's language reads the same document."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from planner import api
from planner.plan.canonical import dump_plan
from planner.plan.policy.judged_plan import JudgedPlan
from planner.plan.policy.rule import read_policy
from planner.plan.policy.verdict import judge_plans
from tests.conftest import TODAY, chat

regopy = pytest.importorskip(
    "regopy", reason="regopy, which is a dependency of tests, is not installed"
)

REGO = """
package main
import rego.v1

deny contains "budget" if to_number(input.cost.total) > LIMIT
deny contains "region" if {
  some pool in input.solution.pools
  not startswith(pool.region, "us-")
}
deny contains "shutdown" if {
  input.shutdown.idle == null
  input.shutdown.ttl == null
  input.shutdown.schedule == null
}
deny contains "team" if not input.spec.normalized.labels.team
deny contains "open" if {
  some resource in input.graph.resources
  resource.inputs.sourceRanges[_] == "0.0.0.0/0"
}
"""
CEL = """
rules:
  - {id: budget, message: x, when: plan.cost.total > LIMIT}
  - id: region
    message: x
    when: '!plan.solution.pools.all(p, p.region.startsWith("us-"))'
  - id: shutdown
    message: x
    when: plan.shutdown.idle == null && plan.shutdown.ttl == null && plan.shutdown.schedule == null
  - {id: team, message: x, when: "!has(spec.labels.team)"}
  - id: open
    message: x
    when: >-
      graph.resources.exists(r, has(r.inputs.sourceRanges) &&
        r.inputs.sourceRanges.exists(range, range == "0.0.0.0/0"))
"""


def denied_by_rego(document: str, limit: str) -> set[str]:
    """What conftest denies of `tonnage plan -f json | conftest test -`."""
    interpreter = regopy.Interpreter()
    interpreter.set_input(json.loads(document))
    interpreter.add_module("tonnage", REGO.replace("LIMIT", limit))
    # The binding is a part of the output, which must not go before it.
    output = interpreter.query("denied = data.main.deny")
    return set(json.loads(str(output.binding("denied"))))


@pytest.mark.parametrize(
    "extra",
    [
        "labels: {team: chat}\nwhere: {clouds: [gcp], regions: [us-central1]}",
        "where: {clouds: [aws], regions: [eu-west-1]}\nshutdown: {ttl: 72h}",
    ],
)
def test_rego_and_cel_deny_the_same_of_a_plan(catalog, extra: str) -> None:
    pytest.importorskip("cel", reason="the policy extra is not installed")
    from planner.plan.policy.cel_engine import answers_to

    plan = api.plan(chat(extra=extra).encode(), catalog=catalog)
    # Rego is given one document; a policy of tonnage judges fallbacks too.
    plan = replace(plan, fallbacks=())
    for limit in (plan.cost.total - 1, plan.cost.total + 1):
        policy = read_policy(
            CEL.replace("LIMIT", str(limit)).encode(), "policy.yaml"
        )
        verdicts = judge_plans(
            [policy],
            [JudgedPlan(plan=plan, spec_path="chat.yaml")],
            lambda question: list(answers_to(question)),
            TODAY,
        )
        denied = {v.rule.id for v in verdicts if v.judgment == "denies"}
        assert denied == denied_by_rego(dump_plan(plan), str(limit))
        assert denied
