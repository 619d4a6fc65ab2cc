"""World files: what they say of throttles and delays, and their published schema."""

from __future__ import annotations

import json
from itertools import pairwise

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from providers.simulated.cloud import CloudError, SimulatedCloud, call_seconds
from providers.simulated.world import WorldMemory
from providers.simulated.world_file import read_world, world_schema
from stacks.engine.simulated import SimulatedEngine
from tests.conftest import ROOT, chat, present
from tests.stacks.engine.test_simulated import plan_of, quiet

VPC = "aws:ec2/vpc:Vpc"


def world_of(text: str):
    return read_world(text.encode(), "world.yaml")


@given(
    st.lists(st.floats(0, 40, allow_nan=False), max_size=30),
    st.integers(1, 5),
)
def test_no_minute_has_more_calls_than_are_allowed(pauses, per_minute) -> None:
    rules = world_of(
        f"throttles: [{{on: create, type: 'aws:*', per_minute: {per_minute}}}]"
    )
    memory = WorldMemory()
    cloud = SimulatedCloud(rules, memory, "us-east-1")
    accepted: list[float] = []
    for number, pause in enumerate(pauses):
        memory.seconds += pause
        within = [t for t in accepted if memory.seconds - t < 60]
        try:
            cloud.create(VPC, f"vpc-{number}", {"cidrBlock": "10.0.0.0/16"})
        except CloudError as refusal:
            assert refusal.code == "Throttling"
            assert len(within) == per_minute
        else:
            assert len(within) < per_minute
            accepted.append(memory.seconds)
    assert all(before <= after for before, after in pairwise(accepted))


def test_an_apply_waits_for_a_throttle_and_ends_well(here, catalog) -> None:
    plan = plan_of(catalog, chat(extra="where: {clouds: [aws]}"))
    rules = world_of("throttles: [{on: create, type: '*', per_minute: 20}]")
    engine = SimulatedEngine(rules, here / "clouds")
    phases = []
    engine.apply(plan, lambda event: phases.append(event.phase))
    assert "retry" in phases


def test_the_first_delay_that_matches_counts(here, catalog) -> None:
    rules = world_of(
        "delays: [{type: '*:Vpc', seconds: 700}, {type: 'aws:*', seconds: 1}]"
    )
    assert call_seconds(rules, VPC) == 700
    assert call_seconds(rules, "aws:iam/role:Role") == 1
    plan = plan_of(catalog, chat(extra="where: {clouds: [aws]}"))
    outcome = SimulatedEngine(rules, here / "clouds").apply(plan, quiet)
    assert 700 < outcome.elapsed_s < 730


ROLE, PROFILE = (
    "aws:iam/role:Role",
    "aws:iam/instanceProfile:InstanceProfile",
)


@given(st.floats(0, 30, allow_nan=False))
def test_a_new_object_is_not_known_everywhere_at_once(pause: float) -> None:
    rules = world_of(
        "lags: [{type: 'aws:iam/role*', seconds: 12, code: ResourceNotReady}]"
    )
    memory = WorldMemory()
    cloud = SimulatedCloud(rules, memory, "us-east-1")
    trust = {"assumeRolePolicy": "{}", "name": "node"}
    _, role = cloud.create(ROLE, "node", trust)
    memory.seconds += pause
    profile = {"name": "chat-node", "role": role["name"]}
    if pause < 12:
        with pytest.raises(CloudError, match="ResourceNotReady"):
            cloud.create(PROFILE, "node-profile", profile)
        # What does not refer to it is made at once.
        cloud.create(VPC, "vpc", {"cidrBlock": "10.0.0.0/16"})
    else:
        cloud.create(PROFILE, "node-profile", profile)


@pytest.mark.parametrize(
    ("cloud", "code"),
    [
        ("aws", "ResourceNotReady"),
        ("gcp", "resourceNotReady"),
        ("azure", "PrincipalNotFound"),
    ],
)
def test_an_apply_goes_on_when_new_objects_are_known_late(
    here, catalog, cloud: str, code: str
) -> None:
    plan = plan_of(catalog, chat(extra=f"where: {{clouds: [{cloud}]}}"))
    rules = world_of(f"lags: [{{type: '*', seconds: 9, code: {code}}}]")
    engine = SimulatedEngine(rules, here / "clouds")
    assert engine.preflight(plan) == []
    phases = []
    engine.apply(plan, lambda event: phases.append(event.phase))
    assert "retry" in phases
    assert "failed" not in phases
    standing = present(engine.stack_status(plan.stack.name))
    assert len(standing.resources) == len(plan.graph.resources)


WHOLE = """\
clock: "2026-11-21T08:00:00Z"
project: mine
seed: 7
capacity: [{provider: aws, region: us-east-1, nodes: 2}]
quota: [{instance_type: "p*", vcpus: 192}]
prices: [{provider: gcp, purchase: spot, usd_hour: 30}]
refuses: [{on: create, type: "aws:iam/*", code: AccessDenied}]
faults: [{on: create, code: Busy, times: 1, after: 2}]
throttles: [{on: create, per_minute: 60}]
delays: [{type: "*", seconds: 3}]
lags: [{type: "*", seconds: 3, code: NotReady}]
losses: [{purchase: spot, per_day: 0.5}]
silences: [{name: serve-nodes, after: 1}]
"""


def test_a_world_is_valid_by_its_published_schema() -> None:
    world_of(WHOLE)
    document = yaml.load(WHOLE, yaml.BaseLoader)
    assert document.keys() == world_schema()["properties"].keys()
    jsonschema.validate(document, world_schema())


@pytest.mark.parametrize(
    "wrong",
    ["nodes: 2", "faults: [{on: read, code: x}]", "delays: [{type: x}]"],
)
def test_the_schema_refuses_what_the_reader_refuses(wrong: str) -> None:
    with pytest.raises(Exception, match=r"."):
        world_of(wrong)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.load(wrong, yaml.BaseLoader), world_schema())


def test_the_page_names_every_key() -> None:
    page = (ROOT / "docs" / "simulated-clouds.md").read_text()
    missing = [
        key
        for key in world_schema()["properties"]
        if f"| `{key}` |" not in page
    ]
    assert json.dumps(missing) == "[]"
