"""What Google answers about models that it has measured, at a service like its own."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from planner.errors import UsageError
from planner.estimate.quickstart import read_measured
from providers.gcp import profile
from tests.loopback import Answer, Cloud, Request
from tests.providers.shapes import Document, answer_of, shape
from tests.providers.shapes.service import refuse, said, serve
from tests.providers.shapes.structure import field_paths, without

pytestmark = pytest.mark.enable_socket
MODELS = "gcp/models.fetch"
PROFILES = "gcp/benchmarkingData.fetch"
MODEL = "meta-llama/Meta-Llama-3-8B"


def test_models_come_page_by_page(cloud: Cloud) -> None:
    """A token that comes again ends the list."""
    first, second = answer_of(MODELS)["models"]
    pages = {
        "": {"models": [first], "nextPageToken": "x/y"},
        "&pageToken=x%2Fy": {"models": [second], "nextPageToken": "x/y"},
    }

    def answer(request: Request) -> Answer:
        return said(MODELS, pages[request.path.partition("pageSize=100")[2]])

    cloud.answer = answer
    assert profile.profiled_models() == [first, second]
    assert cloud.asked[0].path == "/gke/v1/models:fetch?pageSize=100"


def test_profiles_are_those_of_vllm_at_the_cost_of_the_project(
    cloud: Cloud,
) -> None:
    serve(cloud)
    assert profile.measured_profiles(MODEL) == answer_of(PROFILES)["profile"]
    [request] = cloud.asked
    assert request.method == "POST"
    assert request.path == "/gke/v1/benchmarkingData:fetch"
    assert request.document() == shape(PROFILES).request
    assert request.headers["X-Goog-User-Project"] == "proj"


@pytest.mark.parametrize("words", ["none", "empty", {"new": 1}])
def test_no_profile_is_an_empty_list(cloud: Cloud, words: Any) -> None:
    serve(cloud, {PROFILES: words})
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


@pytest.mark.parametrize("words", ["empty", {"models": []}, {"models": "a/b"}])
def test_a_list_without_models_is_no_answer(cloud: Cloud, words: Any) -> None:
    serve(cloud, {MODELS: words})
    with pytest.raises(OSError, match=r"models|not understood"):
        profile.profiled_models()


def test_a_refusal_is_one(cloud: Cloud) -> None:
    refuse(cloud, "permission")
    for ask in (
        profile.profiled_models,
        lambda: profile.measured_profiles(MODEL),
    ):
        with pytest.raises(PermissionError, match="403"):
            ask()


def points_of(document: Document) -> object:
    """What a calibration makes of profiles, or why it takes none."""
    text = json.dumps(document.get("profile", []))
    try:
        return read_measured(text, "gke.json", {})
    except UsageError as error:
        return str(error)


def test_the_file_says_what_is_read_of_profiles() -> None:
    document = answer_of(PROFILES)
    # One deployment alone is a calibration.
    document["profile"] = document["profile"][:1]
    whole = points_of(document)
    read = {
        path
        for path in field_paths(answer_of(PROFILES))
        if points_of(without(document, path)) != whole
    }
    assert read == set(shape(PROFILES).reads["measured_profiles"])


def test_the_file_says_what_is_read_of_models(cloud: Cloud) -> None:
    [path] = shape(MODELS).reads["profiled_models"]
    serve(cloud, {MODELS: without(answer_of(MODELS), path)})
    with pytest.raises(OSError, match="no models"):
        profile.profiled_models()
