"""Who is signed in to AWS: asked of a service on this machine with the real client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs

import pytest

from planner.errors import CredentialError
from providers.aws.provider import AwsProvider

pytestmark = pytest.mark.enable_socket

IDENTITY = """<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<GetCallerIdentityResult><Arn>arn:aws:iam::123456789012:user/ada</Arn><UserId>AIDA</UserId>
<Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>"""
REFUSAL = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender
</Type><Code>ExpiredToken</Code><Message>The security token included in the request is expired
</Message></Error></ErrorResponse>"""


@pytest.fixture
def service(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[list[str]]:
    status, text = request.param
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.extend(parse_qs(body.decode())["Action"])
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv(
        "AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{server.server_port}"
    )
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "A")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    yield asked
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("service", [(200, IDENTITY)], indirect=True)
def test_the_account_is_asked_for_once(service: list[str]) -> None:
    identity = AwsProvider().identity({})
    assert service == []
    assert identity.account == "123456789012"
    assert identity.account == "123456789012"
    assert service == ["GetCallerIdentity"]
    assert identity.project == ""


@pytest.mark.parametrize("service", [(403, REFUSAL)], indirect=True)
def test_a_login_that_has_expired_is_nobody(service: list[str]) -> None:
    with pytest.raises(CredentialError, match="nobody is signed in to AWS"):
        _ = AwsProvider().identity({}).account
    assert service == ["GetCallerIdentity"]


def test_without_credentials_nobody_is_signed_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    with pytest.raises(CredentialError, match="nobody is signed in to AWS"):
        _ = AwsProvider().identity({}).account
