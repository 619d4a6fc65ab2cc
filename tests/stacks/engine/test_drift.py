"""Drift: what others do in the cloud is told, and only what is gone is made again."""

from __future__ import annotations

import pytest

from planner.errors import MissingError
from providers.simulated import world
from stacks.engine.simulated import SimulatedEngine
from tests.stacks.engine.test_simulated import TEXT, objects, plan_of, quiet


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_what_others_do_is_told_and_what_is_gone_is_made_again(
    here, catalog, cloud: str
) -> None:
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    with pytest.raises(MissingError):
        engine.drift("chat")
    plan = plan_of(catalog, TEXT.replace("CLOUD", cloud))
    engine.apply(plan, quiet)
    assert engine.drift("chat") == ()
    by_name = {found["name"]: i for i, found in objects(engine).items()}
    needed = {
        name
        for resource in plan.graph.resources
        for name in resource.depends_on
    }
    for name in sorted(by_name):
        if name in needed:
            continue
        before = engine.shared_world.path.read_bytes()
        present_objects = objects(engine)
        object_id = next(
            i for i, found in present_objects.items() if found["name"] == name
        )
        with engine.shared_world.call(plan.graph.region) as clouds:
            del clouds.memory.objects[object_id]
        [drifted] = engine.drift("chat")
        assert (drifted.kind, drifted.name) == ("gone", name)
        written = engine.shared_world.path.read_bytes()
        assert engine.drift("chat")
        assert engine.shared_world.path.read_bytes() == written
        engine.shared_world.path.write_bytes(before)
        assert engine.drift("chat") == ()

    with engine.shared_world.call(plan.graph.region) as clouds:
        changed = clouds.memory.objects[by_name["serve-nodes"]]
        changed["inputs"] = {**changed["inputs"], "added": "by somebody"}
    [drifted] = engine.drift("chat")
    assert (drifted.kind, drifted.details) == ("changed", ("added",))
    # What somebody has changed is not overwritten without being asked.
    assert engine.apply(plan, quiet).steps == ()
    assert len(engine.drift("chat")) == 1


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_an_apply_makes_again_what_is_gone(here, catalog, cloud: str) -> None:
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    plan = plan_of(catalog, TEXT.replace("CLOUD", cloud))
    engine.apply(plan, quiet)
    with engine.shared_world.call(plan.graph.region) as clouds:
        for object_id, found in list(clouds.memory.objects.items()):
            if found["name"] in ("serve-nodes", "trouble"):
                del clouds.memory.objects[object_id]
    gone = {drifted.name for drifted in engine.drift("chat")}
    assert "serve-nodes" in gone
    made = {
        step.name
        for step in engine.apply(plan, quiet).steps
        if step.action == "create"
    }
    assert made == gone
    assert engine.drift("chat") == ()
    assert len(objects(engine)) == len(plan.graph.resources)
