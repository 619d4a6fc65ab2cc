"""What holds data stays, is remembered, and is taken back."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from planner.errors import PolicyError
from planner.plan.types import Plan, Properties
from providers.simulated import world
from stacks.engine.keep import held_data
from stacks.engine.protocol import RunControl
from stacks.engine.simulated import SimulatedEngine
from tests.conftest import present
from tests.stacks.engine.test_simulated import (
    EVERYTHING,
    TEXT,
    objects,
    plan_of,
    quiet,
    trained_on,
)

CLOUDS = ("aws", "gcp", "azure")
BUCKETS = {
    "aws:s3/bucket:Bucket",
    "gcp:storage/bucket:Bucket",
    "azure-native:storage:StorageAccount",
}
NAMES = ("bucket", "name", "accountName")


@pytest.fixture
def engine(here) -> SimulatedEngine:
    return SimulatedEngine(world.default_world(), here / "clouds")


def buckets_among(found_objects: dict[str, Properties]) -> dict[str, str]:
    """The buckets among objects, by id: their names."""
    return {
        object_id: next(
            found["inputs"][name] for name in NAMES if name in found["inputs"]
        )
        for object_id, found in found_objects.items()
        if found["type"] in BUCKETS
    }


def buckets(engine: SimulatedEngine) -> dict[str, str]:
    return buckets_among(objects(engine))


def renamed(plan: Plan, name: str) -> Plan:
    """The same plan with another name of its bucket."""
    return replace(
        plan,
        digest=name,
        graph=replace(
            plan.graph,
            resources=tuple(
                replace(
                    resource,
                    inputs={
                        key: name if key in NAMES else value
                        for key, value in resource.inputs.items()
                    },
                )
                if resource.type in BUCKETS
                else resource
                for resource in plan.graph.resources
            ),
        ),
    )


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_destroy_leaves_data_and_an_apply_takes_them_back(
    engine, catalog, cloud: str
) -> None:
    plan = plan_of(catalog, TEXT.replace("CLOUD", cloud))
    engine.apply(plan, quiet)
    before = buckets(engine)
    assert len(before) == 1
    engine.destroy("chat", quiet)
    assert buckets(engine) == before
    status = present(engine.stack_status("chat"))
    assert status.operation == "destroyed"
    assert status.resources == ()
    assert len(status.retained) == len(objects(engine))
    # A second one has nothing to do, and forgets nothing.
    engine.destroy("chat", quiet)
    assert buckets(engine) == before
    engine.apply(plan, quiet)
    assert buckets(engine) == before
    assert present(engine.stack_status("chat")).retained == ()
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}
    assert engine.stack_status("chat") is None


@pytest.mark.parametrize("cloud", CLOUDS)
def test_what_stays_keeps_what_protects_it_and_what_it_lives_in(
    engine, catalog, cloud: str
) -> None:
    plan = plan_of(catalog, trained_on(cloud))
    engine.apply(plan, quiet)
    engine.destroy("chat", quiet)
    left = {found["type"] for found in objects(engine).values()}
    held = {held_data(resource_type) for resource_type in left}
    assert {"bucket", "file system"} <= held
    if cloud == "aws":
        assert "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock" in left
        assert "aws:ec2/subnet:Subnet" in left
    if cloud == "azure":
        assert "azure-native:resources:ResourceGroup" in left
    assert not any("group:Group" in name for name in left)
    engine.apply(plan, quiet)
    assert present(engine.stack_status("chat")).complete
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


# Containers of an account of Azure have one name in every account.
@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_every_bucket_that_was_left_is_remembered(
    engine, catalog, cloud: str
) -> None:
    """A new name makes a new bucket; the old ones stay, and are found again by their names."""
    plan = plan_of(catalog, TEXT.replace("CLOUD", cloud))
    names = ["first0000", "second000", "third0000"]
    for name in names:
        engine.apply(renamed(plan, name), quiet)
    assert sorted(buckets(engine).values()) == sorted(names)
    before = buckets(engine)
    engine.apply(renamed(plan, "first0000"), quiet)
    assert buckets(engine) == before
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


def test_data_that_must_go_first_are_asked_for(engine, catalog) -> None:
    """A property that cannot change, under the same name: the old bucket would have to go."""
    plan = plan_of(catalog, TEXT.replace("CLOUD", "gcp"))
    engine.apply(plan, quiet)
    moved = replace(
        plan,
        digest="moved",
        graph=replace(
            plan.graph,
            resources=tuple(
                replace(resource, inputs={**resource.inputs, "location": "EU"})
                if resource.type in BUCKETS
                else resource
                for resource in plan.graph.resources
            ),
        ),
    )
    before = buckets(engine)
    with pytest.raises(PolicyError, match="deleted with its data"):
        engine.apply(moved, quiet)
    assert buckets(engine) == before
    engine.apply(moved, quiet, EVERYTHING)
    assert buckets(engine) != before


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_what_a_left_file_system_lives_in_is_left_too(
    here, catalog, cloud: str
) -> None:
    """It was left by an apply; the destroy after that goes through, and so does another apply."""
    text = (
        "apiVersion: tonnage/v1\nkind: Training\nname: chat\n"
        "model: {name: llama-3.1-8b}\n"
        "data: {location: s3://sets/chat, tokens: 200M, storage: STORAGE}\n"
        f"train: {{method: finetune, deadline: 3d}}\nwhere: {{clouds: [{cloud}]}}\n"
        "protect: false\n"
    )
    engine = SimulatedEngine(world.default_world(), here / "clouds")

    def apply(storage: str) -> None:
        engine.apply(plan_of(catalog, text.replace("STORAGE", storage)), quiet)

    def held() -> set[str]:
        return {
            object_id
            for object_id, found in objects(engine).items()
            if held_data(found["type"]) == "file system"
        }

    apply("parallel")
    [file_system] = held()
    reached = {
        object_id
        for object_id, found in objects(engine).items()
        if found["type"].startswith(
            ("gcp:servicenetworking", "gcp:compute/globalA")
        )
    }
    assert bool(reached) == (cloud == "gcp")
    apply("object")
    assert held() == {file_system}
    assert reached <= objects(engine).keys(), "its way to the network stays"
    engine.destroy("chat", quiet)
    assert held() == {file_system}
    apply("parallel")
    assert held() == {file_system}, "it is taken back"
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


def test_a_file_system_is_taken_back_in_its_own_zone(here, catalog) -> None:
    """One of the same name in another zone is another one."""
    text = (
        "apiVersion: tonnage/v1\nkind: Training\nname: chat\n"
        "model: {name: llama-3.1-8b}\n"
        "data: {location: s3://sets/chat, tokens: 200M, storage: parallel}\n"
        "train: {method: finetune}\nprotect: false\n"
        "where: {clouds: [gcp], zones: [ZONE]}\n"
    )
    engine = SimulatedEngine(world.default_world(), here / "clouds")

    def held(zone: str) -> set[str]:
        """The file systems, after an apply in a zone."""
        plan = plan_of(catalog, text.replace("ZONE", zone))
        engine.apply(plan, quiet, RunControl(allow=frozenset({"outage"})))
        assert engine.apply(plan, quiet).steps == ()
        return {
            str(found["inputs"]["location"])
            for found in objects(engine).values()
            if held_data(found["type"]) == "file system"
        }

    assert held("us-central1-a") == {"us-central1-a"}
    both = {"us-central1-a", "us-central1-b"}
    assert held("us-central1-b") == both
    assert held("us-central1-a") == both
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


@pytest.mark.parametrize(
    ("cloud", "there", "back"),
    [
        ("aws", "range: 10.50.0.0/16", "range: 10.42.0.0/16"),
        ("azure", "range: 10.50.0.0/16", "range: 10.42.0.0/16"),
        (
            "aws",
            "id: vpc-0a1b2c3d4e5f60718, range: 10.20.0.0/20, "
            "subnets: [subnet-0a1b2c3d4e5f60711@us-east-1a]",
            "range: 10.42.0.0/16",
        ),
    ],
)
def test_networks_that_change_and_come_back_make_no_third_file_system(
    here, catalog, cloud: str, there: str, back: str
) -> None:
    """What was left in a network is taken back with it, however often that comes back."""
    text = (
        "apiVersion: tonnage/v1\nkind: Training\nname: chat\n"
        "model: {name: llama-3.1-8b}\n"
        "data: {location: s3://sets/chat, tokens: 200M, storage: parallel}\n"
        "train: {method: finetune, deadline: 3d}\nprotect: false\n"
        f"where: {{clouds: [{cloud}]}}\nbuy: {{spot: never}}\n"
    )
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    seen = []
    for network in (back, there) * 3:
        plan = plan_of(catalog, f"{text}network: {{{network}}}\n")
        engine.apply(plan, quiet, RunControl(allow=frozenset({"outage"})))
        assert engine.apply(plan, quiet).steps == ()
        seen.append(
            {
                object_id
                for object_id, found in objects(engine).items()
                if held_data(found["type"]) == "file system"
                or found["type"].endswith((":Vpc", ":VirtualNetwork"))
            }
        )
    assert seen[1] == seen[2] == seen[3] == seen[4] == seen[5]
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}
