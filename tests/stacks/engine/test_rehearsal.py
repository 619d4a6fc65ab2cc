"""Preflight tells all that an apply would meet, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import TonnageError
from planner.plan.types import Plan
from providers.simulated.world_file import read_world
from stacks.engine.failure import combined_error
from stacks.engine.simulated import SimulatedEngine
from tests.stacks.engine.test_simulated import TEXT, objects, plan_of, quiet

CLOUDS = ("aws", "gcp", "azure")


def engine_of(rules: str, here: Path) -> SimulatedEngine:
    return SimulatedEngine(
        read_world(rules.encode(), "w.yaml"), here / "clouds"
    )


def planned(catalog, cloud: str, text: str = TEXT) -> Plan:
    return plan_of(catalog, text.replace("CLOUD", cloud))


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_world_that_refuses_nothing_has_nothing_to_tell(
    here, catalog, cloud
) -> None:
    engine = engine_of("project: mine", here)
    plan = planned(catalog, cloud)
    assert engine.preflight(plan) == []
    assert not engine.shared_world.path.exists()
    engine.apply(plan, quiet)
    assert engine.preflight(plan) == []


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_resource_that_would_be_refused_is_told_at_once(
    here, catalog, cloud
) -> None:
    """As many as there are, though the first one would end an apply."""
    engine = engine_of("refuses: [{on: create, code: AccessDenied}]", here)
    plan = planned(catalog, cloud)
    told = engine.preflight(plan)
    assert {refusal.step for refusal in told} == {
        f"create of {resource.name}" for resource in plan.graph.resources
    }
    assert all("AccessDenied" in refusal.message for refusal in told)


@pytest.mark.parametrize("unit", ["nodes", "vcpus", "accelerators"])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_quota_is_told_and_then_met(here, catalog, cloud, unit) -> None:
    """What preflight says of a limit is what an apply then meets, in every unit."""
    plan = planned(catalog, cloud)
    pool = plan.solution.pools[0]
    each = {"nodes": 1, "accelerators": pool.accelerators_per_node}
    instance = next(
        o.instance
        for o in catalog.offers
        if o.instance.instance_type == pool.instance_type
    )
    needed = pool.nodes * each.get(unit, instance.vcpu)
    for amount in (needed - 1, needed):
        engine = engine_of(f"quota: [{{{unit}: {amount}}}]", here / str(amount))
        told = engine.preflight(plan)
        assert bool(told) == (amount < needed)
        if told:
            error = combined_error(told)
            assert error.exit_code == 14
            assert f"{amount} {unit}" in str(error)
            with pytest.raises(TonnageError) as refusal:
                engine.apply(plan, quiet)
            assert refusal.value.exit_code == 14
        else:
            engine.apply(plan, quiet)


def test_a_change_of_what_stands_is_rehearsed_too(here, catalog) -> None:
    engine = engine_of("quota: [{nodes: 4}]", here)
    engine.apply(planned(catalog, "aws"), quiet)
    before = objects(engine)
    larger = planned(
        catalog, "aws", TEXT.replace("peak_rps: 2", "peak_rps: 1000")
    )
    told = engine.preflight(larger)
    assert [refusal for refusal in told if "nodes" in refusal.step]
    assert objects(engine) == before


def test_a_name_that_is_taken_is_told(here, catalog) -> None:
    """Another stack of the same account has the names of this one."""
    engine = engine_of("project: mine", here)
    plan = planned(catalog, "gcp")
    engine.apply(plan, quiet)
    engine.store.delete(plan.stack.name)
    told = engine.preflight(plan)
    assert told
    assert {refusal.message.split(":")[0] for refusal in told} == {
        "AlreadyExists"
    }
