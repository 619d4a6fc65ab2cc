"""Stacks that are renamed, and objects that are taken over: nothing is made or lost by it."""

from __future__ import annotations

from decimal import Decimal

import pytest
from msgspec.structs import replace

from planner.errors import (
    CredentialError,
    MissingError,
    PolicyError,
    UsageError,
)
from providers.simulated import world
from providers.simulated.clock import advance
from stacks.engine.simulated import SimulatedEngine
from stacks.engine.state import PendingCall
from stacks.engine.state_file import StateFile
from stacks.operate.account import account_of
from stacks.operate.orphan import simulated_orphans
from tests.conftest import present
from tests.stacks.engine.test_keep import buckets
from tests.stacks.engine.test_simulated import (
    EVERYTHING,
    TEXT,
    objects,
    plan_of,
    quiet,
)

CLOUDS = ("aws", "gcp", "azure")


@pytest.fixture
def engine(here) -> SimulatedEngine:
    return SimulatedEngine(world.default_world(), here / "clouds")


def test_a_renamed_stack_is_the_same_stack(engine, catalog) -> None:
    engine.apply(plan_of(catalog, TEXT.replace("CLOUD", "aws")), quiet)
    advance(engine.shared_world, 3600)
    before = present(engine.stack_status("chat"))
    made = objects(engine)
    engine.rename("chat", "other")
    after = present(engine.stack_status("other"))
    assert engine.stack_names() == ["other"]
    assert after.resources == before.resources
    assert after.outputs == before.outputs
    assert objects(engine) == made
    now = engine.shared_world.now()
    spent = account_of(after, engine.shared_world, catalog, now).spent_usd
    assert present(spent) > Decimal(0)
    engine.destroy("other", quiet, EVERYTHING)
    assert objects(engine) == {}


def test_a_name_of_another_stack_and_open_calls_are_refused(
    engine, catalog
) -> None:
    engine.apply(plan_of(catalog, TEXT.replace("CLOUD", "aws")), quiet)
    with pytest.raises(MissingError):
        engine.rename("nobody", "other")
    taken = StateFile(engine.store, "taken")
    taken.save()
    with pytest.raises(UsageError, match="already"):
        engine.rename("chat", "taken")
    cut = StateFile(engine.store, "chat")
    record = cut.state.resources["vpc"]
    cut.state.pending["vpc"] = PendingCall(
        action="update", key="vpc", token="t", record=record
    )
    cut.save()
    with pytest.raises(UsageError, match="cut off"):
        engine.rename("chat", "other")
    assert engine.stack_names() == ["chat", "taken"]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_what_is_taken_over_is_not_made_again(engine, catalog, cloud) -> None:
    """The bucket of a stack whose state was lost."""
    plan = plan_of(catalog, TEXT.replace("CLOUD", cloud))
    engine.apply(plan, quiet)
    engine.destroy("chat", quiet)
    [bucket_id] = buckets(engine)
    engine.store.delete("chat")
    kept = {
        object_id: found["name"] for object_id, found in objects(engine).items()
    }
    for object_id, name in kept.items():
        engine.take_over(plan, name, object_id)
    engine.apply(plan, quiet)
    assert list(buckets(engine)) == [bucket_id]
    assert engine.apply(plan, quiet).steps == ()
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


def test_a_stranger_is_not_taken_over(engine, catalog) -> None:
    plan = plan_of(catalog, TEXT.replace("CLOUD", "aws"))
    other = plan_of(
        catalog, TEXT.replace("CLOUD", "aws").replace("name: chat", "name: foe")
    )
    engine.apply(other, quiet)
    found = {
        cloud_object["name"]: object_id
        for object_id, cloud_object in objects(engine).items()
    }
    with pytest.raises(MissingError):
        engine.take_over(plan, "models", "bucket-000")
    with pytest.raises(PolicyError, match="is a aws:ec2/vpc:Vpc"):
        engine.take_over(plan, "models", found["vpc"])
    with pytest.raises(PolicyError, match="another name"):
        engine.take_over(plan, "models", found["models"])
    assert engine.stack_status("chat") is None


def test_what_no_stack_knows_is_an_orphan(engine, catalog) -> None:
    for cloud in ("aws", "gcp"):
        text = TEXT.replace("CLOUD", cloud).replace(
            "name: chat", f"name: chat-{cloud}"
        )
        engine.apply(plan_of(catalog, text), quiet)
    world = engine.shared_world

    def known_ids() -> set[str]:
        return {i for s in engine.stack_names() for i in engine.object_ids(s)}

    assert simulated_orphans(world, CLOUDS, known_ids()) == []
    engine.store.delete("chat-aws")
    found = simulated_orphans(world, CLOUDS, known_ids())
    lost = {i for i, o in objects(engine).items() if o["type"][:4] == "aws:"}
    assert {orphan.id for orphan in found} == lost
    assert {orphan.stack for orphan in found} == {"chat-aws"}
    assert simulated_orphans(world, ("gcp",), known_ids()) == []


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_stack_of_another_account_is_left_alone(
    engine, catalog, cloud
) -> None:
    plan = plan_of(catalog, TEXT.replace("CLOUD", cloud))
    engine.apply(plan, quiet)
    before = objects(engine)
    other = SimulatedEngine(
        replace(world.default_world(), project="somebody-else"), engine.folder
    )
    for run in (
        lambda: other.apply(plan, quiet),
        lambda: other.destroy("chat", quiet, EVERYTHING),
        lambda: other.recover("chat", quiet),
        lambda: other.drift("chat"),
    ):
        with pytest.raises(CredentialError, match="somebody-else is signed in"):
            run()
    assert objects(engine) == before
    assert engine.apply(plan, quiet).steps == ()
