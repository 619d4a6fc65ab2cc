"""The gate of an update: it opens when new machines answer, and says why it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from planner.errors import (
    CancelledError,
    CredentialError,
    MissingError,
    ResourceError,
)
from stacks.engine.handover import handover_of
from stacks.engine.pulumi import gate as gate_module
from stacks.engine.pulumi.event import EventRecorder
from stacks.engine.pulumi.gate import Gate, StandingGroups
from stacks.engine.stop import StopRequest
from stacks.graph import parse_graph
from tests.conftest import present
from tests.stacks.engine.test_handover import service
from tests.stacks.engine.test_simulated import plan_of

GROUP = "serve-nodes"
STARTING = {"serve": {"new": "starting"}}
WORKING = {"serve": {"new": "working", "too": "working"}}
OLD = {"serve": {"old": "working", "too": "working"}}


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "LOOK_S", 0.01)
    monkeypatch.setattr(gate_module, "WAIT_STEP_S", 0.01)


def gate_over(catalog, answers: list, **fields) -> Gate:
    """A gate of which each look gets the next answer, and the last one again and again."""
    left: Iterator = iter(answers)
    last = answers[-1]

    def lives(bucket: str):
        assert bucket == "models"
        answer = next(left, last)
        if isinstance(answer, Exception):
            raise answer
        return answer

    plan = plan_of(catalog, service("gcp"))
    return Gate(
        stack_name="chat",
        handover=present(handover_of(plan, moves=False)),
        standing=fields.pop("standing", StandingGroups(ids={}, leaves=True)),
        recorder=EventRecorder(lambda _: None),
        stop=fields.pop("stop", StopRequest()),
        lives=lives,
        simulate=None,
        **fields,
    )


def wait(gate: Gate, group_id: str = "new") -> None:
    asyncio.run(gate.await_answer("a:b:Group", GROUP, group_id, "models"))


def test_it_opens_when_the_machines_work(catalog) -> None:
    looks = [MissingError(), {}, STARTING, WORKING]
    announced: list[str] = []
    gate = gate_over(catalog, looks, announce=announced.append)
    wait(gate)
    assert (gate.error, gate.is_needed) == (None, True)
    # Whoever uploads while it waits finds the bucket of the new machines.
    assert announced == ["models"]


def test_machines_that_lived_before_do_not_open_it(catalog) -> None:
    standing = StandingGroups(ids={GROUP: "old"}, leaves=False)
    before = frozenset({"old", "too"})
    gate = gate_over(catalog, [OLD], standing=standing, before=before)
    gate.handover = replace(gate.handover, limit_s=0.2)
    with pytest.raises(ResourceError) as refusal:
        wait(gate)
    problem = refusal.value.problems[0]
    assert (problem.code, "2 of them live" in str(problem.cause)) == (
        "answers",
        True,
    )
    assert "tonnage logs chat" in str(problem.next_step)
    assert gate.error is refusal.value


def test_a_group_that_stays_is_not_waited_for(catalog) -> None:
    standing = StandingGroups(ids={GROUP: "same"}, leaves=False)
    gate = gate_over(catalog, [AssertionError("looked")], standing=standing)
    wait(gate, group_id="same")
    assert not gate.is_needed


def test_it_ends_when_the_run_is_asked_to(catalog) -> None:
    stop = StopRequest()
    stop.make()
    with pytest.raises(CancelledError):
        wait(gate_over(catalog, [STARTING], stop=stop))


def test_who_may_not_see_the_machines_is_told_at_once(catalog) -> None:
    gate = gate_over(catalog, [CredentialError()])
    with pytest.raises(CredentialError):
        wait(gate)
    assert isinstance(gate.error, CredentialError)


def test_clients_get_time_to_learn_an_address(catalog) -> None:
    passed: list[float] = []
    gate = gate_over(catalog, [WORKING])
    gate.handover = replace(gate.handover, stay_s=600.0)
    gate.simulate = passed.append
    asyncio.run(gate.await_clients())
    assert passed == []
    wait(gate)
    asyncio.run(gate.await_clients())
    assert passed == [gate.handover.startup_s, 600.0]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([("serve-nodes", "us-east4", False)], ({GROUP: "1"}, False)),
        ([("serve-nodes", "us-west1", False)], ({}, True)),
        ([("other-nodes", "us-east4", False)], ({}, True)),
        (
            [
                ("serve-nodes", "us-east4", True),
                ("serve-nodes", "us-east4", False),
            ],
            ({GROUP: "2"}, True),
        ),
        ([("net", "us-west1", False)], ({}, False)),
    ],
)
def test_what_stands_is_read_off_a_checkpoint(
    catalog, records: list[tuple[str, str, bool]], expected: tuple
) -> None:
    plan = plan_of(catalog, service("gcp], regions: [us-east4"))
    regions = sorted({region for _, region, _ in records})
    providers = [
        {
            "type": "pulumi:providers:gcp",
            "urn": f"urn:{region}",
            "id": "0",
            "inputs": {"region": region},
        }
        for region in regions
    ]
    deployment = {
        "resources": [
            *providers,
            *(
                {
                    "urn": f"urn:pulumi:chat::tonnage::a:b:C::{name}",
                    "type": "a:b:C",
                    "id": str(number),
                    "provider": f"urn:{region}::0",
                    "delete": superseded,
                }
                for number, (name, region, superseded) in enumerate(records, 1)
            ),
        ]
    }
    standing = StandingGroups.of(deployment, parse_graph(plan.graph))
    assert (standing.ids, standing.leaves) == expected
