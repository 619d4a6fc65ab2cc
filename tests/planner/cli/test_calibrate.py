"""calibrate --from gke asks once, writes down what was answered, and needs no login later."""

from __future__ import annotations

import json
from pathlib import Path

import google.auth
import pytest
from google.auth.exceptions import DefaultCredentialsError

from planner.estimate.calibration_file import parse_correction
from planner.perf.serving.correction import METRICS
from tests.loopback import Answer, Cloud, Request
from tests.planner.cli.conftest import Command
from tests.providers.shapes import answer_of

pytestmark = pytest.mark.enable_socket
PROFILES = answer_of("gcp/benchmarkingData.fetch")
MODELS = ["google/gemma-3-27b-it", "meta-llama/Meta-Llama-3-8B"]
ASK = ("calibrate", "--from", "gke", "llama-3-8b", "--gpu", "h100-sxm")


@pytest.fixture
def quickstart(cloud: Cloud) -> Cloud:
    """A service that has measured two models."""

    def answer(request: Request) -> Answer:
        if "/models:fetch" in request.path:
            return 200, {"models": MODELS}
        return 200, PROFILES

    cloud.answer = answer
    return cloud


def test_what_was_recorded_teaches_the_same_without_a_login(
    tonnage: Command, quickstart: Cloud
) -> None:
    code, shown, _ = tonnage(*ASK, "--record", "gke.json", "-o", "asked.json")
    assert code == 0
    assert "7 points of llama-3-8b on h100-sxm, TP1 in bf16" in shown
    asked = len(quickstart.asked)
    code, again, _ = tonnage(
        "calibrate", "gke.json", "--gpu", "h100-sxm", "-o", "read.json"
    )
    assert (code, len(quickstart.asked)) == (0, asked)
    assert Path("read.json").read_bytes() == Path("asked.json").read_bytes()
    assert again == shown.replace("asked.json", "read.json")
    assert json.loads(Path("gke.json").read_text()) == PROFILES["profile"]


def test_what_is_left_out_is_named_with_its_reason(
    tonnage: Command, quickstart: Cloud
) -> None:
    code, shown, _ = tonnage(*ASK)
    assert (code, len(quickstart.asked)) == (0, 2)
    assert "! gke llama-3-8b:6 is left out: it ran on TPUs" in shown


def test_what_is_kept_slows_predictions_as_measured(
    tonnage: Command, quickstart: Cloud
) -> None:
    """The profiles of the fixture are 15 to 20 % slower than predictions."""
    assert tonnage(*ASK, "-o", "mine.json")[0] == 0
    assert quickstart.asked
    correction = parse_correction(Path("mine.json").read_bytes(), "mine.json")
    for metric in METRICS:
        assert 1.08 < correction.factor(metric, 16, 256) < 1.22


def test_without_a_login_nothing_is_asked(
    tonnage: Command, quickstart: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise DefaultCredentialsError("no login")

    monkeypatch.setattr(google.auth, "default", refuse)
    code, _, errors = tonnage(*ASK, "--record", "gke.json", "-o", "mine.json")
    assert (code, quickstart.asked) == (3, [])
    assert "the profiles of llama-3-8b are not known" in errors
    assert "cause: no login" in errors
    assert "next: sign in" in errors
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    ("answer", "code"),
    [((403, {"error": "no right"}), 3), ((200, "{"), 4), ((200, {}), 4)],
)
def test_what_is_not_answered_teaches_nothing(
    tonnage: Command, quickstart: Cloud, answer: Answer, code: int
) -> None:
    quickstart.answer = lambda _: answer
    told, _, errors = tonnage(*ASK, "--record", "gke.json", "-o", "mine.json")
    assert told == code
    assert "error[cloud]" in errors
    assert errors.count("next:") == 1
    assert not list(Path().iterdir())


def test_a_model_without_profiles_is_named(
    tonnage: Command, quickstart: Cloud
) -> None:
    quickstart.answer = lambda request: (
        (200, {"models": MODELS}) if "/models:" in request.path else (200, {})
    )
    code, _, errors = tonnage(*ASK)
    assert code == 6
    assert f"Google has no profile of {MODELS[1]} with vLLM" in errors


def test_an_unknown_model_is_not_guessed(
    tonnage: Command, quickstart: Cloud
) -> None:
    code, _, errors = tonnage("calibrate", "--from", "gke", "gemma-3-12b")
    assert (code, len(quickstart.asked)) == (6, 1)
    assert f"did you mean '{MODELS[0]}'?" in errors


@pytest.mark.parametrize(
    "arguments",
    [
        ("--from", "gke"),
        ("--from", "gke", "a", "b"),
        ("--from", "gke", "a", "--model", "b"),
        ("--from", "gke", "a", "--recipe", "b"),
        ("--from", "aws", "a"),
        ("a.json", "--record", "b.json"),
    ],
)
def test_flags_that_do_not_fit_are_refused(
    tonnage: Command, quickstart: Cloud, arguments: tuple[str, ...]
) -> None:
    code, _, _ = tonnage("calibrate", *arguments)
    assert (code, quickstart.asked) == (2, [])
