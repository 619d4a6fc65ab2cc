"""What is named of layouts that no number of machines helps: memory before rules."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.market.offer import Catalog
from planner.perf.common.layout import ReplicaLayout
from planner.sentence import describe
from planner.solve.serving.rejection import offer_rejections, rejection_reason
from planner.solve.serving.requirement import serving_requirement
from planner.solve.serving.search import ServingSearch
from planner.solve.serving.sizing import (
    ELASTIC,
    ENGINE,
    MULTI_NODE_SIZES,
    ONE_NODE,
    LayoutRejection,
    unfit_rejection,
)
from planner.spec.model import Inference
from tests.conftest import chat, spec_of

RULES = {
    ENGINE: "serving: {engine: tensorrt-llm}",
    ELASTIC: "elastic: {most: 2}",
}
LAYOUT = ReplicaLayout(precision="bf16", kv_precision="bf16", tp=1)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_named_only_where_memory_is_not_lacking(
    catalog: Catalog, rule: str
) -> None:
    spec = spec_of(chat("qwen2.5-32b", "bf16", extra=RULES[rule]))
    assert isinstance(spec, Inference)
    requirement = serving_requirement(spec, lambda _: b"")
    search = ServingSearch(catalog.price_book)
    seen = set()
    machines = {offer.instance.instance_type: offer for offer in catalog.offers}
    for offer in machines.values():
        sizes = (ONE_NODE, MULTI_NODE_SIZES)
        for group_sizes in sizes[: 2 if offer.instance.fabric != "none" else 1]:
            for replica, group, _ in search.layout_options(
                requirement, offer, group_sizes
            ):
                told = unfit_rejection(requirement, replica, group)
                named = told.constraint if told else ""
                seen.add((named, group.nodes > 1))
                if not replica.max_batch:
                    assert told is not None
                    assert named == "memory"
                    assert told.reached > told.limit
                    assert told.breaks_rule == (group.nodes > 1)
                else:
                    assert named == (rule if group.nodes > 1 else "")
    assert ("memory", False) in seen
    assert (rule, True) in seen


def test_a_layout_that_keeps_the_rules_says_how_much_memory_is_lacking(
    catalog: Catalog,
) -> None:
    """Over more machines less of it would, and they may not be joined."""
    offer = catalog.offers[0]
    alone = LayoutRejection(
        layout=LAYOUT, constraint="memory", reached=140.0, limit=80.0
    )
    joined = LayoutRejection(
        layout=LAYOUT,
        constraint="memory",
        reached=82.0,
        limit=80.0,
        breaks_rule=True,
    )
    for rejected in ([alone, joined], [joined, alone]):
        [told] = offer_rejections(
            [(1.0, offer, rejection, 1) for rejection in rejected], ()
        )
        assert told.rejection == alone


@given(st.floats(1, 2000), st.floats(1e-6, 100))
def test_what_is_needed_reads_as_more_than_there_is(
    limit_gib: float, short_gib: float
) -> None:
    rejection = LayoutRejection(
        layout=LAYOUT,
        constraint="memory",
        reached=limit_gib + short_gib,
        limit=limit_gib,
    )
    text = describe(rejection_reason(rejection)).replace(",", "")
    whole = re.fullmatch(r"memory: needs (\d+) GiB of (\d+) GiB each", text)
    if whole:
        assert int(whole[1]) > int(whole[2])
        return
    close = re.fullmatch(
        r"memory: needs (\d+) MiB more than [\d.]+ GiB each", text
    )
    assert close is not None
    assert int(close[1]) - 1 <= short_gib * 1024 <= int(close[1]) + 1e-6
    assert int(close[1]) >= 1
