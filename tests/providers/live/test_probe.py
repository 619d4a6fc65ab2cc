"""What is asked of clouds is in a table, and takes no more rights than that says."""

from __future__ import annotations

import inspect
import json
from importlib import import_module

import botocore.session
import pytest

from planner.cli.live_page import policy_of
from planner.facts.cloud import clouds
from providers.live.commitment import CommitmentModule
from providers.live.market import MarketModule
from providers.live.probe import probes, reading_rights
from providers.live.profile import ProfileModule
from providers.live.question import AccountModule
from providers.live.reach import rights_form
from providers.live.running import RunningModule
from providers.live.term_price import TermPriceModule
from tests.stacks.aws.test_identity import findings

CHANGING = ("Create", "Delete", "Put", "Update", "Run", "Purchase", "Request")


# What each module keeps.
PROTOCOLS = {
    "account": AccountModule,
    "market": MarketModule,
    "commitment": CommitmentModule,
    "running": RunningModule,
    "profile": ProfileModule,
    "term_price": TermPriceModule,
}
# One that asks about them is of one cloud.
OF_ONE_CLOUD = {"profile": "gcp", "term_price": "aws"}


@pytest.mark.parametrize(
    ("cloud", "module"),
    [
        (cloud, module)
        for cloud in clouds()
        for module in PROTOCOLS
        if OF_ONE_CLOUD.get(module, cloud) == cloud
    ],
)
def test_every_question_has_a_row(cloud: str, module: str) -> None:
    asking = import_module(f"providers.{cloud}.{module}")
    functions = {
        name
        for name, found in inspect.getmembers(asking, inspect.isfunction)
        if found.__module__ == asking.__name__ and not name.startswith("_")
    }
    rows = {
        probe.function
        for probe in probes()
        if (probe.cloud, probe.module) == (cloud, module)
    }
    assert rows <= functions
    assert rows == {
        name
        for name, _ in inspect.getmembers(PROTOCOLS[module], inspect.isfunction)
        if not name.startswith("_")
    }


def test_every_row_is_of_a_module() -> None:
    for probe in probes():
        module = import_module(f"providers.{probe.cloud}.{probe.module}")
        assert callable(getattr(module, probe.function))


def test_one_question_changes_an_account_and_no_policy_allows_it() -> None:
    changing = [probe for probe in probes() if probe.changes]
    assert {probe.cloud for probe in changing} == set(clouds())
    for probe in changing:
        asked = [each for each in probes() if each.cloud == probe.cloud]
        allowed = reading_rights(asked)
        others = {
            right for each in asked if not each.changes for right in each.rights
        }
        assert set(allowed) == others
        assert set(probe.rights) - set(allowed)


def test_the_policy_of_aws_is_one() -> None:
    """Its actions exist, and none of them changes anything.

    Each operation of EC2 is an action of its name. The linter does not know the newest.
    """
    [cloud] = [name for name in clouds() if rights_form(name) == "policy"]
    policy = policy_of(cloud)
    operations = (
        botocore.session.get_session().get_service_model("ec2").operation_names
    )
    newest = {
        f"UNKNOWN_ACTION: Unknown action ec2:{operation}"
        for operation in operations
    }
    assert not set(findings(json.dumps(policy))) - newest
    actions = [
        action
        for statement in policy["Statement"]
        for action in statement["Action"]
    ]
    assert not any(
        action.partition(":")[2].startswith(CHANGING) for action in actions
    )


@pytest.mark.parametrize("cloud", clouds())
def test_a_role_has_the_rights_of_its_questions(cloud: str) -> None:
    rights = reading_rights(probe for probe in probes() if probe.cloud == cloud)
    assert rights
    written = json.dumps(policy_of(cloud))
    assert all(json.dumps(right) in written for right in rights)
