"""Only reading, only by this machine's own names, and with headers that hold a page to itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("starlette")

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from planner.cli.served.guard import HEADERS, Guard, host_name
from tests.planner.cli.served.conftest import Client


@contextmanager
def guarded(*names: str, is_public: bool = False) -> Iterator[Client]:
    async def page(_request: object) -> PlainTextResponse:
        return PlainTextResponse("read", headers={"cache-control": "public"})

    app = Starlette(
        routes=[Route("/", page, methods=["GET", "POST", "PUT", "DELETE"])]
    )
    client = Client(Guard(app, frozenset(names), is_public=is_public))
    yield client
    client.close()


@pytest.mark.parametrize(
    "method",
    ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "READ"],
)
def test_what_is_no_reading_is_refused(method: str) -> None:
    with guarded() as client:
        reply = client.ask(method, "/")
    assert reply.status_code == 405
    assert reply.headers["allow"] == "GET, HEAD"
    assert "read" not in reply.text.split()


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8080",
        "localhost:1",
        "LocalHost",
        "[::1]:8080",
        "[::1]",
        "plans.local:8080",
    ],
)
def test_its_own_names_are_answered(host: str) -> None:
    with guarded("plans.local") as client:
        assert client.get("/", host=host).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example:8080",
        "127.0.0.2",
        "127.0.0.1@evil.example",
        "[::1].evil.example:8080",
        "[fe80::1]",
        "",
        "192.0.2.7",
        ":8080",
    ],
)
def test_a_name_that_leads_here_from_elsewhere_is_not(host: str) -> None:
    with guarded("plans.local") as client:
        reply = client.get("/", host=host)
    assert reply.status_code == 421
    assert reply.text.startswith("<!DOCTYPE html>")


def test_a_server_for_others_has_its_numbers_and_no_more_names() -> None:
    hosts = ("192.0.2.7:8080", "[2001:db8::1]", "plans.example", "evil.example")
    with guarded("plans.example", is_public=True) as client:
        answers = [client.get("/", host=host).status_code for host in hosts]
    assert answers == [200, 200, 200, 421]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_of_another_site_may_link_and_not_read(site: str) -> None:
    own = {"sec_fetch_site": "same-origin", "sec_fetch_mode": "cors"}
    with guarded() as client:
        for mode, status in (
            ("navigate", 200),
            ("no-cors", 403),
            ("cors", 403),
        ):
            reply = client.get("/", sec_fetch_site=site, sec_fetch_mode=mode)
            assert reply.status_code == status
        assert client.get("/", **own).status_code == 200


@pytest.mark.parametrize(
    ("method", "host"),
    [("GET", "localhost"), ("POST", "localhost"), ("GET", "evil.example")],
)
def test_every_answer_has_the_headers(method: str, host: str) -> None:
    with guarded() as client:
        reply = client.ask(method, "/", host=host)
    for name, text in HEADERS.items():
        assert reply.headers.get_list(name) == [text]
    assert "set-cookie" not in reply.headers
    assert "access-control-allow-origin" not in reply.headers


def test_hosts_have_names_with_and_without_ports() -> None:
    assert host_name("[2001:db8::1]:443") == "2001:db8::1"
    assert host_name("Example.ORG:80") == "example.org"
    assert host_name("example.org") == "example.org"
    assert host_name("[::1].example.org") == ""
