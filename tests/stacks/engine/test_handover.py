"""A service that moves: the new answers before the old goes, unless the spec lets it go first."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from planner.cost.lifetime import release_time
from planner.errors import CancelledError
from planner.plan.types import Changes
from providers.simulated import world
from stacks.engine.handover import Handover, handover_of
from stacks.engine.impact import changes_of
from stacks.engine.protocol import ProgressEvent, RunControl
from stacks.engine.simulated import SimulatedEngine
from stacks.engine.stop import StopRequest
from tests.conftest import chat, present
from tests.planner.cli.conftest import Command
from tests.planner.cli.test_upload import weights
from tests.stacks.engine.test_simulated import plan_of

FETCHED = "hf:unsloth/Llama-3.1-8B-Instruct"
MOVES = [
    ("gcp", "aws"),
    ("aws", "azure"),
    ("azure], regions: [eastus", "azure], regions: [westus3"),
    ("gcp], regions: [us-east4", "gcp], regions: [us-central1"),
]


def service(clouds: str, weights: str = FETCHED, update: str = "") -> str:
    text = chat(
        extra=f"where: {{clouds: [{clouds}]}}\n"
        + (f"update: {update}\n" if update else "")
    )
    return text.replace(
        "llama-3.1-8b", f"llama-3.1-8b, weights: '{weights}'", 1
    )


def moved(
    here: Path, catalog, home: str, away: str
) -> tuple[list[ProgressEvent], Changes, Handover | None]:
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    engine.apply(plan_of(catalog, home), lambda _: None)
    plan = plan_of(catalog, away)
    status = present(engine.stack_status("chat"))
    changes = changes_of(plan, engine.preview(plan), status)
    events: list[ProgressEvent] = []
    engine.apply(plan, events.append, RunControl(allow=frozenset({"outage"})))
    return events, changes, handover_of(plan, moves=True)


def done_s(events: list[ProgressEvent], action: str) -> list[float]:
    return [
        event.elapsed_s
        for event in events
        if event.phase == "done"
        and event.step.action == action
        and event.step.name.endswith("-nodes")
    ]


@pytest.mark.parametrize("pair", MOVES)
def test_the_new_answers_before_the_old_goes(here, catalog, pair) -> None:
    events, changes, handover = moved(here, catalog, *map(service, pair))
    handover = present(handover)
    [made_s], [gone_s] = done_s(events, "replace"), done_s(events, "delete")
    first_deletion_s = min(
        event.elapsed_s for event in events if event.step.action == "delete"
    )
    assert first_deletion_s >= made_s + handover.startup_s + handover.stay_s
    assert gone_s > first_deletion_s
    assert handover.startup_s > 0
    assert handover.stay_s == float(release_time("address_change_s"))
    # Nothing is down, but clients have to know.
    assert (changes.outage_s, changes.new_address) == (0, True)


def test_what_turns_to_the_new_machines_waits_for_them(here, catalog) -> None:
    """On Google Cloud the balancer is told of its machines after they are made."""
    home, away = map(service, MOVES[3])
    events, _, handover = moved(here, catalog, home, away)
    times = {
        (event.step.action, event.step.name): event.elapsed_s
        for event in events
        if event.phase == "done"
    }
    group_s = times["replace", "serve-nodes"]
    answer_s = group_s + present(handover).startup_s
    assert times["replace", "backend"] > answer_s


def test_where_the_old_goes_first_the_plan_tells_an_outage(
    here, catalog
) -> None:
    """Some quotas hold one fleet."""
    home, away = (
        service(clouds, update="recreate") for clouds in ("gcp", "aws")
    )
    events, changes, handover = moved(here, catalog, home, away)
    assert handover is None
    assert changes.outage_s > 0
    [made_s] = done_s(events, "create")
    [gone_s] = done_s(events, "delete")
    assert gone_s < made_s


def generation(clouds: str, idle: str = "30m", rps: float = 2) -> str:
    text = service(clouds, update="blue-green")
    return text.replace("peak_rps: 2", f"peak_rps: {rps}") + (
        f"shutdown: {{idle: {idle}}}\n"
    )


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_blue_green_gives_each_template_a_fleet_of_its_own(
    here, catalog, cloud
) -> None:
    """The old fleet goes when the new one answers; the address stays."""
    home, away = generation(cloud), generation(cloud, "40m")
    events, changes, _ = moved(here, catalog, home, away)
    handover = present(handover_of(plan_of(catalog, away), moves=False))
    [made_s], [gone_s] = done_s(events, "replace"), done_s(events, "delete")
    assert gone_s >= made_s + handover.startup_s > made_s
    assert "serve-nodes" not in [
        change.name for change in changes.replace_first
    ]
    assert "serve-nodes" in [change.name for change in changes.replace]
    assert changes.rolling == ()
    assert (changes.outage_s, changes.new_address) == (0, False)
    names = group_names(here)
    assert len(names) == 1


def group_names(here: Path) -> list[str]:
    """The names of the groups of machines in their clouds."""
    memory = world.load_memory(here / "clouds" / "world.json")
    return [
        str(stored["outputs"]["name"])
        for stored in memory.objects.values()
        if stored["name"] == "serve-nodes"
    ]


@pytest.mark.parametrize(
    ("cloud", "rps"), [("aws", 1), ("gcp", 1.5), ("azure", 2.2)]
)
def test_blue_green_makes_no_new_fleet_where_only_its_size_changes(
    here, catalog, cloud, rps
) -> None:
    def generations(text: str) -> set[str]:
        plan = plan_of(catalog, text)
        [group] = [
            resource
            for resource in plan.graph.resources
            if resource.name == "serve-nodes"
        ]
        key = "vmScaleSetName" if cloud == "azure" else "name"
        return {group.inputs[key]}

    usual, other = generation(cloud), generation(cloud, rps=rps)
    assert generations(usual) == generations(other)
    assert generations(usual) != generations(generation(cloud, "40m"))


def test_weights_are_uploaded_to_the_new_bucket_while_the_old_fleet_answers(
    tonnage: Command, here: Path, catalog
) -> None:
    """The run is cut while it waits: who uploads then brings them to the machines that wait."""
    engine = SimulatedEngine(
        world.default_world(), here / ".tonnage" / "simulated"
    )
    home, away = (
        plan_of(catalog, service(clouds, "bucket")) for clouds in ("gcp", "aws")
    )
    engine.apply(home, lambda _: None)
    old_bucket = present(engine.stack_status("chat")).outputs["bucket"]
    stop = StopRequest()
    waits: list[str] = []

    def cut(event: ProgressEvent) -> None:
        if event.phase == "awaits":
            waits.append(event.detail)
            stop.make()

    agreed = RunControl(allow=frozenset({"outage"}))
    with pytest.raises(CancelledError):
        engine.apply(away, cut, replace(agreed, stop=stop))
    assert "tonnage upload" in waits[0]
    status = present(engine.stack_status("chat"))
    new_bucket = present(status.coming).bucket
    assert new_bucket != old_bucket == status.outputs["bucket"]
    code, out, _ = tonnage(
        "upload", "chat", str(weights(here / "weights")), "--simulate"
    )
    assert (code, f"to {new_bucket}/" in out) == (0, True)
    engine.apply(away, lambda _: None, agreed)
    status = present(engine.stack_status("chat"))
    assert (status.coming, status.outputs["bucket"]) == (None, new_bucket)


def test_an_upload_is_waited_for_longer(catalog) -> None:
    """What the machines fetch themselves takes no more than they need to start."""
    fetched, uploaded, stays = (
        present(
            handover_of(plan_of(catalog, service("gcp", kind)), moves=moves)
        )
        for kind, moves in (
            (FETCHED, True),
            ("bucket", True),
            ("bucket", False),
        )
    )
    upload_s = float(release_time("upload_limit_s"))
    assert uploaded.limit_s - uploaded.startup_s == pytest.approx(
        fetched.limit_s - fetched.startup_s + upload_s
    )
    assert "tonnage upload" not in fetched.answer_detail + stays.answer_detail


def test_a_pool_answers_with_what_its_quietest_hour_needs(catalog) -> None:
    plan = plan_of(catalog, service("gcp"))
    handover = present(handover_of(plan, moves=False))
    assert handover.stay_s == 0
    [(group, pool)] = handover.pools.items()
    one, two = (
        replace(handover, pools={group: replace(pool, min_nodes=nodes)})
        for nodes in (1, 2)
    )
    working = {"serve": {"a": "working", "b": "starting"}}
    assert one.answers(group, working)
    assert not two.answers(group, working)
    assert two.answers(group, {"serve": {"a": "working", "b": "working"}})
    assert not one.answers(group, {})
    assert not one.answers(group, {"other": {"a": "working"}})
    # Machines of the group before this one have the same folder.
    assert not one.answers(group, working, before={"a"})


def test_a_new_address_is_asked_for(tonnage: Command, here: Path) -> None:
    spec = here / "s.yaml"
    spec.write_text(service("gcp"))
    assert tonnage("apply", "s.yaml", "--simulate", "--yes")[0] == 0
    spec.write_text(service("aws"))
    code, out, _ = tonnage("plan", "s.yaml", "--simulate", "-o", "p.json")
    assert (code, "must learn another address" in out) == (0, True)
    assert "until tonnage upload" not in out
    code, _, err = tonnage("apply", "p.json", "--simulate")
    assert (code, "--allow outage" in err) == (5, True)
    code, _, err = tonnage("apply", "p.json", "--simulate", "--allow", "outage")
    assert (code, "waits  until its machines answer" in err) == (0, True)
