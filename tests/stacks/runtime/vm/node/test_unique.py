"""Two accounts may have a stack of one name: nothing in them has one name in the world."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from planner.plan.types import Properties
from providers.base import ProjectIdentity
from providers.resource_type import name_rules, values_at
from stacks.build import build_stack
from stacks.engine.fill import fill_names, fill_text, placeholder_values
from stacks.graph import Graph
from stacks.runtime.vm.node.unique import (
    fill_unique,
    unique_digits,
    unique_place,
)
from tests.conftest import find, spec_of
from tests.stacks.test_build_cases import CASES, case_name

# Of the tenant, which has several subscriptions.
TENANT_TYPES = ("azure-native:authorization:",)


def names_in_the_world(graph: Graph, account: str) -> Iterator[str]:
    """The names that no two accounts can have, as an account fills them."""
    placeholders = placeholder_values(
        ProjectIdentity(project=account, account=account),
        datetime(2026, 11, 1, tzinfo=UTC),
        Decimal(3600),
    )
    for resource in graph.resources:
        filled: Properties = fill_names(
            resource.inputs, lambda text: fill_text(text, placeholders)
        )
        for rule in name_rules().get(resource.type, ()):
            is_shared = rule.scope == "global" or resource.type.startswith(
                TENANT_TYPES
            )
            names = values_at(filled, rule.property) if is_shared else []
            for name in names:
                if isinstance(name, str):
                    assert re.fullmatch(rule.pattern, name)
                    assert rule.min_length <= len(name) <= rule.max_length
                    yield name


@pytest.mark.parametrize("path", CASES, ids=case_name)
def test_stacks_of_two_accounts_share_no_name(path: Path, catalog) -> None:
    text = path.read_text()
    spec = spec_of(text)
    graph = build_stack(spec, find(catalog, text, keep=0), spec.name).graph
    ours = set(names_in_the_world(graph, "111111111111"))
    theirs = set(names_in_the_world(graph, "222222222222"))
    assert len(ours) == len(theirs) > 0
    assert not ours & theirs
    assert ours == set(names_in_the_world(graph, "111111111111"))


def test_the_account_is_asked_for_where_there_is_a_place() -> None:
    def account() -> str:
        asked.append(1)
        return "1"

    asked: list[int] = []
    assert fill_unique("weights-of-the-team", account) == "weights-of-the-team"
    assert asked == []
    filled = fill_unique(f"chat-{unique_place('ab12')}", account)
    assert filled == f"chat-{unique_digits('ab12', '1')}"
    assert fill_unique(filled, account) == filled
    assert len(asked) == 1
