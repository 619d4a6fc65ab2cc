"""What Google answers about models that it has measured, at a service like its own."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from providers.gcp import profile
from tests.loopback import Answer, Cloud

pytestmark = pytest.mark.enable_socket
DATA = Path(__file__).parent / "data"
ANSWER: dict[str, Any] = json.loads((DATA / "profiles.json").read_text())
MODEL = "meta-llama/Meta-Llama-3-8B"


def test_models_come_page_by_page(cloud: Cloud) -> None:
    answers: dict[str, dict[str, Any]] = {
        "": {"models": ["a/b"], "nextPageToken": "x/y"},
        "&pageToken=x%2Fy": {"models": ["c/d"]},
    }
    cloud.answer = lambda request: (
        200,
        answers[request.path.partition("pageSize=100")[2]],
    )
    assert profile.profiled_models() == ["a/b", "c/d"]
    assert cloud.asked[0].path == "/gke/v1/models:fetch?pageSize=100"


def test_a_token_that_comes_again_ends_the_list(cloud: Cloud) -> None:
    cloud.answer = lambda _: (200, {"models": ["a/b"], "nextPageToken": "x"})
    assert profile.profiled_models() == ["a/b", "a/b"]


def test_profiles_are_those_of_vllm_at_the_cost_of_the_project(
    cloud: Cloud,
) -> None:
    cloud.answer = lambda _: (200, ANSWER)
    assert profile.measured_profiles(MODEL) == ANSWER["profile"]
    [request] = cloud.asked
    assert request.method == "POST"
    assert request.path == "/gke/v1/benchmarkingData:fetch"
    assert request.document() == {
        "modelServerInfo": {"model": MODEL, "modelServer": "vllm"}
    }
    assert request.headers["X-Goog-User-Project"] == "proj"


@pytest.mark.parametrize("answer", [(404, {}), (200, {}), (200, {"new": 1})])
def test_no_profile_is_an_empty_list(cloud: Cloud, answer: Answer) -> None:
    cloud.answer = lambda _: answer
    assert profile.measured_profiles(MODEL) == []


def break_off(handler: BaseHTTPRequestHandler) -> None:
    """Send the start of an answer that says to be longer."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"profile": [')


@pytest.mark.parametrize(
    "answer",
    [
        (500, "busy"),
        (200, "{"),
        (200, "[]"),
        (200, ""),
        (200, {"profile": {}}),
        (200, {"profile": [1]}),
        (200, {"profile": [{}]}),
        (200, {"profile": [{"modelServerInfo": {}, "performanceStats": 1}]}),
        break_off,
    ],
)
def test_a_cut_or_misshapen_answer_is_no_answer(
    cloud: Cloud, answer: Answer
) -> None:
    cloud.answer = lambda _: answer
    with pytest.raises(OSError, match=r"."):
        profile.measured_profiles(MODEL)


@pytest.mark.parametrize(
    "answer", [(200, {}), (200, {"models": []}), (200, {"models": "a/b"})]
)
def test_a_list_without_models_is_no_answer(
    cloud: Cloud, answer: Answer
) -> None:
    cloud.answer = lambda _: answer
    with pytest.raises(OSError, match=r"models|not understood"):
        profile.profiled_models()


def test_a_refusal_is_one(cloud: Cloud) -> None:
    refusal = {"error": {"message": "SERVICE_DISABLED"}}
    cloud.answer = lambda _: (403, refusal)
    for ask in (
        profile.profiled_models,
        lambda: profile.measured_profiles(MODEL),
    ):
        with pytest.raises(PermissionError, match="SERVICE_DISABLED"):
            ask()
