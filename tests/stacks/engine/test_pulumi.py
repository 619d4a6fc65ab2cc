"""The real Pulumi engine on the simulated clouds; skipped, visibly, without its binary."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from planner import api
from planner.errors import (
    CapacityError,
    MissingError,
    PolicyError,
    ResourceError,
)
from providers.simulated import world
from stacks.engine.handover import handover_of
from stacks.engine.impact import changes_of
from stacks.engine.lock import host_name
from stacks.engine.protocol import ProgressEvent, RunControl
from stacks.engine.roll import apply_and_watch, begin_roll
from stacks.engine.simulated import SimulatedEngine
from stacks.engine.store import FolderStore
from tests.conftest import chat, present
from tests.reliability.faults import fleet_keys
from tests.stacks.engine.test_handover import generation, service
from tests.stacks.engine.test_keep import buckets_among, renamed
from tests.stacks.engine.test_simulated import (
    EVERYTHING,
    TEXT,
    plan_of,
    quiet,
)
from tests.stacks.spec.test_fleet import plan_of_pools, three_pools

pytest.importorskip("pulumi", reason="the pulumi extra is not installed")
from stacks.engine.pulumi import gate
from stacks.engine.pulumi.engine import PulumiEngine

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        shutil.which("pulumi") is None, reason="no pulumi binary on PATH"
    ),
    pytest.mark.enable_socket,
    # Pulumi's SDK leaves the coroutines of a run that was refused to the collector.
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
]


def engine_in(folder, rules: str = "") -> PulumiEngine:
    import os

    source = "default"
    if rules:
        (folder / "world.yaml").write_text(rules)
        source = str(folder / "world.yaml")
    return PulumiEngine(
        folder / "pulumi",
        backend=None,
        world_source=source,
        environment=dict(os.environ),
    )


def objects(engine: PulumiEngine) -> dict:
    return world.load_memory(engine.folder / "world.json").objects


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_a_roll_that_fails_is_taken_back_by_the_real_engine(
    here, catalog, cloud
) -> None:
    engine = engine_in(here, "silences: [{name: serve-nodes}]\n")
    home, away = (
        plan_of(catalog, service(cloud) + f"shutdown: {{idle: {idle}}}\n")
        for idle in ("30m", "40m")
    )

    def roll_to(plan) -> None:
        status = engine.stack_status("chat")
        changes = (
            changes_of(plan, engine.preview(plan), status) if status else None
        )
        roll = begin_roll(engine, plan, status, changes, RunControl())
        apply_and_watch(engine, plan, roll, quiet, RunControl())

    roll_to(home)
    with pytest.raises(ResourceError, match="not well"):
        roll_to(away)
    assert present(engine.stack_status("chat")).plan == home.digest
    assert engine.drift("chat") == ()
    roll_to(away)
    assert present(engine.stack_status("chat")).plan == away.digest


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_the_real_engine_creates_keeps_changes_and_destroys(
    here, catalog, cloud
) -> None:
    engine = engine_in(here)
    plan = plan_of(catalog, TEXT.replace("CLOUD", cloud))
    assert engine.stack_status("chat") is None
    outcome = engine.apply(plan, quiet)
    assert (
        len(objects(engine)) == len(plan.graph.resources) == len(outcome.steps)
    )
    assert set(outcome.outputs) == set(plan.graph.outputs)
    assert all(v is not None for v in outcome.outputs.values())
    assert engine.apply(plan, quiet).steps == ()
    standing = present(engine.stack_status("chat"))
    assert standing.complete
    assert standing.plan == plan.digest
    assert standing.started == world.default_world().clock.isoformat()
    assert engine.stack_names() == ["chat"]
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}
    with pytest.raises(MissingError):
        engine.destroy("chat", quiet, EVERYTHING)


def test_the_real_engine_builds_three_pools_and_takes_one_away(
    here, catalog
) -> None:
    engine = engine_in(here)
    pools = three_pools("aws")
    plan = plan_of_pools(catalog, *pools.values())
    outcome = engine.apply(plan, quiet)
    assert len(objects(engine)) == len(plan.graph.resources)
    groups = {"group_large", "group_small", "group_small_spot"}
    assert groups < set(outcome.outputs)
    fewer = plan_of_pools(catalog, pools["large"], pools["small"])
    gone = [
        step.name
        for step in engine.apply(fewer, quiet).steps
        if step.action == "delete"
    ]
    assert "notebooks-nodes" in gone
    assert all(name.startswith("notebooks-") for name in gone)
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


def test_both_engines_put_the_same_inputs_into_the_world(here, catalog) -> None:
    plan = plan_of(catalog, TEXT.replace("CLOUD", "gcp"))
    real = engine_in(here)
    ours = SimulatedEngine(world.default_world(), here / "ours")
    real.apply(plan, quiet)
    ours.apply(plan, quiet)
    mine = {
        o["name"]: o
        for o in world.load_memory(ours.shared_world.path).objects.values()
    }
    theirs = {o["name"]: o for o in objects(real).values()}
    assert mine.keys() == theirs.keys()
    for name, found in mine.items():
        assert found["type"] == theirs[name]["type"]
        assert set(found["inputs"]) == set(theirs[name]["inputs"]), name


def test_no_capacity_is_told_by_the_real_engine_too(here, catalog) -> None:
    engine = engine_in(here, "capacity: [{nodes: 0}]\n")
    plan = plan_of(catalog, TEXT.replace("CLOUD", "aws"))
    with pytest.raises(CapacityError, match="InsufficientInstanceCapacity"):
        engine.apply(plan, quiet)
    begun = present(engine.stack_status("chat"))
    assert not begun.complete
    assert begun.plan == plan.digest, "or the same plan could not go on"
    (here / "world.yaml").write_text("capacity: [{nodes: 99}]\n")
    engine.apply(plan, quiet)
    assert present(engine.stack_status("chat")).complete
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


def test_a_checkpoint_that_was_cut_is_whole_again_for_whoever_reads_it(
    here: Path, catalog
) -> None:
    """Also where the writer dies only while somebody is reading."""
    engine = engine_in(here)
    plan = plan_of(catalog, TEXT.replace("CLOUD", "aws"))
    engine.apply(plan, quiet)
    state_folder = engine.folder / "state/.pulumi"
    checkpoint_path = state_folder / "stacks/tonnage/chat.json"
    # Pulumi's own copy is the checkpoint before the last one.
    checkpoint_path.write_bytes(b"")
    assert engine.stack_names() == ["chat"]
    status = present(engine.stack_status("chat"))
    assert len(status.resources) == len(plan.graph.resources)
    checkpoint_path.write_bytes(b"")
    with subprocess.Popen(["sleep", "2"]) as writer:
        lock = {"pid": writer.pid, "hostname": host_name(), "username": "me"}
        lock_folder = state_folder / "locks/organization/tonnage/chat"
        lock_folder.mkdir(parents=True, exist_ok=True)
        (lock_folder / "1.json").write_text(json.dumps(lock))
        status = present(engine.stack_status("chat"))
        assert len(status.resources) == len(plan.graph.resources)


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_calls_that_were_cut_off_are_looked_up(
    here: Path, catalog, cloud: str
) -> None:
    """A creation whose object is there is taken over, one whose object is not is made."""
    engine = engine_in(here)
    plan = plan_of(catalog, TEXT.replace("CLOUD", cloud))
    engine.apply(plan, quiet)
    before = objects(engine)
    checkpoint_path = engine.folder / "state/.pulumi/stacks/tonnage/chat.json"
    document = json.loads(checkpoint_path.read_text())
    latest = document["checkpoint"]["latest"]
    needed = {
        urn
        for record in latest["resources"]
        for urn in record.get("dependencies", ())
    }
    cut_records = [
        record
        for record in latest["resources"]
        if record.get("custom")
        and not record["type"].startswith("pulumi:")
        and record["urn"] not in needed
    ]
    assert len(cut_records) >= 5
    latest["resources"] = [
        record for record in latest["resources"] if record not in cut_records
    ]
    latest["pending_operations"] = [
        {
            "type": "creating",
            "resource": {
                key: value
                for key, value in record.items()
                if key not in ("id", "outputs", "created", "modified")
            },
        }
        for record in cut_records
    ]
    checkpoint_path.write_text(json.dumps(document))
    assert len(present(engine.stack_status("chat")).pending) == len(cut_records)
    assert engine.preflight(plan) == [], "nothing is in its own way"
    # The cloud has forgotten one of them.
    lost_name = cut_records[0]["urn"].rsplit("::", 1)[-1]
    remaining = world.load_memory(engine.folder / "world.json")
    [lost_id] = [
        object_id
        for object_id, found in remaining.objects.items()
        if found["name"] == lost_name
    ]
    del remaining.objects[lost_id]
    world.save_memory(engine.folder / "world.json", remaining)
    assert engine.preflight(plan) == []

    found = engine.recover("chat", quiet)
    assert {step.name for step in found.steps} == {
        record["urn"].rsplit("::", 1)[-1] for record in cut_records
    }
    created = [
        step.name
        for step in engine.apply(plan, quiet).steps
        if step.action == "create"
    ]
    assert created == [lost_name]
    after = objects(engine)
    assert sorted(found["name"] for found in after.values()) == sorted(
        found["name"] for found in before.values()
    )
    assert present(engine.stack_status("chat")).complete


def test_every_bucket_that_was_left_is_remembered_by_the_real_engine(
    here: Path, catalog
) -> None:
    """A new name makes a new bucket; nothing imports the old one in its place."""
    engine = engine_in(here)
    plan = plan_of(catalog, TEXT.replace("CLOUD", "gcp"))
    for name in ("first0000", "second000", "third0000"):
        engine.apply(renamed(plan, name), quiet)
        # What was left stays out of the next runs.
        assert engine.apply(renamed(plan, name), quiet).steps == ()
    assert sorted(buckets_among(objects(engine)).values()) == [
        "first0000",
        "second000",
        "third0000",
    ]
    engine.destroy("chat", quiet)
    assert len(present(engine.stack_status("chat")).retained) == 3
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}
    assert engine.stack_status("chat") is None


def test_the_real_engine_walks_down_the_fallbacks(here: Path, catalog) -> None:
    """What was refused leaves nothing behind, whatever the fallback changes."""
    text = chat(extra="buy: {fallback: 100%}\nwhere: {clouds: [azure, aws]}")
    plan = api.plan(text.encode(), catalog=catalog, alternatives=0)
    fleets = fleet_keys(plan)
    provider, region, machine = fleets[0]
    wanted_rung = next(
        rung for rung, fleet in enumerate(fleets) if fleet != fleets[0]
    )
    assert wanted_rung > 1, "other zones are tried first"
    # Neither the machines of the plan nor those that would stand in for them.
    [pool] = plan.solution.pools
    missing = [machine, *(other.instance_type for other in pool.stand_ins)]
    rows = ", ".join(
        f"{{provider: {provider}, region: {region}, instance_type: {name}, nodes: 0}}"
        for name in missing
    )
    engine = engine_in(here, f"capacity: [{rows}]\n")
    heard: list[ProgressEvent] = []
    engine.apply(plan, heard.append)
    tried = [event for event in heard if event.phase == "fallback"]
    assert len(tried) == wanted_rung
    status = present(engine.stack_status("chat"))
    assert (status.complete, present(status.facts).rung) == (True, wanted_rung)
    standing = plan.on_rung(wanted_rung)
    assert sorted(found["name"] for found in objects(engine).values()) == (
        sorted(resource.name for resource in standing.graph.resources)
    )
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


def test_a_stack_renamed_under_the_real_engine_is_the_same_stack(
    here: Path, catalog
) -> None:
    engine = engine_in(here)
    plan = plan_of(catalog, TEXT.replace("CLOUD", "gcp"))
    engine.apply(plan, quiet)
    made = objects(engine)
    before = present(engine.stack_status("chat"))
    engine.rename("chat", "other")
    assert engine.stack_names() == ["other"]
    after = present(engine.stack_status("other"))
    assert after.resources == before.resources
    assert after.outputs == before.outputs
    assert objects(engine).keys() == made.keys()
    engine.destroy("other", quiet, EVERYTHING)
    assert objects(engine) == {}


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_a_bucket_whose_state_was_lost_is_taken_over_by_the_real_engine(
    here: Path, catalog, cloud: str
) -> None:
    plan = plan_of(catalog, TEXT.replace("CLOUD", cloud))
    engine = engine_in(here)
    engine.apply(plan, quiet)
    engine.destroy("chat", quiet)
    kept = {
        object_id: found["name"] for object_id, found in objects(engine).items()
    }
    assert kept
    # The state is gone, the clouds are not.
    shutil.rmtree(engine.folder / "state", ignore_errors=True)
    assert isinstance(engine.store, FolderStore)
    for path in engine.store.folder.glob("*"):
        path.unlink() if path.is_file() else shutil.rmtree(path)
    for object_id, name in kept.items():
        engine.take_over(plan, name, object_id)
    engine.apply(plan, quiet)
    assert kept.keys() <= objects(engine).keys()
    assert len(objects(engine)) == len(plan.graph.resources)
    assert engine.apply(plan, quiet).steps == ()
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


def test_the_real_engine_undoes_changes_by_others_only_when_asked(
    here: Path, catalog
) -> None:
    engine = engine_in(here)
    plan = plan_of(catalog, TEXT.replace("CLOUD", "gcp"))
    engine.apply(plan, quiet)
    shared_world = present(engine.simulated_world())
    with shared_world.call(plan.graph.region) as clouds:
        for changed in clouds.memory.objects.values():
            if changed["name"] == "serve-nodes":
                changed["inputs"] = {**changed["inputs"], "description": "mine"}
    assert [found.name for found in engine.drift("chat")] == ["serve-nodes"]
    assert engine.apply(plan, quiet).steps == ()
    larger = plan_of(
        catalog,
        TEXT.replace("CLOUD", "gcp").replace("peak_rps: 2", "peak_rps: 40"),
    )
    with pytest.raises(PolicyError, match="somebody has changed serve-nodes"):
        engine.apply(larger, quiet, RunControl(allow=frozenset({"outage"})))
    engine.apply(plan, quiet, RunControl(allow=frozenset({"drift"})))
    assert engine.drift("chat") == ()
    assert engine.apply(plan, quiet).steps == ()


@pytest.mark.parametrize(
    "pair",
    [
        ("aws", "gcp"),
        ("azure", "aws"),
        ("gcp", "azure"),
        ("aws], regions: [us-east-1", "aws], regions: [us-west-2"),
    ],
)
def test_the_real_engine_moves_a_stack_there_and_back(
    here: Path, catalog, pair: tuple[str, str]
) -> None:
    """Also when a cloud refuses something on the way; data that were left are taken back."""
    engine = engine_in(
        here,
        "faults: [{on: create, name: '*-nodes', code: InvalidParameterValue, after: 1}]\n",
    )
    home, away = (
        plan_of(catalog, TEXT.replace("CLOUD", cloud)) for cloud in pair
    )
    engine.apply(home, quiet)
    at_home = buckets_among(objects(engine))
    with pytest.raises(ResourceError):
        engine.apply(away, quiet)
    assert engine.preflight(home) == engine.preflight(away) == []
    engine.apply(away, quiet)
    assert at_home.keys() <= buckets_among(objects(engine)).keys()
    engine.apply(home, quiet)
    assert at_home.keys() <= buckets_among(objects(engine)).keys()
    assert engine.apply(home, quiet).steps == ()
    left = len(present(engine.stack_status("chat")).retained)
    assert len(objects(engine)) == len(home.graph.resources) + left
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


GROUP_TYPES = (
    "autoscaling/group:Group",
    ":InstanceGroupManager",
    ":VirtualMachineScaleSet",
)


def groups_of(engine: PulumiEngine) -> list[str]:
    return [
        object_id
        for object_id, found in objects(engine).items()
        if found["type"].endswith(GROUP_TYPES)
    ]


@pytest.mark.parametrize("pair", [("aws", "gcp"), ("gcp", "azure")])
def test_the_real_engine_lets_the_new_answer_before_the_old_goes(
    here: Path, catalog, pair: tuple[str, str]
) -> None:
    engine = engine_in(here)
    home, away = (plan_of(catalog, service(cloud)) for cloud in pair)
    engine.apply(home, quiet)
    [old_group] = groups_of(engine)
    began = present(engine.simulated_world()).now()
    standing: list[list[str]] = []

    def watch(event: ProgressEvent) -> None:
        if event.phase == "awaits":
            standing.append(groups_of(engine))

    engine.apply(away, watch, EVERYTHING)
    # Once for the machines, once for the clients.
    assert len(standing) == 2
    assert all(old_group in names and len(names) == 2 for names in standing)
    assert old_group not in groups_of(engine)
    handover = present(handover_of(away, moves=True))
    passed = present(engine.simulated_world()).now() - began
    assert passed.total_seconds() >= handover.startup_s + handover.stay_s
    assert engine.apply(away, quiet).steps == ()


def test_the_real_engine_keeps_the_old_where_the_new_does_not_answer(
    here: Path, catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machines of real clouds are asked by their bucket; here nobody has written to it."""
    engine = engine_in(here)
    home, away = (plan_of(catalog, service(cloud)) for cloud in ("aws", "gcp"))
    engine.apply(home, quiet)
    monkeypatch.setattr(engine, "_passing", lambda: None)
    impatient = replace(
        present(handover_of(away, moves=True)), limit_s=0.0, stay_s=0.0
    )
    monkeypatch.setattr(gate, "handover_of", lambda *_, **__: impatient)
    with pytest.raises(ResourceError, match="do not answer"):
        engine.apply(away, quiet, EVERYTHING)
    both = groups_of(engine)
    assert len(both) == 2
    waiting = present(engine.stack_status("chat"))
    arriving = waiting.arriving
    assert arriving.outputs["bucket"] != waiting.outputs["bucket"]
    assert present(arriving.facts).provider == "gcp"
    # Still nobody.
    with pytest.raises(ResourceError, match="do not answer"):
        engine.apply(away, quiet, EVERYTHING)
    assert groups_of(engine) == both
    working = {"serve": {"i-1": "working", "i-2": "working"}}
    control = RunControl(allow=EVERYTHING.allow, lives=lambda *_: working)
    engine.apply(away, quiet, control)
    assert len(groups_of(engine)) == 1
    moved = present(engine.stack_status("chat"))
    assert (moved.complete, moved.coming) == (True, None)
    assert moved.outputs["bucket"] == arriving.outputs["bucket"]


def test_the_real_engine_lets_the_old_go_first_where_the_spec_says_so(
    here: Path, catalog
) -> None:
    engine = engine_in(here)
    home, away = (
        plan_of(catalog, service(cloud, update="recreate"))
        for cloud in ("gcp", "aws")
    )
    engine.apply(home, quiet)
    most = 0

    def watch(_: ProgressEvent) -> None:
        nonlocal most
        most = max(most, len(groups_of(engine)))

    engine.apply(away, watch, EVERYTHING)
    assert (most, len(groups_of(engine))) == (1, 1)


@pytest.mark.parametrize(
    "pair",
    [
        ("gcp", "aws"),
        ("aws], regions: [us-east-1", "aws], regions: [us-west-2"),
    ],
)
def test_the_real_engine_takes_back_what_a_cut_move_has_not_deleted(
    here: Path, catalog, pair: tuple[str, str]
) -> None:
    engine = engine_in(
        here,
        "faults: [{on: create, name: '*-nodes', code: InvalidParameterValue, after: 1}]\n",
    )
    home, away = (
        plan_of(catalog, TEXT.replace("CLOUD", cloud)) for cloud in pair
    )
    engine.apply(home, quiet)
    at_home = objects(engine).keys()
    with pytest.raises(ResourceError):
        engine.apply(away, quiet)
    assert at_home < objects(engine).keys()
    engine.apply(home, quiet, EVERYTHING)
    assert objects(engine).keys() == at_home
    assert engine.apply(home, quiet).steps == ()


@pytest.mark.parametrize(
    "rules",
    [
        "lags: [{type: '*', seconds: 9, code: ResourceNotReady}]",
        "throttles: [{on: create, type: '*', per_minute: 12}]",
    ],
)
def test_the_real_engine_goes_on_when_a_cloud_asks_for_patience(
    here: Path, catalog, rules: str
) -> None:
    engine = engine_in(here, rules)
    plan = plan_of(catalog, TEXT.replace("CLOUD", "aws"))
    engine.apply(plan, quiet)
    assert len(objects(engine)) == len(plan.graph.resources)
    assert engine.apply(plan, quiet).steps == ()


def test_a_size_that_a_schedule_has_set_is_no_drift_to_the_real_engine(
    here: Path, catalog
) -> None:
    engine = engine_in(here)
    engine.apply(plan_of(catalog, TEXT.replace("CLOUD", "aws")), quiet)

    def change(name: str, value: object) -> None:
        memory = world.load_memory(engine.folder / "world.json")
        [group] = [
            found
            for found in memory.objects.values()
            if found["name"] == "serve-nodes"
        ]
        group["inputs"][name] = group["outputs"][name] = value
        world.save_memory(engine.folder / "world.json", memory)

    change("desiredCapacity", 0)
    assert engine.drift("chat") == ()
    change("healthCheckGracePeriod", 1)
    [drifted] = engine.drift("chat")
    assert (drifted.kind, drifted.name) == ("changed", "serve-nodes")
    assert drifted.details == ("healthCheckGracePeriod",)


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_blue_green_keeps_the_old_fleet_until_the_new_one_answers(
    here, catalog, cloud
) -> None:
    engine = engine_in(here)
    home, away = (
        plan_of(catalog, generation(cloud, idle)) for idle in ("30m", "40m")
    )
    engine.apply(home, quiet)
    # Nobody is asked: there is no outage.
    [group] = [
        step for step in engine.preview(away) if step.name == "serve-nodes"
    ]
    assert (group.action, group.deletes_first) == ("replace", False)
    events: list[ProgressEvent] = []
    engine.apply(away, events.append)
    phases = [
        event.phase for event in events if event.step.name == "serve-nodes"
    ]
    assert "awaits" in phases
    names = [
        stored["outputs"]["name"]
        for stored in objects(engine).values()
        if stored["name"] == "serve-nodes"
    ]
    assert len(names) == 1
