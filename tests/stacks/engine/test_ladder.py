"""Fallbacks are walked down in their order, nothing that was refused stays, refusals are kept."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from planner import api
from planner.errors import CapacityError, ResourceError
from planner.plan.types import Plan
from providers.resource_type import values_at
from providers.simulated import world
from providers.simulated.world_file import read_world
from stacks.engine.protocol import ProgressEvent, RunControl
from stacks.engine.simulated import SimulatedEngine
from tests.conftest import chat, present
from tests.stacks.engine.test_simulated import EVERYTHING, objects, quiet


@pytest.fixture(scope="module")
def plan(catalog) -> Plan:
    """A plan with a fallback of every kind but another way to buy."""
    spec = chat(
        extra="buy: {fallback: 100%}\nwhere: {clouds: [gcp, aws], accelerators: {allow: [l4]}}"
    )
    made = api.plan(spec.encode(), catalog=catalog, alternatives=0)
    kinds = {f.kind for f in made.fallbacks}
    assert kinds == {"zone", "type", "region", "cloud"}
    return made


def keys(plan: Plan) -> list[tuple[str, str, str]]:
    """Cloud, region and machine type of every rung."""
    pools = [
        plan.solution.pools[0],
        *(rung.pools[0] for rung in plan.fallbacks),
    ]
    return [(p.provider, p.region, p.instance_type) for p in pools]


def engine_of(rules: str, here: Path) -> SimulatedEngine:
    return SimulatedEngine(
        read_world(rules.encode(), "w.yaml"), here / "clouds"
    )


def without(rungs: list[tuple[str, str, str]], kind: str = "capacity") -> str:
    """A world that has no machines of some rungs."""
    rows = [
        f"{{provider: {cloud}, region: {region}, instance_type: {machine}, nodes: 0}}"
        for cloud, region, machine in rungs
    ]
    return f"{kind}: [{', '.join(rows)}]"


def tried(engine: SimulatedEngine, plan: Plan, **control) -> list[str]:
    """Apply, and return the fleets that were tried after the first one."""
    events: list[ProgressEvent] = []
    engine.apply(plan, events.append, RunControl(**control))
    return [e.step.name for e in events if e.phase == "fallback"]


def test_what_there_is_stands_and_nothing_that_was_refused(here, plan) -> None:
    fleets = list(dict.fromkeys(keys(plan)))
    for count, wanted in enumerate(fleets):
        engine = engine_of(without(fleets[:count]), here / str(count))
        engine.apply(plan, quiet)
        facts = present(present(engine.stack_status("chat")).facts)
        pool = facts.pools[0]
        assert (pool.provider, pool.region, pool.instance_type) == wanted
        assert facts.rung == keys(plan).index(wanted)
        regions = {found["region"] for found in objects(engine).values()}
        assert regions == {wanted[1]}
        assert present(engine.stack_status("chat")).retained == ()
        # The same plan stands, and is not walked down again.
        assert engine.apply(plan, quiet).steps == ()
        engine.destroy("chat", quiet, EVERYTHING)
        assert objects(engine) == {}


def test_what_no_cloud_has_leaves_no_machines(here, plan) -> None:
    engine = engine_of("capacity: [{nodes: 0}]", here)
    with pytest.raises(CapacityError) as refusal:
        engine.apply(plan, quiet)
    assert len(refusal.value.problems) == len(plan.fallbacks) + 1
    names = {found["name"] for found in objects(engine).values()}
    assert "serve-nodes" not in names
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


def test_another_zone_has_the_same_quota(here, plan) -> None:
    first = keys(plan)[0]
    names = tried(engine_of(without([first], "quota"), here), plan)
    zones = [f for f in plan.fallbacks if f.kind == "zone"]
    assert zones
    assert len(names) == 1
    assert names[0].endswith(f"x {keys(plan)[len(zones) + 1][2]} in {first[1]}")


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "ExpiredToken"])
def test_nothing_else_is_bought_for_another_reason(here, plan, code) -> None:
    rules = f"faults: [{{on: create, name: serve-nodes, code: {code}}}]"
    events: list[ProgressEvent] = []
    with pytest.raises((ResourceError, Exception)) as refusal:
        engine_of(rules, here).apply(plan, events.append)
    assert not isinstance(refusal.value, CapacityError)
    assert not [e for e in events if e.phase == "fallback"]


def test_what_costs_more_than_is_allowed_is_left_out(here, plan) -> None:
    engine = engine_of(without([keys(plan)[0]]), here)
    with pytest.raises(CapacityError):
        tried(engine, plan, most_usd_hour=plan.cost.usd_hour)
    assert tried(engine, plan) != []


def test_a_refusal_is_remembered_for_its_time(here, plan) -> None:
    first = keys(plan)[0]
    engine = engine_of(without([first]), here)
    with pytest.raises(CapacityError):
        tried(engine, plan, most_usd_hour=plan.cost.usd_hour)
    # At once: what was refused is not asked for again.
    began: list[ProgressEvent] = []
    engine.apply(plan, began.append)
    refused = [e for e in began if e.phase == "failed"]
    assert refused == []
    # An hour later the machines are there, and a new stack gets the first choice.
    engine.destroy("chat", quiet, EVERYTHING)
    later = replace(
        world.default_world(), clock=engine.world.clock + timedelta(hours=2)
    )
    again = SimulatedEngine(later, here / "clouds")
    again.apply(plan, quiet)
    assert present(present(again.stack_status("chat")).facts).rung == 0


def test_a_standing_fleet_keeps_serving_when_its_change_is_refused(
    here, catalog, plan
) -> None:
    engine = engine_of("quota: [{nodes: 2}]", here)
    small = api.plan(
        chat(
            extra="where: {clouds: [gcp], regions: [us-east4], accelerators: {allow: [l4]}}"
        ).encode(),
        catalog=catalog,
        alternatives=0,
    )
    engine.apply(small, quiet)
    groups = {
        i: o for i, o in objects(engine).items() if o["name"] == "serve-nodes"
    }
    large = api.plan(
        chat(
            traffic="peak_rps: 200",
            extra="where: {clouds: [gcp], regions: [us-east4], accelerators: {allow: [l4]}}\n"
            "buy: {fallback: 100%}",
        ).encode(),
        catalog=catalog,
        alternatives=0,
    )
    with pytest.raises(CapacityError):
        engine.apply(large, quiet)
    assert groups.keys() <= objects(engine).keys()


# On Azure a fleet is spread over all zones of its region.
@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_other_zones_are_taken_when_the_first_ones_have_nothing(
    here: Path, catalog, cloud: str
) -> None:
    """The region stays, and what was made in the first zones is gone."""
    plan = api.plan(
        chat(
            extra=f"buy: {{fallback: 100%}}\nwhere: {{clouds: [{cloud}]}}"
        ).encode(),
        catalog=catalog,
        alternatives=0,
    )
    first = next(
        number
        for number, fallback in enumerate(plan.fallbacks, start=1)
        if fallback.kind == "zone"
    )
    engine = SimulatedEngine(world.default_world(), here / "probe")
    engine.apply(plan, quiet)
    memory = engine.shared_world.view().memory
    [zones] = [
        history.sizes[-1].group.zones
        for history in memory.history.values()
        if history.sizes
    ]
    rows = ", ".join(f"{{zone: '{zone}', nodes: 0}}" for zone in zones)
    engine = engine_of(f"capacity: [{rows}]", here)
    assert len(tried(engine, plan)) == first
    status = present(engine.stack_status(plan.stack.name))
    assert present(status.facts).rung == first
    standing = plan.on_rung(first)
    assert standing.solution.pools[0].region == plan.solution.pools[0].region
    assert len(objects(engine)) == len(standing.graph.resources)
    [taken] = [
        history.sizes[-1].group.zones
        for history in engine.shared_world.view().memory.history.values()
        if history.sizes and history.until is None
    ]
    assert not set(taken) <= set(zones)


ONE_ZONE = {
    "gcp-service": chat(extra="where: {clouds: [gcp]}"),
    "aws-workspace": (
        "apiVersion: tonnage/v1\nkind: Workspace\nname: chat\n"
        "accelerator: {memory: 20GiB}\nwhere: {clouds: [aws]}\n"
    ),
    "gcp-workspace": (
        "apiVersion: tonnage/v1\nkind: Workspace\nname: chat\n"
        "accelerator: {memory: 20GiB}\nwhere: {clouds: [gcp]}\n"
    ),
    "azure-workspace": (
        "apiVersion: tonnage/v1\nkind: Workspace\nname: chat\n"
        "accelerator: {memory: 20GiB}\nwhere: {clouds: [azure]}\n"
    ),
}


@pytest.mark.parametrize("name", ONE_ZONE)
def test_a_fleet_in_one_zone_goes_to_the_next_without_being_asked_to(
    here: Path, catalog, name: str
) -> None:
    """And takes all of it along, also the disks of its users, which are empty."""
    plan = api.plan(ONE_ZONE[name].encode(), catalog=catalog, alternatives=0)
    [pool] = plan.solution.pools
    [first, second, *_] = pool.zones
    engine = engine_of(f"capacity: [{{zone: '{first}', nodes: 0}}]", here)
    assert len(tried(engine, plan)) == 1
    status = present(engine.stack_status("chat"))
    assert (status.complete, present(status.facts).rung) == (True, 1)
    assert status.retained == ()
    standing = plan.on_rung(1)
    assert standing.solution.pools[0].zones[0] == second
    assert len(objects(engine)) == len(standing.graph.resources)
    for found in objects(engine).values():
        zones = {
            str(zone).rpartition("/")[2]
            for path in ("availabilityZone", "zone", "zones[]")
            for zone in values_at(found["inputs"], path)
        }
        assert first not in zones, found["name"]
