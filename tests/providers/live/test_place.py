"""Whatever clouds do, there is an answer in time, and what nobody knows is no zero."""

from __future__ import annotations

import stat
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from planner.market.live import LiveFacts
from providers.live import kept as kept_answers
from providers.live import place as live_place
from providers.live.kept import KeptAnswers
from providers.live.place import LivePlace, ask_chances, ask_places

EAST = LivePlace("aws", "us-east-1", ("p5.48xlarge",))
WEST = LivePlace("aws", "us-west-2", ("p5.48xlarge",))
OTHER = LivePlace("azure", "eastus", ("Standard_X",))


class Modules:
    """Account and market of clouds; each answer may be an error, or take its time."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str]] = []

    def module(self, name: str) -> SimpleNamespace:
        _, cloud, room = name.split(".")
        if room == "account":
            return SimpleNamespace(
                signed_in=lambda _: self.answer(cloud, "signed_in", "ada"),
                quotas=lambda *_: self.answer(cloud, "quotas", []),
                offered_zones=lambda _, names: self.answer(
                    cloud, "zones", {name: {"b", "a"} for name in names}
                ),
            )
        if room == "commitment":
            return SimpleNamespace(
                commitments=lambda *_: self.answer(cloud, "commitments", []),
                commitment_use=lambda *_: self.answer(cloud, "used", {}),
            )
        return SimpleNamespace(
            PUBLIC_QUESTIONS=("spot_usd",) if cloud == "azure" else (),
            on_demand_prices=lambda *_: self.answer(cloud, "on_demand", {}),
            spot_prices=lambda *_: self.answer(cloud, "spot", {}),
            own_reclaims=lambda *_: self.answer(cloud, "reclaims", {}),
            reservations=lambda _: self.answer(cloud, "reservations", []),
            spot_scores=lambda *_: self.answer(
                cloud, "scores", {"p5.48xlarge": {"": 0.5}}
            ),
        )

    def answer(self, cloud: str, question: str, usual: Any) -> Any:
        self.asked.append((cloud, question))
        given = self.answers.get(f"{cloud}_{question}", usual)
        if isinstance(given, float):
            time.sleep(given)
            return usual
        if isinstance(given, Exception):
            raise given
        return given


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Modules]:
    def set_up(**answers: Any) -> Modules:
        fake = Modules(**answers)
        monkeypatch.setattr(live_place, "import_module", fake.module)
        return fake

    return set_up


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (PermissionError("ec2:DescribeX"), "denied", "ec2:DescribeX"),
        (FileNotFoundError("no such thing"), "none", "no such thing"),
        (LookupError("no quota"), "none", "no quota"),
        (OSError("500: busy\n again"), "unknown", "500: busy again"),
        (TimeoutError("slow"), "unknown", "slow"),
        (KeyError("Quota"), "unknown", "of another shape: KeyError"),
        (ValueError("NaN"), "unknown", "of another shape: ValueError"),
        (TypeError("None"), "unknown", "of another shape: TypeError"),
        (ModuleNotFoundError("boto3"), "unknown", "tonnage[aws]"),
    ],
)
def test_an_error_is_an_answer_of_one_question(
    modules, error: Exception, state: str, reason: str
) -> None:
    modules(aws_spot=error)
    [found] = ask_places([EAST], LiveFacts(), 5).places
    assert (found.spot_usd.state, found.spot_usd.value) == (state, None)
    assert reason in found.spot_usd.reason
    assert found.zones.value == {"p5.48xlarge": ("a", "b")}
    assert found.quotas["on_demand"].value == ()


def test_a_cloud_that_nobody_is_signed_in_to_tells_what_is_public(
    modules,
) -> None:
    """The others answer, and it is asked for its login once."""
    fake = modules(azure_signed_in=PermissionError("nobody is signed in"))
    facts = ask_places([OTHER, EAST], LiveFacts(), 5)
    azure, aws = facts.places
    assert facts.callers["azure"].state == "unknown"
    assert facts.callers["aws"].value == "ada"
    assert azure.zones.state == "unknown"
    assert azure.zones.reason == "nobody is signed in"
    assert azure.spot_usd.state == "value"
    assert aws.zones.state == "value"
    facts = ask_places([WEST], facts, 5)
    assert [place.region for place in facts.places] == [
        "eastus",
        "us-east-1",
        "us-west-2",
    ]
    logins = [cloud for cloud, what in fake.asked if what == "signed_in"]
    assert sorted(logins) == ["aws", "azure"]


def test_who_never_answers_keeps_nobody_waiting(modules) -> None:
    modules(aws_zones=60.0, azure_signed_in=60.0)
    start = time.monotonic()
    aws, azure = ask_places([EAST, OTHER], LiveFacts(), 0.5).places
    assert time.monotonic() - start < 30
    assert (aws.zones.state, aws.zones.reason) == (
        "unknown",
        "no answer in time",
    )
    assert azure.quotas["spot"].reason == "no answer in time"


def test_after_the_time_is_over_nobody_is_asked_for_long(modules) -> None:
    modules(aws_signed_in=60.0)
    [found] = ask_places([EAST], LiveFacts(), 0).places
    assert {answer.state for answer in found.answers.values()} == {"unknown"}


def test_a_long_reason_is_cut(modules) -> None:
    modules(aws_reservations=OSError("x" * 9000))
    [found] = ask_places([EAST], LiveFacts(), 5).places
    assert len(found.reservations.reason) == 300


@pytest.mark.parametrize(
    ("scores", "state", "value"),
    [
        ({"p5.48xlarge": {"": 0.5}}, "value", 0.5),
        ({"p5.48xlarge": {}}, "none", None),
        ({}, "none", None),
        (PermissionError("ec2:GetSpotPlacementScores"), "denied", None),
    ],
)
def test_a_chance_that_nobody_says_is_no_zero(
    modules, scores: Any, state: str, value: float | None
) -> None:
    modules(aws_scores=scores)
    facts = ask_places([EAST], LiveFacts(), 5)
    [found] = ask_chances([(EAST, 2)], facts, 5).spot_chances
    assert (found.machine_type, found.machines) == ("p5.48xlarge", 2)
    assert (found.chance.state, found.chance.value) == (state, value)


def test_each_zone_has_its_chance(modules) -> None:
    modules(aws_scores={"p5.48xlarge": {"b": 0.2, "a": 0.9}})
    facts = ask_places([EAST], LiveFacts(), 5)
    facts = ask_chances([(EAST, 2)], facts, 5)
    assert [
        (found.zone, found.chance.value) for found in facts.spot_chances
    ] == [("a", 0.9), ("b", 0.2)]
    machines = (EAST.cloud, EAST.region, "p5.48xlarge", 2)
    assert facts.spot_chance(*machines, "b") == 0.2
    assert facts.spot_chance(*machines, "c") is None
    # A region is as likely as its best zone.
    assert facts.spot_chance(*machines) == 0.9
    assert facts.spot_chance(EAST.cloud, EAST.region, "p5.48xlarge", 3) is None


def test_a_cloud_of_a_fallback_alone_is_asked_who_is_signed_in(modules) -> None:
    modules()
    facts = ask_chances([(EAST, 2)], LiveFacts(), 5)
    assert facts.callers[EAST.cloud].state == "value"
    assert len(facts.spot_chances) == 1


def test_a_chance_is_asked_of_who_is_signed_in(modules) -> None:
    modules(aws_signed_in=PermissionError("nobody"))
    facts = ask_places([EAST], LiveFacts(), 5)
    assert ask_chances([(EAST, 2)], facts, 5).spot_chances == ()


def test_what_was_answered_is_kept_for_its_account(
    modules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For five minutes, the same machine types, and who may read it: its owner."""
    kept = KeptAnswers(tmp_path / "live")
    fake = modules()
    first = ask_places([EAST], LiveFacts(), 5, kept)
    fake.asked.clear()
    assert ask_places([EAST], LiveFacts(), 5, kept).places == first.places
    assert fake.asked == [("aws", "signed_in")]
    [file] = (tmp_path / "live").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "ada" not in file.name + file.read_text()
    other = LivePlace("aws", "us-east-1", ("p5.48xlarge", "p4d.24xlarge"))
    ask_places([other], LiveFacts(), 5, kept)
    assert ("aws", "zones") in fake.asked
    fake.asked.clear()
    modules(aws_signed_in="bob")
    facts = ask_places([EAST], LiveFacts(), 5, kept)
    assert facts.callers["aws"].value == "bob"
    assert len(list((tmp_path / "live").iterdir())) == 2
    monkeypatch.setattr(kept_answers, "MOST_AGE_S", -1.0)
    again = modules(aws_signed_in="bob")
    ask_places([EAST], LiveFacts(), 5, kept)
    assert ("aws", "zones") in again.asked


@pytest.mark.parametrize("text", ["", "{}", "[]"])
def test_a_damaged_file_is_asked_about_anew(
    modules, tmp_path: Path, text: str
) -> None:
    kept = KeptAnswers(tmp_path / "live")
    fake = modules()
    ask_places([EAST], LiveFacts(), 5, kept)
    [file] = (tmp_path / "live").iterdir()
    file.write_text(text)
    fake.asked.clear()
    ask_places([EAST], LiveFacts(), 5, kept)
    assert ("aws", "zones") in fake.asked


def test_what_is_unknown_is_not_kept(modules, tmp_path: Path) -> None:
    modules(aws_spot=OSError("busy"))
    ask_places([EAST], LiveFacts(), 5, KeptAnswers(tmp_path / "live"))
    assert not (tmp_path / "live").exists()
