"""status --live says what a cloud says, of a plan or of a stack, and never waits for long."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from planner.cli import status_live
from planner.cli.status_live import LiveSubject, live_report, plan_subject
from planner.plan.account import StackHealth
from tests.loopback import Answer, Cloud, Request
from tests.planner.cli.conftest import Command
from tests.providers.shapes import answer_of, call_of
from tests.providers.shapes.wire import sent_text

pytestmark = pytest.mark.enable_socket
# A region and a machine type of the recorded answers.
RECORDED = {
    "aws": ("us-east-1", "p5.48xlarge"),
    "gcp": ("us-central1", "a3-highgpu-8g"),
    "azure": ("eastus", "Standard_ND96isr_H100_v5"),
}


def recorded(cloud: Cloud, but: Callable[[str], Answer | None]) -> None:
    """Let a service answer as it was recorded, but for some calls."""

    def answer(request: Request) -> Answer:
        call = call_of(request)
        return but(call) or (200, sent_text(call, answer_of(call)))

    cloud.answer = answer


@pytest.fixture
def planned(tonnage: Command, here: Path) -> Callable[[str], None]:
    """Plan a service on the recorded machine of a cloud."""

    def plan(name: str) -> None:
        region, _ = RECORDED[name]
        (here / "s.yaml").write_text(
            "apiVersion: tonnage/v1\nname: chat\nkind: Inference\n"
            "model: {name: llama-3.1-8b}\n"
            "sla: {ttft_p95: 1.5s, tpot_p95: 80ms}\n"
            "traffic: {peak_rps: 2, input_tokens: {mean: 900}, output_tokens: {mean: 220}}\n"
            f"where: {{clouds: [{name}], regions: [{region}]}}\n"
        )
        assert tonnage("plan", "s.yaml", "-o", "p.json")[0] == 0

    return plan


@pytest.mark.parametrize("name", RECORDED)
def test_a_plan_is_held_against_what_runs(
    tonnage: Command, planned: Callable[[str], None], cloud: Cloud, name: str
) -> None:
    planned(name)
    recorded(cloud, lambda _: None)
    code, out, err = tonnage("status", "p.json", "--live", "-f", "json")
    assert code == 0, err
    live = json.loads(out)["live"]
    _, machine = RECORDED[name]
    runs = [
        (row["machine_type"], row["is_spot"], row["nodes"])
        for row in live["running"]["value"]
    ]
    assert runs
    assert {
        (row["machine_type"], row["is_spot"], row["running"])
        for row in live["machines"]
        if row["running"]
    } == set(runs)
    planned_rows = [row for row in live["machines"] if row["planned"]]
    assert planned_rows
    assert all(row["running"] is not None for row in live["machines"])
    code, page, _ = tonnage("status", "p.json", "--live")
    assert code == 0
    assert machine in page
    assert ("since 2" in page) == (name != "gcp")
    assert ("export to BigQuery" in page) == (name == "gcp")
    assert all(len(line) <= 100 for line in page.splitlines())


def test_what_is_refused_is_said_and_the_rest_is_there(
    tonnage: Command, planned: Callable[[str], None], cloud: Cloud
) -> None:
    planned("azure")
    refusal = '{"error": {"code": "AuthorizationFailed"}}'
    recorded(
        cloud,
        lambda call: (
            (403, refusal)
            if call
            in ("azure/Query_Usage", "azure/VirtualMachineScaleSets_ListAll")
            else None
        ),
    )
    code, page, _ = tonnage("status", "p.json", "--live")
    told = " ".join(page.split())
    assert code == 0
    assert "azure does not say what runs: denied: 403" in told
    assert "azure does not say what it has cost: denied: 403" in told
    assert "?" in told
    assert "is used" not in told


def test_machines_that_never_answer_are_left(
    planned: Callable[[str], None],
    cloud: Cloud,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned("gcp")
    recorded(cloud, lambda _: None)
    monkeypatch.setattr(status_live, "DEADLINE_S", 0.5)

    def hang() -> StackHealth:
        time.sleep(60)
        return StackHealth()

    start = time.monotonic()
    report = live_report(plan_subject("p.json"), hang)
    assert time.monotonic() - start < 30
    assert report.health.problem == "no answer in time"
    assert report.status is not None


def test_the_plan_is_told_for_the_days_in_which_the_stack_stood(
    planned: Callable[[str], None],
) -> None:
    """From the first of the month, or from the first apply where that was later."""
    planned("gcp")
    subject = plan_subject("p.json")
    now = datetime(2026, 11, 16, 12, tzinfo=UTC)
    assert status_live._planned_usd(subject, now) is None
    for started, hours in (("2026-09-01", 372), ("2026-11-16", 12)):
        stood = LiveSubject(
            subject.stack, subject.facts, f"{started}T00:00:00+00:00"
        )
        usd = subject.facts.total * hours / 730
        assert status_live._planned_usd(stood, now) == usd.quantize(
            Decimal("0.01")
        )


@pytest.mark.parametrize(
    ("argv", "exit_code", "told"),
    [
        (("p.json",), 2, "takes --live"),
        (("chat", "--live", "--simulate"), 2, "leave out --simulate"),
        (("none.json", "--live"), 6, "none.json"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    tonnage: Command,
    here: Path,
    argv: tuple[str, ...],
    exit_code: int,
    told: str,
) -> None:
    code, _, err = tonnage("status", *argv)
    assert code == exit_code
    assert told in err
