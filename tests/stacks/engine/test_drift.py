"""Drift: what others do in the cloud is told, and only what is gone is made again."""

from __future__ import annotations

import pytest

from planner.errors import MissingError, PolicyError
from providers.simulated import world
from stacks.engine.drift import moves_by_itself
from stacks.engine.protocol import Permission, RunControl
from stacks.engine.simulated import SimulatedEngine
from tests.stacks.engine.test_simulated import TEXT, objects, plan_of, quiet

OUTAGE: frozenset[Permission] = frozenset({"outage"})


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
    larger = plan_of(
        catalog,
        TEXT.replace("CLOUD", cloud).replace("peak_rps: 2", "peak_rps: 40"),
    )
    if "serve-nodes" in {
        step.name
        for step in engine.preview(larger)
        if step.action in ("update", "replace")
    }:
        with pytest.raises(PolicyError, match="somebody has changed serve-nod"):
            engine.apply(larger, quiet, RunControl(allow=OUTAGE))
    assert len(engine.drift("chat")) == 1
    engine.apply(plan, quiet, RunControl(allow=frozenset({"drift"})))
    assert engine.drift("chat") == ()
    assert engine.apply(plan, quiet).steps == ()


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


SIZES = {
    "aws": ("desiredCapacity", "minSize", "maxSize"),
    "gcp": ("targetSize",),
    "azure": ("sku.capacity",),
}


@pytest.mark.parametrize("cloud", sorted(SIZES))
def test_a_size_that_a_schedule_has_set_is_no_drift(
    here, catalog, cloud: str
) -> None:
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    plan = plan_of(catalog, TEXT.replace("CLOUD", cloud))
    engine.apply(plan, quiet)
    with engine.shared_world.call(plan.graph.region) as clouds:
        [group] = [
            found
            for found in clouds.memory.objects.values()
            if found["name"] == "serve-nodes"
        ]
        inputs = group["inputs"]
        for path in SIZES[cloud]:
            assert moves_by_itself(group["type"], path)
            name, _, nested = path.partition(".")
            assert name in inputs
            inputs = {
                **inputs,
                name: {**inputs[name], nested: 0} if nested else 0,
            }
        group["inputs"] = inputs
    assert engine.drift("chat") == ()
    with engine.shared_world.call(plan.graph.region) as clouds:
        group = clouds.memory.objects[
            next(
                object_id
                for object_id, found in clouds.memory.objects.items()
                if found["name"] == "serve-nodes"
            )
        ]
        group["inputs"] = {**group["inputs"], "added": "by somebody"}
    [drifted] = engine.drift("chat")
    assert drifted.details == ("added",)
