"""What steps mean for people: machines that are made anew, and what serves meanwhile."""

from __future__ import annotations

import pytest

from planner.plan.change import spec_changes
from planner.plan.types import Changes, Plan
from planner.render import text
from planner.render.change import change_blocks
from providers.simulated import world
from stacks.engine.impact import changes_of
from stacks.engine.protocol import RunControl
from stacks.engine.simulated import SimulatedEngine
from tests.conftest import chat, present
from tests.stacks.engine.test_simulated import TEXT, objects, plan_of, quiet

BATCH = """
apiVersion: tonnage/v1
kind: Batch
name: chat
model: {name: llama-3.1-8b}
deadline: 1h
traffic: {total_requests: 2M, input_tokens: {mean: 900}, output_tokens: {mean: 200}}
shutdown: {ttl: LIMIT}
where: {clouds: [CLOUD]}
"""

TRAINING = (
    "apiVersion: tonnage/v1\nkind: Training\nname: chat\n"
    "model: {name: llama-3.1-8b}\n"
    "data: {location: s3://sets/chat, tokens: 200M}\n"
    "train: {method: finetune, deadline: 3d}\nwhere: {clouds: [CLOUD]}\n"
)


def changed(
    here, catalog, cloud: str, before: str, after: str
) -> tuple[Plan, Changes]:
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    engine.apply(plan_of(catalog, before.replace("CLOUD", cloud)), quiet)
    plan = plan_of(catalog, after.replace("CLOUD", cloud))
    status = present(engine.stack_status("chat"))
    return plan, changes_of(plan, engine.preview(plan), status)


def spec(rps: int, ttl: str = "72h", update: str = "rolling") -> str:
    return chat(
        traffic=f"peak_rps: {rps}",
        extra=f"shutdown: {{ttl: {ttl}}}\nwhere: {{clouds: [CLOUD]}}\n"
        f"update: {update}",
    )


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
@pytest.mark.parametrize("rps", [1, 60])
def test_recreate_takes_every_machine_away(here, catalog, cloud, rps) -> None:
    plan, changes = changed(
        here, catalog, cloud, spec(rps), spec(rps, "96h", "recreate")
    )
    [rolling] = changes.rolling
    nodes = plan.solution.pools[0].nodes
    assert (rolling.nodes, rolling.at_once, rolling.surge) == (nodes, nodes, 0)
    assert changes.outage_s == plan.solution.pools[0].startup_s > 0


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
@pytest.mark.parametrize("rps", [1, 60])
def test_a_new_machine_comes_before_an_old_one_goes(
    here, catalog, cloud, rps
) -> None:
    plan, changes = changed(here, catalog, cloud, spec(rps), spec(rps, "96h"))
    [rolling] = changes.rolling
    assert rolling.nodes == plan.solution.pools[0].nodes
    assert (rolling.at_once, rolling.surge) == (0, 1)
    assert (rolling.peak_share, changes.outage_s) == (1, 0)
    shown = text.render(tuple(change_blocks(plan, changes)))
    assert "1 machine more at a time" in " ".join(shown.split())


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_of_a_batch_some_machines_work_on(here, catalog, cloud) -> None:
    before, after = (BATCH.replace("LIMIT", limit) for limit in ("72h", "96h"))
    plan, changes = changed(here, catalog, cloud, before, after)
    [rolling] = changes.rolling
    nodes = plan.solution.pools[0].nodes
    assert rolling.nodes == nodes > 1
    assert 0 < rolling.at_once <= max(1, nodes // 2)
    assert rolling.peak_share is None
    shown = text.render(tuple(change_blocks(plan, changes)))
    assert f"{rolling.at_once} of {nodes} at a time" in shown


@pytest.mark.parametrize(
    ("before", "after", "outage"),
    [
        (spec(1), spec(1, "96h", "recreate"), True),
        (BATCH.replace("LIMIT", "72h"), BATCH.replace("LIMIT", "96h"), False),
    ],
    ids=["service", "batch"],
)
def test_azure_makes_a_set_anew_that_it_does_not_roll(
    here, catalog, before: str, after: str, outage: bool
) -> None:
    plan, changes = changed(here, catalog, "azure", before, after)
    assert changes.rolling == ()
    [group] = [
        change.name
        for change in changes.replace_first
        if change.name.endswith("-nodes")
    ]
    assert group
    startup_s = plan.solution.pools[0].startup_s
    assert changes.outage_s == (startup_s if outage else 0)


def test_nothing_is_made_anew_while_a_fleet_grows(here, catalog) -> None:
    before, after = (
        spec(rps)
        .replace("[CLOUD]", "[CLOUD], accelerators: {allow: [l40s]}")
        .replace("precision: auto", "precision: fp8")
        for rps in (12, 24)
    )
    plan, changes = changed(here, catalog, "aws", before, after)
    assert changes.rolling == ()
    assert [change.name for change in changes.update] == ["serve-nodes"]
    shown = text.render(tuple(change_blocks(plan, changes)))
    assert "no outage: what stands serves" in shown


def test_a_plan_says_which_keys_have_changed_and_since_when_it_stands(
    here, catalog
) -> None:
    plan, changes = changed(here, catalog, "aws", spec(1), spec(60, "96h"))
    found = {
        change.key: (change.before, change.after) for change in changes.because
    }
    assert found.keys() == {"traffic.peak_rps", "shutdown.ttl"}
    assert found["traffic.peak_rps"] == ("1", "60")
    shown = text.render(tuple(change_blocks(plan, changes)))
    began = world.default_world().clock.date().isoformat()
    assert f"stands since {began}" in shown
    assert "because" in shown
    assert "traffic.peak_rps 1 to 60" in shown.replace("\n", " ")


def test_items_of_a_list_are_named_by_their_number() -> None:
    before = {"sla": {"limits": [{"p": 95, "s": "1"}, {"p": 50, "s": "2"}]}}
    after = {"sla": {"limits": [{"p": 95, "s": "1"}]}, "labels": {"team": "a"}}
    found = {
        change.key: (change.before, change.after)
        for change in spec_changes(before, after)
    }
    assert found == {
        "labels.team": ("", "a"),
        "sla.limits[1].p": ("50", ""),
        "sla.limits[1].s": ("2", ""),
    }


def test_what_leaves_goes_before_what_it_needs_is_made_anew(
    here, catalog
) -> None:
    """A private link leaves, and the balancer that it leads to gets another address."""
    shared = (
        "endpoint: {share: [chat-clients], host: chat.example.com, "
        "certificate: 'secret://tls', api_key: 'secret://k'}\n"
    )
    text = TEXT.replace("CLOUD", "gcp")
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    engine.apply(plan_of(catalog, text + shared), quiet)
    plan = plan_of(catalog, text)
    steps = {step.name: step for step in engine.preview(plan)}
    assert steps["link"].action == "delete"
    assert steps["link"].deletes_first
    assert steps["balancer"].deletes_first
    changed = changes_of(
        plan, tuple(steps.values()), present(engine.stack_status("chat"))
    )
    assert "link" in {change.name for change in changed.delete}
    engine.apply(plan, quiet, RunControl(allow=frozenset({"outage"})))
    assert engine.apply(plan, quiet).steps == ()
    assert "link" not in {o["name"] for o in objects(engine).values()}


@pytest.mark.parametrize("kind", ["service", "training"])
def test_what_is_told_to_go_goes_and_what_is_kept_stays(
    here, catalog, kind: str
) -> None:
    """Settings of a bucket that is left in another cloud stay with it, and the plan says so."""
    text = TEXT if kind == "service" else TRAINING
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    engine.apply(plan_of(catalog, text.replace("CLOUD", "aws")), quiet)
    before = {o["name"]: i for i, o in objects(engine).items()}
    plan = plan_of(catalog, text.replace("CLOUD", "azure"))
    changes = changes_of(
        plan, engine.preview(plan), present(engine.stack_status("chat"))
    )
    engine.apply(plan, quiet, RunControl(allow=frozenset({"outage"})))
    after = objects(engine).keys()
    for change in changes.delete:
        assert before[change.name] not in after, change.name
    for change in changes.keep:
        assert before[change.name] in after, change.name
    assert {"models-private", "models-over-tls"} <= {
        change.name for change in changes.keep
    }
