"""A plan, its documents, and rules that are written in a line."""

from __future__ import annotations

import json

import pytest

from planner import api
from planner.plan.policy.document import rule_documents
from planner.plan.policy.judged_plan import JudgedPlan
from planner.plan.policy.rule import PolicyFile, read_policy
from tests.conftest import chat

SPEC = chat(extra="labels: {team: chat}\nwhere: {clouds: [gcp, aws]}")


@pytest.fixture(scope="session")
def judged(catalog) -> JudgedPlan:
    """The plan of a small service, with a fallback."""
    plan = api.plan(SPEC.encode(), path="chat.yaml", catalog=catalog)
    assert plan.fallbacks
    return JudgedPlan(
        plan=plan, spec_path="chat.yaml", spec_bytes=SPEC.encode()
    )


@pytest.fixture(scope="session")
def documents(judged: JudgedPlan) -> dict:
    return rule_documents(judged.plan, None)


def policy_of(*rules: dict, waivers: tuple[dict, ...] = ()) -> PolicyFile:
    """A policy of rules; JSON is YAML."""
    whole = [
        {"id": f"r{number}", "message": "wrong", **rule}
        for number, rule in enumerate(rules)
    ]
    text = json.dumps({"rules": whole, "waivers": list(waivers)})
    return read_policy(text.encode(), "policy.yaml")
