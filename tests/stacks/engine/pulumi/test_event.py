"""Policy packs of Pulumi: what they refuse ends a run with exit 5, what they advise is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner.cli.progress import event_line
from planner.errors import PolicyError, ResourceError
from stacks.engine.protocol import ProgressEvent
from stacks.engine.stop import StopRequest

pytest.importorskip("pulumi", reason="the pulumi extra is not installed")
from pulumi.automation import CommandResult
from pulumi.automation.errors import create_command_error
from pulumi.automation.events import EngineEvent

from stacks.engine.pulumi.event import EventRecorder
from stacks.engine.pulumi.session import PulumiSession
from stacks.engine.pulumi.stack import PulumiStack

URN = "urn:pulumi:chat::tonnage::a:b:Stack$gcp:storage/bucket:Bucket::models"


def policy_event(level: str) -> EngineEvent:
    """As `pulumi up --event-log` writes it."""
    return EngineEvent.from_json(
        {
            "sequence": 7,
            "timestamp": 1_795_305_600,
            "policyEvent": {
                "resourceUrn": URN,
                "message": "buckets have\n  versions",
                "color": "raw",
                "policyName": "versions",
                "policyPackName": "house",
                "policyPackVersion": "1.0.0",
                "policyPackVersionTag": "1.0.0",
                "enforcementLevel": level,
            },
        }
    )


def session_in(folder: Path) -> PulumiSession:
    return PulumiSession(
        folder, backend=None, world_source=None, environment={}
    )


def refused() -> None:
    raise create_command_error(
        CommandResult(stdout="", stderr="error: refused", code=1)
    )


def test_what_a_pack_refuses_is_a_refusal_by_policy(tmp_path: Path) -> None:
    recorder = EventRecorder(lambda _: None)
    recorder(policy_event("mandatory"))
    with pytest.raises(PolicyError) as refusal:
        session_in(tmp_path).run(refused, recorder, "chat", StopRequest())
    (problem,) = refusal.value.problems
    assert problem.message == "models: buckets have versions"
    assert problem.cause == "the policy house/versions is mandatory"
    # Without a violation, it is a failure like any other.
    with pytest.raises(ResourceError):
        session_in(tmp_path).run(
            refused, EventRecorder(lambda _: None), "chat", StopRequest()
        )


def test_what_a_pack_advises_is_told_and_stops_nothing(tmp_path: Path) -> None:
    told: list[ProgressEvent] = []
    recorder = EventRecorder(told.append)
    recorder(policy_event("advisory"))
    session_in(tmp_path).run(lambda: None, recorder, "chat", StopRequest())
    (event,) = told
    line = event_line(event)
    assert "Bucket models" in line
    assert "house/versions: buckets have versions" in line
    assert recorder.changed_steps() == ()


def test_previews_and_updates_take_the_packs(tmp_path: Path) -> None:
    calls: dict[str, dict[str, Any]] = {}

    class Recorded:
        def preview(self, **options: Any) -> None:
            calls["preview"] = options

        def up(self, **options: Any) -> None:
            calls["up"] = options

    session = session_in(tmp_path)
    session.policy_packs = ("/packs/house", "/packs/team")
    stack = PulumiStack.__new__(PulumiStack)
    stack.session, stack.name = session, "chat"
    stack._stack = Recorded()
    recorder = EventRecorder(lambda _: None)
    program: Any = object()
    stack.preview(program, recorder)
    stack.update(program, recorder, StopRequest())
    for options in calls.values():
        assert options["policy_packs"] == ["/packs/house", "/packs/team"]
    assert set(calls) == {"preview", "up"}
