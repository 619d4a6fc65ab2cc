"""Policies of roles, judged by Parliament: a linter with the published list of actions of AWS."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

with warnings.catch_warnings():
    # It reads its data with a package that warns of its own end.
    warnings.simplefilter("ignore")
    from parliament import analyze_policy_string

CASES = sorted((ROOT / "tests/cases/aws").glob("*/graph.json"))
ROLE_POLICY = "aws:iam/rolePolicy:RolePolicy"


def findings(policy: str) -> list[str]:
    """What the linter has to say of a policy."""
    return [
        f"{found.issue}: {found.detail}"
        for found in analyze_policy_string(policy).findings
    ]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.parent.name)
def test_no_policy_of_a_role_has_a_finding(path: Path) -> None:
    resources: dict[str, Any] = json.loads(path.read_text())["resources"]
    policies = {
        key: resource["inputs"]["policy"]
        for key, resource in resources.items()
        if key.startswith(ROLE_POLICY)
    }
    assert len(policies) >= 4
    found = {key: findings(policy) for key, policy in policies.items()}
    assert not {key: texts for key, texts in found.items() if texts}


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("s3:GetObjekt", "arn:aws:s3:::bucket/*"),
        ("s3:GetObject", "arn:aws:s3:::bucket"),
        ("s3:ListBucket", "arn:aws:s3:::bucket/*"),
    ],
)
def test_the_linter_sees_what_would_not_work(
    action: str, resource: str
) -> None:
    statement = {"Effect": "Allow", "Action": action, "Resource": resource}
    assert findings(
        json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    )
