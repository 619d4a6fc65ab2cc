"""Small clouds are asked for public price lists; one that is down costs no other its answer."""

from __future__ import annotations

from decimal import Decimal
from threading import Event
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from planner.facts.price_endpoint import price_endpoints
from planner.market.live import NO_ZONE
from planner.market.price_update import AnsweredQuestion, AskedScope
from planner.market.small_cloud_update import small_questions
from providers.live import rest, small_cloud
from providers.live.price import ask_prices
from providers.live.small_cloud import public_prices
from tests.loopback import Cloud, Request
from tests.providers.live.fault import Reply
from tests.providers.live.price_lists import price_list, serve_at

pytestmark = pytest.mark.enable_socket

CLOUDS = tuple(price_endpoints())
QUESTIONS = small_questions(AskedScope())
TYPES = {question.cloud: question.machine_types for question in QUESTIONS}


def asked_cloud(request: Request) -> str:
    return urlsplit(request.path).path.strip("/")


@pytest.fixture
def lists(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """Small clouds that answer as they document it."""
    serve_at(cloud.url, monkeypatch)
    cloud.answer = lambda request: (200, price_list(asked_cloud(request)))
    return cloud


def answers(deadline_s: float = 20) -> dict[str, AnsweredQuestion]:
    return {
        answered.question.cloud: answered
        for answered in ask_prices(QUESTIONS, deadline_s)
    }


def test_prices_are_those_of_the_lists_and_nobody_signs_in(
    lists: Cloud,
) -> None:
    found = answers()
    assert set(found) == set(CLOUDS)
    assert found["oci"].answer.value is not None
    assert found["oci"].answer.value["BM.GPU.H100.8"] == {NO_ZONE: Decimal(80)}
    for request in lists.asked:
        assert request.method == "GET"
        assert "Authorization" not in request.headers
    # One question of one cloud; nothing is asked of AWS, Azure or Google Cloud.
    assert sorted(map(asked_cloud, lists.asked)) == sorted(CLOUDS)


def test_the_same_lists_give_the_same_answers(lists: Cloud) -> None:
    first, second = (
        {cloud: public_prices(cloud, TYPES[cloud]) for cloud in CLOUDS}
        for _ in range(2)
    )
    assert first == second
    some = TYPES["oci"][:2]
    assert set(public_prices("oci", some)) == set(some)


def test_decimals_are_read_as_they_are_written(lists: Cloud) -> None:
    text = '{"items": [], "plans": [{"id": "%s", "hourly_cost": %s}]}'
    name, written = TYPES["vultr"][0], "0.1000000000000000055"
    lists.answer = lambda _: (200, text % (name, written))
    assert public_prices("vultr", (name,)) == {name: Decimal(written)}


def paged(cloud: str, url: str, request: Request) -> Any:
    """A list with one entry a page, each page naming the next in the words of its cloud."""
    document = price_list(cloud)
    [field] = [key for key in ("items", "plans") if key in document]
    query = parse_qs(urlsplit(request.path).query)
    number = int(query.get("cursor", ["0"])[0].removeprefix("page/"))
    is_last = number + 1 == len(document[field])
    page: dict[str, Any] = {field: document[field][number : number + 1]}
    following = "" if is_last else f"page/{number + 1}"
    if cloud == "vultr":
        return {**page, "meta": {"links": {"next": following, "prev": ""}}}
    link = {"rel": "next", "href": f"{url}/{cloud}?cursor={following}"}
    return {**page, "links": [] if is_last else [link]}


@pytest.mark.parametrize("name", CLOUDS)
def test_a_list_in_pages_is_the_same_list(lists: Cloud, name: str) -> None:
    whole = public_prices(name, TYPES[name])
    asked = len(lists.asked)
    lists.answer = lambda request: (200, paged(name, lists.url, request))
    assert public_prices(name, TYPES[name]) == whole
    assert len(lists.asked) > asked + 2


def test_a_list_that_goes_on_elsewhere_or_for_ever_is_no_answer(
    lists: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_cloud, "MOST_PAGES", 4)
    hrefs = iter([f"{lists.url}/oci?page={number}" for number in range(9)])

    def endless(_: Request) -> Any:
        link = {"rel": "next", "href": next(hrefs)}
        return 200, {"items": [], "links": [link]}

    lists.answer = endless
    with pytest.raises(ValueError, match="more than 4 pages"):
        public_prices("oci", TYPES["oci"])
    away = {"rel": "next", "href": "https://elsewhere.example/oci"}
    lists.answer = lambda _: (200, {"items": [], "links": [away]})
    with pytest.raises(ValueError, match=r"goes on at https://elsewhere"):
        public_prices("oci", TYPES["oci"])


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply("<html>Service Unavailable</html>"), "another shape"),
        (Reply("<html>busy</html>", 503), "503: <html>busy"),
        (Reply('{"error": "log in"}', 401), "401"),
        (Reply('{"error": "log in"}', 403), "403"),
        (Reply("not here", 404), "404"),
        (Reply(""), "another shape"),
        (Reply("[]"), "no JSON object"),
        (Reply("{}"), "no list of items"),
        (Reply('{"items": [{"partNumber": "B98415"}]}'), "metricName None"),
        (Reply('{"items": []' + " " * 99 + "}", is_cut=True), ""),
    ],
)
def test_a_cloud_that_fails_says_why_and_the_others_answer(
    lists: Cloud,
    monkeypatch: pytest.MonkeyPatch,
    reply: Reply,
    reason: str,
) -> None:
    def answer(request: Request) -> Any:
        if asked_cloud(request) == "oci":
            return reply.write
        return 200, price_list("vultr")

    lists.answer = answer
    found = answers()
    assert found["oci"].answer.value is None
    assert reason in found["oci"].answer.reason
    assert found["oci"].answer.reason
    assert set(found["vultr"].answer.value or ()) == set(TYPES["vultr"])


def test_a_cloud_that_never_answers_delays_no_other_one(
    lists: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Event()

    def answer(request: Request) -> Any:
        if asked_cloud(request) == "oci":
            return Reply("", held=held).write
        return 200, price_list("vultr")

    lists.answer = answer
    found = answers(deadline_s=1)
    held.set()
    assert found["oci"].answer.reason == "no answer in time"
    assert found["vultr"].answer.value
    # The time-out of one request ends before that of the whole update, too.
    monkeypatch.setattr(rest, "TIMEOUT_S", 0.2)
    held.clear()
    reason = answers()["oci"].answer.reason
    held.set()
    assert "timed out" in reason
