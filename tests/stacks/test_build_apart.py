"""Stacks of a service whose prompts are computed by one pool and answered by another."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from providers.simulated import world
from stacks.build import build_stack
from stacks.engine.simulated import SimulatedEngine
from stacks.spec.stack import ROUTED_PORT, SERVING_PORT, derive_stack
from tests.conftest import find, only, spec_of
from tests.stacks.engine.test_simulated import (
    EVERYTHING,
    objects,
    plan_of,
    quiet,
)
from tests.stacks.test_build import boot_scripts, check, settings_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from planner.market.offer import Catalog
    from planner.solve.solution import Solution
    from stacks.graph import Graph

TEXT = """\
apiVersion: tonnage/v1
kind: Inference
name: split
model: {name: llama-3.1-70b}
sla: {ttft_p95: 3s, tpot_p95: 15ms}
serving: {pools: auto}
where: {clouds: [CLOUD]}
traffic:
  peak_rps: 20
  input_tokens: {mean: 1000, p95: 3000}
  output_tokens: {mean: 200, p95: 600}
"""
TYPES = {
    "aws": ("p5.48xlarge", "p5en.48xlarge"),
    "azure": ("Standard_ND96isr_H100_v5", "Standard_ND96isr_H200_v5"),
    "gcp": ("a3-highgpu-8g", "a3-ultragpu-8g"),
}
CLOUDS = sorted(TYPES)


def text_of(cloud: str, more: str = "") -> str:
    return TEXT.replace("CLOUD", cloud) + more


def sold(catalog: Catalog, cloud: str) -> Catalog:
    """Two machine types of a cloud, on demand."""
    return only(
        catalog,
        lambda offer: (
            offer.instance.instance_type in TYPES[cloud]
            and offer.purchase == "on_demand"
        ),
    )


@pytest.fixture(scope="module")
def solve_once(catalog: Catalog) -> Callable[[str, str], Solution]:
    """Return the answer where two machine types of a cloud are for sale."""

    @cache
    def solution(text: str, cloud: str) -> Solution:
        return find(sold(catalog, cloud), text, keep=0)

    return solution


def nodes_of(graph: Graph) -> dict[str, dict[str, Any]]:
    """What the program of the nodes of each pool knows."""
    works = [settings_in(script)["work"] for script in boot_scripts(graph)]
    return {work["pool"]: work for work in works}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_each_pool_does_its_part_and_its_proxy_knows_it(
    solve_once: Callable[[str, str], Solution], cloud: str
) -> None:
    solution = solve_once(text_of(cloud), cloud)
    assert [pool.part for pool in solution.pools] == ["prompts", "answers"]
    graph = build_stack(spec_of(text_of(cloud)), solution, "split").graph
    check(graph)
    works = nodes_of(graph)
    assert set(works) == {"prompts", "answers"}
    roles = {"prompts": "kv_producer", "answers": "kv_consumer"}
    for part, work in works.items():
        [word] = [
            word
            for word in work["words"]
            if word.startswith("--kv-transfer-config=")
        ]
        told = json.loads(word.partition("=")[2])
        assert told == {
            "kv_connector": "NixlConnector",
            "kv_role": roles[part],
            # What a cache does not come of is computed where it is answered.
            "kv_load_failure_policy": "recompute",
        }
        assert work["hands_over"] is True
        assert work["router"]["part"] == part
        assert work["router"]["port"] == SERVING_PORT
        assert work["port"] == work["router"]["engine_port"] == ROUTED_PORT


@pytest.mark.parametrize("cloud", CLOUDS)
def test_both_pools_run_the_same_engine_in_one_zone(
    solve_once: Callable[[str, str], Solution], cloud: str
) -> None:
    """The connector compares versions, formats and kernels before it sends anything."""
    solution = solve_once(text_of(cloud), cloud)
    stack = derive_stack(spec_of(text_of(cloud)), solution, "split")
    zones = {fleet.zones for fleet in stack.fleets}
    assert len(zones) == 1
    assert len(zones.pop()) == 1
    graph = build_stack(spec_of(text_of(cloud)), solution, "split").graph
    works = list(nodes_of(graph).values())
    assert len({work["container"]["image"] for work in works}) == 1
    layouts = [pool.layout for pool in solution.pools]
    formats = {
        (layout.precision, layout.kv_precision)
        for layout in layouts
        if layout is not None
    }
    assert len(formats) == 1
    kinds = {pool.instance.chip.compute_capability for pool in solution.pools}
    assert len(kinds) == 1


@pytest.mark.parametrize("cloud", CLOUDS)
def test_machines_reach_each_other_and_clients_the_proxy_alone(
    solve_once: Callable[[str, str], Solution], cloud: str
) -> None:
    """The ports of caches are open between machines, and clients reach one port."""
    solution = solve_once(text_of(cloud), cloud)
    stack = derive_stack(spec_of(text_of(cloud)), solution, "split")
    assert stack.has_router
    assert stack.client_port == SERVING_PORT


@pytest.mark.parametrize("cloud", CLOUDS)
def test_together_nothing_is_handed_over(
    solve_once: Callable[[str, str], Solution], cloud: str
) -> None:
    text = text_of(cloud).replace("pools: auto", "pools: together")
    solution = solve_once(text, cloud)
    assert [pool.part for pool in solution.pools] == [""]
    graph = build_stack(spec_of(text), solution, "split").graph
    [work] = nodes_of(graph).values()
    assert "hands_over" not in work
    assert "router" not in work
    assert not any("kv-transfer" in word for word in work["words"])


def test_no_pool_moves_to_another_zone_by_itself(
    solve_once: Callable[[str, str], Solution],
) -> None:
    """Where there are no machines of one pool, its caches would have to cross zones."""
    solution = solve_once(text_of("aws"), "aws")
    assert all(len(pool.zones) == 1 for pool in solution.pools)
    stack = derive_stack(spec_of(text_of("aws")), solution, "split")
    assert not stack.awaits_machines


def test_who_has_a_key_needs_it_at_both_pools(
    solve_once: Callable[[str, str], Solution],
) -> None:
    """The proxy passes the key of a client on to both engines, which ask for it."""
    more = "endpoint: {api_key: 'secret://key'}\n"
    text = text_of("aws", more)
    solution = solve_once(text, "aws")
    graph = build_stack(spec_of(text), solution, "split").graph
    assert {work["api_key"] for work in nodes_of(graph).values()} == {"key"}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_plan_is_applied_and_destroyed(
    catalog: Catalog, cloud: str, here: Path
) -> None:
    """On each simulated cloud: both pools stand, with their numbers of machines."""
    plan = plan_of(sold(catalog, cloud), text_of(cloud))
    assert [pool.part for pool in plan.solution.pools] == ["prompts", "answers"]
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    engine.apply(plan, quiet)
    assert len(objects(engine)) == len(plan.graph.resources)
    engine.destroy("split", quiet, EVERYTHING)
    assert objects(engine) == {}
