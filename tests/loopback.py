"""A service on this machine, in place of those of the clouds."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

import google.auth
import pytest
from google.auth.credentials import AnonymousCredentials

from providers.azure import account as azure_account
from providers.azure import client as azure_client
from providers.azure import commitment as azure_commitment
from providers.azure import market as azure_market
from providers.azure import running as azure_running
from providers.gcp import account as gcp_account
from providers.gcp import commitment as gcp_commitment
from providers.gcp import market as gcp_market
from providers.gcp import profile as gcp_profile
from providers.gcp import running as gcp_running
from providers.live import rest
from stacks.azure import logs as azure_logs
from stacks.azure import size as azure_size
from stacks.gcp import logs as gcp_logs
from stacks.gcp import size as gcp_size

# A status, and JSON or text; or what writes to the connection itself.
Answer: TypeAlias = (
    tuple[int, dict[str, Any] | str] | Callable[[BaseHTTPRequestHandler], None]
)


class Request(NamedTuple):
    """What was asked of the service."""

    method: str
    path: str
    body: bytes
    headers: Message

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document


class Cloud:
    """All services of three clouds. `answer` is that of a test."""

    def __init__(self) -> None:
        self.answer: Callable[[Request], Answer] = lambda _: (200, {})
        self.asked: list[Request] = []
        self.url = ""


class BusyServer(ThreadingHTTPServer):
    """A server of which all questions of a region may be asked at once.

    With a shorter queue a connection is tried again after a second.
    """

    request_queue_size = 64


@contextmanager
def standing_cloud() -> Iterator[Cloud]:
    """Serve what a cloud answers, until its end."""
    service = Cloud()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size)
            request = Request(self.command, self.path, body, self.headers)
            service.asked.append(request)
            answer = service.answer(request)
            if callable(answer):
                answer(self)
                return
            status, found = answer
            text = found if isinstance(found, str) else json.dumps(found)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def do_POST(self) -> None:
            self.do_GET()

        def do_PATCH(self) -> None:
            self.do_GET()

        def do_PUT(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = BusyServer(("127.0.0.1", 0), Handler)
    # How often it looks whether it shall end, in seconds: tests wait for that.
    threading.Thread(
        target=server.serve_forever, args=(0.01,), daemon=True
    ).start()
    service.url = f"http://127.0.0.1:{server.server_port}"
    yield service
    server.shutdown()
    server.server_close()


def ask_only(service: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all that is asked of clouds be asked of a service, by somebody who is signed in."""
    url = service.url
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("ARM_SUBSCRIPTION_ID", "sub")
    monkeypatch.setattr(gcp_logs, "LIST_URL", f"{url}/v2/entries:list")
    monkeypatch.setattr(gcp_size, "COMPUTE_URL", f"{url}/compute/v1")
    monkeypatch.setattr(azure_logs, "QUERY_URL", f"{url}/v1/workspaces")
    monkeypatch.setattr(azure_size, "MANAGEMENT_URL", url)
    monkeypatch.setattr(azure_account, "MANAGEMENT_URL", url)
    monkeypatch.setattr(azure_market, "MANAGEMENT_URL", url)
    monkeypatch.setattr(azure_commitment, "MANAGEMENT_URL", url)
    monkeypatch.setattr(azure_running, "MANAGEMENT_URL", url)
    monkeypatch.setattr(azure_market, "RETAIL_URL", f"{url}/api/retail/prices")
    for name, path in (
        ("COMPUTE_URL", "/compute/v1"),
        ("QUOTA_URL", "/quota/v1"),
        ("SERVICE_URL", "/service/v1"),
        ("PROJECT_URL", "/project/v1"),
    ):
        monkeypatch.setattr(gcp_account, name, f"{url}{path}")
    monkeypatch.setattr(gcp_market, "COMPUTE_URL", f"{url}/compute/v1")
    monkeypatch.setattr(gcp_commitment, "COMPUTE_URL", f"{url}/compute/v1")
    monkeypatch.setattr(gcp_running, "COMPUTE_URL", f"{url}/compute/v1")
    monkeypatch.setattr(gcp_profile, "RECOMMENDER_URL", f"{url}/gke/v1")
    monkeypatch.setattr(
        gcp_market,
        "CATALOG_URL",
        f"{url}/billing/v1/services/6F81-5844-456A/skus",
    )
    monkeypatch.setattr(
        google.auth, "default", lambda **_: (AnonymousCredentials(), "proj")
    )
    monkeypatch.setattr(
        azure_client,
        "open_credential",
        lambda _: SimpleNamespace(
            get_token=lambda _: SimpleNamespace(token="t")
        ),
    )
    # Sessions try again over https alone; here nobody waits.
    monkeypatch.setattr(rest, "RETRIES", 0)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    with standing_cloud() as service:
        ask_only(service, monkeypatch)
        yield service
