"""doctor says what would stop an apply, with the exit code of the worst of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stacks.engine import checkup
from tests.conftest import chat
from tests.planner.cli.conftest import Command
from tests.stacks.engine.test_account import Account

TEXT = chat(extra="where: {clouds: [aws]}")
NO_MACHINES = "quota: [{nodes: 0}]"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch):
    """Let the account of the plan's cloud answer in some way, and all clouds be reached."""

    def set_up(skew_s: float = 0.0, **answers: Any) -> None:
        fake = Account(**answers)
        fake.zones = {f"us-east-1{letter}" for letter in "abcdef"}
        monkeypatch.setattr(checkup, "import_module", lambda _: fake)
        monkeypatch.setattr(
            "stacks.engine.account.import_module", lambda _: fake
        )
        monkeypatch.setattr(checkup, "clock_skew_s", lambda _: skew_s)

    return set_up


def findings(tonnage: Command, *flags: str) -> tuple[int, list[dict]]:
    code, out, err = tonnage("doctor", "s.yaml", "-f", "json", *flags)
    assert out, err
    found: list[dict] = json.loads(out)["symptoms"]
    return code, found


def fixes(found: list[dict]) -> dict[str, str]:
    return {
        each["kind"]: each["text"] for each in found if each["state"] == "fix"
    }


@pytest.mark.parametrize(
    ("answers", "code", "kind"),
    [
        ({"signed_in": PermissionError("expired")}, 3, "credentials"),
        ({"missing_rights": True}, 3, "permission"),
        ({"quotas": 0.0}, 14, "quota"),
        ({"offered_zones": {"elsewhere"}}, 14, "capacity"),
        ({"closed_services": {"x": "switch x on"}}, 4, "api"),
        ({"quotas": 0.0, "missing_rights": True}, 3, "permission"),
    ],
)
def test_the_worst_decides_the_exit_code(
    tonnage: Command,
    here: Path,
    asked,
    answers: dict[str, Any],
    code: int,
    kind: str,
) -> None:
    (here / "s.yaml").write_text(TEXT)
    asked(**answers)
    found_code, found = findings(tonnage)
    assert found_code == code
    assert kind in fixes(found)
    assert all(each["remedy"] for each in found if each["state"] == "fix")


def test_a_clock_that_is_wrong_is_told(
    tonnage: Command, here: Path, asked
) -> None:
    (here / "s.yaml").write_text(TEXT)
    asked(skew_s=-900.0)
    _, found = findings(tonnage)
    [clock] = [each for each in found if each["subject"] == "clock"]
    assert "900 s behind" in clock["text"]


def test_what_is_well_is_told_too(tonnage: Command, here: Path, asked) -> None:
    """A login that this plan does not need keeps nobody from it."""
    (here / "s.yaml").write_text(TEXT)
    asked()
    _, found = findings(tonnage)
    aws = [each for each in found if each["subject"] == "aws"]
    assert {each["state"] for each in aws} == {"ok"}
    assert "signed in as ada" in aws[0]["text"]
    asked(signed_in=PermissionError("nobody"))
    code, out, _ = tonnage("doctor", "-f", "json")
    others = json.loads(out)["symptoms"]
    assert "unneeded" in {each["state"] for each in others}
    assert code in (0, 4)  # with and without the program of Pulumi


@pytest.mark.parametrize(("world", "code"), [("", 0), (NO_MACHINES, 14)])
def test_simulated_clouds_are_looked_at_too(
    tonnage: Command, here: Path, world: str, code: int
) -> None:
    (here / "s.yaml").write_text(TEXT)
    (here / "w.yaml").write_text(f"seed: 1\n{world}")
    found_code, found = findings(tonnage, "--simulate", "w.yaml")
    assert found_code == code
    assert ("quota" in fixes(found)) == bool(code)
    shown = tonnage("doctor", "s.yaml", "--simulate", "w.yaml")[1]
    assert ("FIX" in shown) == bool(code)


def test_a_lock_is_told_with_its_holder(
    tonnage: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from planner.cli.compose import PlanningOptions, open_engine

    (here / "s.yaml").write_text(TEXT)
    engine = open_engine(PlanningOptions(simulate="default"))
    with engine.store.lock("chat", "tonnage apply chat"):
        code, found = findings(tonnage, "--simulate")
    assert code == 4
    assert "tonnage apply chat" in fixes(found)["conflict"]


@pytest.mark.parametrize("stands", [False, True])
def test_machines_that_stand_are_not_asked_for_again(
    tonnage: Command,
    here: Path,
    asked,
    monkeypatch: pytest.MonkeyPatch,
    stands: bool,
) -> None:
    """They are used of the quota already."""
    from planner.cli import doctor
    from planner.cli.compose import PlanningOptions, open_engine

    (here / "s.yaml").write_text(TEXT)
    if stands:
        assert tonnage("apply", "s.yaml", "--simulate", "--yes")[0] == 0
    engine = open_engine(PlanningOptions(simulate="default"))
    monkeypatch.setattr(doctor, "open_engine", lambda _: engine)
    asked(quotas=1.0)
    code, found = findings(tonnage)
    assert ("quota" in fixes(found)) == (not stands)
    assert code == (0 if stands else 14)
