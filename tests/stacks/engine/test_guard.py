"""Guard rails: protected data stay, and production wants a word."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from planner.errors import PolicyError
from planner.plan.types import Plan
from providers.simulated import world
from stacks.engine.guard import (
    production_label,
    refuse_left_disks,
    refuse_production,
)
from stacks.engine.simulated import SimulatedEngine
from tests.conftest import only, present
from tests.stacks.engine.test_keep import buckets, renamed
from tests.stacks.engine.test_simulated import (
    EVERYTHING,
    TEXT,
    objects,
    plan_of,
    quiet,
)


@pytest.fixture
def engine(here) -> SimulatedEngine:
    return SimulatedEngine(world.default_world(), here / "clouds")


def planned(catalog, extra: str) -> Plan:
    return plan_of(catalog, TEXT.replace("CLOUD", "aws") + f"\n{extra}\n")


def test_data_of_a_protected_stack_outlive_every_permission(
    engine, catalog
) -> None:
    plan = planned(catalog, "protect: true")
    engine.apply(plan, quiet)
    before = objects(engine)
    with pytest.raises(PolicyError, match="protected"):
        engine.destroy("chat", quiet, EVERYTHING)
    with pytest.raises(PolicyError, match="protected"):
        engine.apply(renamed(plan, "elsewhere-0000"), quiet, EVERYTHING)
    assert objects(engine) == before
    # Without the permission the machines may go; the data stay.
    engine.destroy("chat", quiet)
    assert len(buckets(engine)) == 1
    with pytest.raises(PolicyError, match="protected"):
        engine.destroy("chat", quiet, EVERYTHING)
    # Only an apply takes the protection away.
    engine.apply(planned(catalog, "protect: false"), quiet)
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ({"env": "prod"}, "env: prod"),
        ({"ENV": "Production"}, "ENV: Production"),
        ({"team": "prod"}, ""),
        ({"env": "staging"}, ""),
        ({}, ""),
    ],
)
def test_labels_say_what_is_in_production(labels, found) -> None:
    assert production_label(labels) == found


def test_production_wants_a_word(engine, catalog) -> None:
    engine.apply(planned(catalog, "labels: {env: prod}"), quiet)
    facts = present(present(engine.stack_status("chat")).facts)
    with pytest.raises(PolicyError, match="in production"):
        refuse_production("chat", facts, {"outage"}, "it would be gone")
    refuse_production("chat", facts, {"production"}, "it would be gone")
    refuse_production("chat", replace(facts, labels={}), (), "it would go")
    refuse_production("chat", None, (), "it would be gone")


DESK = """
apiVersion: tonnage/v1
kind: Workspace
name: desk
accelerator: {memory: 20GiB}
users: 2
where: {clouds: [aws], regions: [eu-west-1]}
"""


def test_machines_leave_no_disk_of_a_workspace_in_another_zone(
    engine, catalog
) -> None:
    """The disks are kept, and no machine of another zone attaches them."""
    first = plan_of(catalog, DESK)
    engine.apply(first, quiet)
    engine.apply(plan_of(catalog, DESK.replace("users: 2", "users: 3")), quiet)
    [pool] = first.solution.pools
    elsewhere = only(
        catalog,
        lambda offer: (
            offer.instance.provider == "aws"
            and offer.region == "eu-west-1"
            and bool(offer.zones)
            and offer.zones[0] != pool.zones[0]
        ),
    )
    moved = plan_of(elsewhere, DESK)
    assert moved.solution.pools[0].zones[0] != pool.zones[0]
    before = objects(engine)
    with pytest.raises(PolicyError, match=f"are in {pool.zones[0]}"):
        engine.apply(moved, quiet)
    assert objects(engine) == before


WORKSPACE = """\
apiVersion: tonnage/v1
kind: Workspace
name: chat
accelerator: {memory: 24GiB, count: 1}
disk: 100GiB
shutdown: {ttl: 3d}
where: {clouds: [aws], regions: [us-east-1]}
"""


def in_zones(plan: Plan, *zones: str) -> Plan:
    pools = tuple(replace(pool, zones=zones) for pool in plan.solution.pools)
    return replace(plan, solution=replace(plan.solution, pools=pools))


def test_a_workspace_stays_in_the_zone_of_its_disks(engine, catalog) -> None:
    plan = plan_of(catalog, WORKSPACE)
    engine.apply(plan, quiet)
    before = objects(engine)
    facts = present(present(engine.stack_status("chat")).facts)
    first = facts.pools[0].zones[0]
    elsewhere = in_zones(plan, f"{first}-other", first)
    with pytest.raises(PolicyError, match=rf"are in {first}, ") as refused:
        engine.apply(elsewhere, quiet)
    [problem] = refused.value.problems
    assert "destroy chat --allow delete-data" in problem.next_step
    assert objects(engine) == before
    # It is the first zone that they are in; another region has disks of its own.
    refuse_left_disks(in_zones(plan, first, f"{first}-other"), facts)
    refuse_left_disks(elsewhere, replace(facts, region="us-west-2"))
    refuse_left_disks(elsewhere, None)
