"""Elastic services: from how many requests another machine comes, and what a plan says of it."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from planner import api
from planner.cost.weekly_load import weekly_load
from planner.errors import SpecError
from planner.facts.cloud import clouds
from planner.market.offer_filter import OfferFilter, spec_rules
from planner.solve.capacity import most_nodes
from planner.solve.serving.elastic import elastic_range, load_growth
from planner.solve.serving.requirement import serving_requirement
from planner.solve.serving.search import ServingSearch
from planner.solve.serving.sizing import predict_service
from planner.solve.settings import DEFAULT_CONFIDENCE
from planner.spec.load import load_spec
from planner.spec.model import Inference
from providers.catalog.load import load_catalog
from stacks.spec.stack import derive_stack
from stacks.spec.table import unsupported_reason
from tests.conftest import chat, find, present, spec_of
from tests.planner.cli.conftest import Command

CATALOG = load_catalog(None)
ELASTIC = "elastic: {least: 0.5, most: 2.5}"


def elastic_pool(text: str) -> Any:
    [pool] = find(CATALOG, text, keep=0).pools
    return pool


@pytest.mark.parametrize(
    "traffic", ["peak_rps: 2", "peak_rps: 30", "concurrency: 40"]
)
def test_the_simulation_confirms_the_load_at_which_a_machine_is_added(
    traffic: str,
) -> None:
    spec = spec_of(chat(traffic=traffic, extra="elastic: {most: 2}"))
    assert isinstance(spec, Inference)
    requirement = replace(
        serving_requirement(spec, lambda _: b""), confidence=DEFAULT_CONFIDENCE
    )
    offers = OfferFilter(
        CATALOG.offer_groups,
        spec_rules(spec, unsupported_reason, resumes=False),
    ).cheapest()
    search = ServingSearch(CATALOG.price_book)
    found = search.solve(requirement, offers)
    sizing = present(found.best).sizing
    reach = present(elastic_range(requirement, sizing, search.judge))
    replicas = sizing.replicas_per_group * sizing.peak_groups
    target = reach.target_requests / sizing.replicas_per_group
    assert target >= sizing.service.in_flight

    def in_flight(factor: float) -> float:
        scaled = requirement.with_scaled_load(factor)
        service = predict_service(scaled, sizing.replica, replicas)
        return service.in_flight if service else math.inf

    # The highest load whose requests in flight are below the target.
    factor = 1.0
    while in_flight(factor * 1.02) <= target:
        factor *= 1.02
    assert (
        search.judge.missed_limit(requirement.with_scaled_load(factor), sizing)
        is None
    )


def test_a_plan_says_how_far_and_how_soon() -> None:
    text = chat(traffic="peak_rps: 30", extra=ELASTIC)
    pool = elastic_pool(text)
    reach = pool.elastic
    assert reach.linger_s == math.ceil(max(600, 2 * pool.startup_s))
    plan = api.plan(text.encode(), catalog=CATALOG, alternatives=0)
    [entry] = plan.solution.pools
    assert present(entry.elastic).most_nodes == math.ceil(2.5 * pool.nodes)
    plain = api.plan(
        chat(traffic="peak_rps: 30").encode(), catalog=CATALOG, alternatives=0
    )
    # The traffic of the spec costs the same, however its machines come.
    assert plan.cost.total == plain.cost.total
    assert plain.solution.pools[0].elastic is None


def test_the_spare_machines_of_an_availability_stay_spare() -> None:
    text = chat(
        sla="ttft_p95: 2s, tpot_p95: 80ms, survives: node",
        traffic="peak_rps: 30",
        extra=ELASTIC,
    )
    pool = elastic_pool(text)
    assert pool.elastic.spare_nodes == pool.spares.count >= 1
    assert elastic_pool(chat(extra=ELASTIC)).elastic.spare_nodes == 0


def test_a_replica_is_on_one_machine() -> None:
    """671 GB in fp8 are on two machines of eight H100; such a fleet does not come and go."""
    text = chat(
        model="deepseek-v3",
        sla="tpot_p95: 80ms",
        traffic="peak_rps: 1",
        extra="where: {clouds: [aws], accelerators: {allow: [h100-sxm]}}",
    )
    [pool] = find(CATALOG, text).pools
    assert pool.nodes_per_group > 1
    assert find(CATALOG, f"{text}\n{ELASTIC}").pools == ()


@pytest.mark.parametrize(
    ("nodes", "share", "most"), [(10, 1.1, 11), (3, 2.5, 8), (1, 1, 1)]
)
def test_the_most_machines_are_rounded_up_once(
    nodes: int, share: float, most: int
) -> None:
    assert most_nodes(nodes, share) == most


def test_machines_that_may_come_are_routed_as_the_spec_says() -> None:
    text = chat(
        traffic="peak_rps: 1\n  routing: least-loaded",
        extra="where: {clouds: [aws]}",
    )

    def has_router(extra: str) -> bool:
        spec = spec_of(f"{text}\n{extra}")
        solution = find(CATALOG, f"{text}\n{extra}", keep=0)
        assert [pool.nodes for pool in solution.pools] == [1]
        return derive_stack(spec, solution, spec.name).has_router

    assert not has_router("")
    assert has_router("elastic: {most: 2}")


@given(st.floats(0, 3600), st.floats(0, 1))
def test_a_flat_load_does_not_grow(startup_s: float, share: float) -> None:
    assert load_growth(weekly_load("flat", None), startup_s, share) == 1


def test_a_load_that_doubles_in_an_hour_grows_by_half_in_half_an_hour() -> None:
    week = weekly_load((Decimal(1), Decimal(2)) * 12, None)
    assert load_growth(week, 1800, 1) == pytest.approx(1.5)
    assert load_growth(week, 1800, 0.5) == pytest.approx(1.25)
    assert load_growth(week, 7200, 1) == pytest.approx(2)


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ("elastic: {}", "no room"),
        ("elastic: {least: 1, most: 1}", "no room"),
        (f"{ELASTIC}\nshutdown: {{idle: 1h}}", "shutdown.idle"),
        (f"{ELASTIC}\nbuy: {{reservations: [cr-0123]}}", "buy.reservations"),
        ("elastic: {least: 1.5}", "least"),
        ("elastic: {most: 0.5}", "most"),
    ],
)
def test_what_does_not_go_together_is_refused_at_its_place(
    extra: str, reason: str
) -> None:
    with pytest.raises(SpecError, match=reason) as refused:
        load_spec(chat(extra=extra).encode(), "spec.yaml")
    assert present(refused.value.problems[0].place).line > 1


@pytest.mark.parametrize("cloud", clouds())
def test_a_service_that_may_sleep_says_what_wakes_it(
    tonnage: Command, here: Path, cloud: str
) -> None:
    text = chat(
        extra=f"elastic: {{least: 0, most: 2}}\nwhere: {{clouds: [{cloud}]}}"
    )
    (here / "s.yaml").write_text(text)
    code, out, _ = tonnage("apply", "s.yaml", "--simulate", "--yes")
    assert (code, "no machine runs" in out) == (0, True)
    code, out, _ = tonnage("status", "chat", "--simulate")
    assert (code, "tonnage start chat" in out) == (0, True)
    stack = derive_stack(spec_of(text), find(CATALOG, text, keep=0), "chat")
    [(_, group)] = stack.scaling_groups
    assert set(group.least_nodes) == {0}
    assert group.nodes >= 1


@pytest.mark.parametrize(
    ("least", "most", "told"),
    [
        ("0.5", "2", "elastic: up to 2 machines"),
        ("0", "2", "with none left, the schedule or tonnage start bring one"),
        ("0", "1", "elastic: one machine, which leaves without work for"),
    ],
)
def test_a_page_says_of_no_second_machine_where_there_is_none(
    tonnage: Command, here: Path, least: str, most: str, told: str
) -> None:
    (here / "s.yaml").write_text(
        chat(extra=f"elastic: {{least: {least}, most: {most}}}")
    )
    code, out, _ = tonnage("plan", "s.yaml")
    page = " ".join(out.split())
    assert (code, told in page) == (0, True), page
    assert ("another one above" in page) == (most != "1")
