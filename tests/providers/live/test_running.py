"""A cloud says of a stack what it knows; what it does not say is no zero, and is in time."""

from __future__ import annotations

import time
from datetime import date
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from planner.plan.actual.charge import StackTags
from planner.plan.live_status import CostSoFar, RunningMachines
from providers.live import place as live_place
from providers.live import running as live_running
from providers.live.place import LivePlace
from providers.live.running import StackAnswers, ask_stack

PLACE = LivePlace("aws", "us-east-1", ("p5.48xlarge",))
TAGS = StackTags("tonnage-stack", "chat", "tonnage-pool")
RUNS = RunningMachines(
    pool="serve", machine_type="p5.48xlarge", zone="a", is_spot=False, nodes=2
)
COST = CostSoFar(amount=Decimal(5), currency="USD", first_day="2026-11-01")


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ask a cloud whose functions answer so; an error is raised, and a number is a pause."""

    def answering(answers: dict[str, Any], deadline_s: float) -> StackAnswers:
        usual = {
            "signed_in": "ada",
            "running_machines": [RUNS],
            "month_cost": COST,
            "commitments": [],
            "commitment_use": {},
        }

        def reply(name: str) -> Any:
            given = {**usual, **answers}[name]
            if isinstance(given, Exception):
                raise given
            if isinstance(given, float):
                time.sleep(given)
            return given

        module = SimpleNamespace(
            PUBLIC_QUESTIONS=(),
            **{name: lambda *_, name=name: reply(name) for name in usual},
        )
        for asking in (live_place, live_running):
            monkeypatch.setattr(asking, "import_module", lambda _: module)
        return ask_stack(PLACE, TAGS, date(2026, 11, 27), deadline_s)

    return answering


def test_each_question_has_its_own_answer(ask: Any) -> None:
    answers = ask({"month_cost": PermissionError("ce:GetCostAndUsage")}, 5)
    assert answers.running.value == (RUNS,)
    assert (answers.cost.state, answers.cost.value) == ("denied", None)
    assert answers.commitments.value == ()


def test_a_cloud_that_hangs_is_unknown_in_time(ask: Any) -> None:
    start = time.monotonic()
    answers = ask({"running_machines": 60.0}, 0.5)
    assert time.monotonic() - start < 30
    assert answers.running.reason == "no answer in time"
    assert answers.cost.value == COST


def test_without_a_login_nothing_is_known(ask: Any) -> None:
    answers = ask({"signed_in": PermissionError("nobody is signed in")}, 5)
    found = (
        answers.running,
        answers.cost,
        answers.commitments,
        answers.commitment_use,
    )
    assert {(answer.state, answer.value) for answer in found} == {
        ("unknown", None)
    }
    assert answers.running.reason == "nobody is signed in"
