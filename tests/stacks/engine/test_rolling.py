"""Machines that are made anew by a new template, as a plan tells of them."""

from __future__ import annotations

import pytest

from stacks.engine.rolling import goes_first, is_machine_group
from tests.stacks.engine.test_handover import service
from tests.stacks.engine.test_simulated import plan_of


def test_groups_of_machines_are_known_by_their_name() -> None:
    assert is_machine_group("serve-nodes")
    assert not is_machine_group("nodes-in")


@pytest.mark.parametrize(
    ("update", "first"), [("", False), ("rolling", False), ("recreate", True)]
)
def test_a_spec_says_what_goes_first(catalog, update: str, first: bool) -> None:
    plan = plan_of(catalog, service("gcp", update=update))
    assert goes_first(plan) is first
