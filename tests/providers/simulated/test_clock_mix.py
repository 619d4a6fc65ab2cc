"""Machines that are bought in several ways: built, scaled, taken back and given back."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from planner.market.purchase import COMMITTED_PURCHASES
from planner.plan.types import Plan
from providers.simulated.clock import RELAUNCH_S, advance
from providers.simulated.shared import SharedWorld
from providers.simulated.world_file import read_world
from stacks.engine.protocol import RunControl
from stacks.engine.simulated import SimulatedEngine
from tests.conftest import chat
from tests.providers.simulated.test_clock import (
    CLOUDS,
    DAY,
    HOUR,
    quiet,
    standing,
)

MIXES = {
    "spot above a base": "on_demand_base: 50%",
    "on demand above a commitment": "commit: [none, 3y], spot: never",
    "spot above both": "commit: [none, 3y], on_demand_base: 50%",
    "spot by a promise": "on_demand_base: auto",
}

# Azure builds no fabric over machines that are bought in two ways.
JOBS = [
    ("aws", "Batch"),
    ("gcp", "Batch"),
    ("azure", "Batch"),
    ("aws", "Training"),
    ("gcp", "Training"),
]
WORK = {
    "Batch": """\
kind: Batch
traffic:
  total_requests: 40M
  input_tokens: {mean: 400, p95: 900}
  output_tokens: {mean: 12, p95: 30}
deadline: 1d
shutdown: {ttl: 4d}
""",
    "Training": """\
kind: Training
data: {location: "s3://sets/chat", tokens: 2B}
train: {method: finetune, deadline: 3d}
protect: false
shutdown: {ttl: 4d}
""",
}


def job_spec(cloud: str, kind: str) -> str:
    return (
        f"apiVersion: tonnage/v1\nname: job\n{WORK[kind]}"
        "model: {name: llama-3.1-8b}\nbuy: {on_demand_base: 50%}\n"
        f"where: {{clouds: [{cloud}]}}\n"
    )


def spec(cloud: str, mix: str) -> str:
    promise = ", availability: 99.9%" if "promise" in mix else ""
    return chat(
        traffic="peak_rps: 60\n  profile: diurnal",
        sla=f"ttft_p95: 2s, tpot_p95: 80ms{promise}",
        extra=f"buy: {{{MIXES[mix]}}}\nwhere: {{clouds: [{cloud}]}}",
    )


def sold_as(purchase: str) -> str:
    """How a cloud sees it: a commitment is a matter of the bill alone."""
    return "spot" if purchase == "spot" else "on_demand"


def nodes_by_purchase(world: SharedWorld) -> Counter[str]:
    found: Counter[str] = Counter()
    for history in world.view().memory.history.values():
        if history.nodes:
            *_, purchase = history.sizes[-1].group.offer_key
            found[purchase] += history.nodes
    return found


def hours_by_purchase(world: SharedWorld, begin: float) -> dict[str, float]:
    memory = world.view().memory
    found: defaultdict[str, float] = defaultdict(float)
    for history in memory.history.values():
        for group, hours in history.node_hours(begin, memory.seconds):
            *_, purchase = group.offer_key
            found[purchase] += hours
    return found


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("mix", MIXES)
def test_a_mix_runs_its_hours_loses_spot_alone_and_leaves_nothing(
    catalog, here: Path, cloud: str, mix: str
) -> None:
    plan, engine = standing(catalog, spec(cloud, mix), here)
    [pool] = plan.solution.pools
    # All on spot, or none of them, may keep a promise.
    assert len(pool.purchases) > 1 or "promise" in mix
    world = engine.shared_world
    # The first hours are those of the apply.
    advance(world, DAY)
    begin = world.view().memory.seconds
    advance(world, 28 * DAY)
    # Hours of four weeks against those of a month.
    planned: defaultdict[str, float] = defaultdict(float)
    for line in plan.cost.lines:
        if line.kind == "accelerators":
            purchase = line.name.split()[-1]
            if purchase in COMMITTED_PURCHASES:
                continue
            planned[sold_as(purchase)] += float(line.quantity) * 28 * 24 / 730
    ran = hours_by_purchase(world, begin)
    # What is committed to is billed for all hours, whether it runs or not.
    committed = sum(
        part.nodes
        for part in pool.purchases
        if part.purchase in COMMITTED_PURCHASES
    )
    assert ran.get("spot", 0) == pytest.approx(planned.get("spot", 0), rel=0.02)
    least = planned.get("on_demand", 0)
    assert least * 0.98 <= ran["on_demand"]
    assert ran["on_demand"] <= least * 1.02 + committed * 28 * 24
    _lose_spot(plan, engine, here)
    engine.destroy(
        plan.stack.name, quiet, RunControl(allow=frozenset({"delete-data"}))
    )
    assert not nodes_by_purchase(engine.shared_world)


@pytest.mark.parametrize(("cloud", "kind"), JOBS)
def test_a_job_keeps_its_base_when_spot_is_taken_back(
    catalog, here: Path, cloud: str, kind: str
) -> None:
    plan, engine = standing(catalog, job_spec(cloud, kind), here)
    [pool] = plan.solution.pools
    assert {part.purchase for part in pool.purchases} == {"on_demand", "spot"}
    planned = Counter({p.purchase: p.nodes for p in pool.purchases})
    assert nodes_by_purchase(engine.shared_world) == planned
    _lose_spot(plan, engine, here)
    engine.destroy(
        plan.stack.name, quiet, RunControl(allow=frozenset({"delete-data"}))
    )
    assert not nodes_by_purchase(engine.shared_world)


def _lose_spot(plan: Plan, engine: SimulatedEngine, here: Path) -> None:
    """Let a cloud take machines on spot back: others stay, and as many come again."""
    if all(
        part.purchase != "spot" for part in plan.solution.pools[0].purchases
    ):
        return
    world = engine.shared_world
    for _ in range(24):
        if nodes_by_purchase(world)["spot"]:
            break
        advance(world, HOUR)
    twin_folder = here / "twin"
    shutil.copytree(engine.folder, twin_folder)
    twin = SharedWorld(engine.world, twin_folder)
    rules = read_world(b"losses: [{purchase: spot, per_day: 48}]", "w.yaml")
    hungry = SharedWorld(rules, engine.folder)
    kinds = Counter(event.kind for event in advance(hungry, HOUR))
    assert kinds["lost"]
    assert kinds["notice"]
    advance(twin, HOUR)
    after, without = nodes_by_purchase(hungry), nodes_by_purchase(twin)
    assert after["on_demand"] == without["on_demand"]
    # While the wanted size moves, machines that come again come at the newest one.
    for each in (world, twin):
        advance(each, HOUR + RELAUNCH_S)
    assert nodes_by_purchase(world) == nodes_by_purchase(twin)
