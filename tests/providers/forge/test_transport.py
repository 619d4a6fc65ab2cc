"""Hosts that are busy, broken or wrong: what is tried again, what is told; never the token."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from planner.cli.failure import problem_text
from planner.errors import TonnageError
from providers.forge.fault import ForgeRefusal, UnsureOutcome
from providers.forge.host import forge_hosts
from providers.forge.setting import ForgeLogin
from providers.forge.transport import ATTEMPTS, Transport
from tests.providers.forge.conftest import QuickClock, publisher
from tests.providers.forge.hosts import (
    HOSTS,
    TOKEN,
    FakeHost,
    Fault,
    Reply,
    serving,
)

pytestmark = pytest.mark.enable_socket
NOW_S = 1_795_305_600
DATE = formatdate(NOW_S, usegmt=True)


def refusal_of(
    host: FakeHost, clock: QuickClock, *faults: Fault
) -> ForgeRefusal:
    host.faults = list(faults)
    with pytest.raises(ForgeRefusal) as refused:
        publisher(host, clock).publish()
    return refused.value


def transport(
    host: FakeHost, clock: QuickClock, api: str = "", authority: str = ""
) -> Transport:
    facts = next(h for h in forge_hosts() if h.service == host.service)
    return Transport(
        facts,
        api or host.api,
        ForgeLogin(f"Bearer {TOKEN}", (TOKEN,)),
        timeout_s=300,
        clock=clock,
        authority_file=authority,
    )


# Of RFC 9110 and of the pages on rate limits of GitHub, GitLab, Atlassian and Azure DevOps.
BUSY = {
    "429 in seconds": (Reply(429, {}, {"Retry-After": "7"}), 7),
    "429 at a time": (
        Reply(
            429,
            {},
            {
                "Date": DATE,
                "Retry-After": formatdate(NOW_S + 40, usegmt=True),
            },
        ),
        41,
    ),
    "429 until a reset": (
        Reply(
            429,
            {},
            {
                "Date": DATE,
                "RateLimit-Remaining": "0",
                "RateLimit-Reset": str(NOW_S + 20),
            },
        ),
        21,
    ),
    "403 until a reset": (
        Reply(
            403,
            {"message": "API rate limit exceeded for installation ID 1."},
            {
                "Date": DATE,
                "X-RateLimit-Remaining": "0",
                "X-RateLimit-Reset": str(NOW_S + 30),
            },
        ),
        31,
    ),
    "503 in seconds": (Reply(503, {}, {"Retry-After": "9"}), 9),
    "500": (Reply(500, {"message": "oops"}), 1),
    "502 with a page": (Reply(502, text="<html>bad</html>"), 1),
}


@pytest.mark.parametrize("name", BUSY)
def test_a_busy_host_is_asked_again_when_it_says_so(
    host: FakeHost, clock: QuickClock, name: str
) -> None:
    """By its own clock: that of this machine may be wrong."""
    reply, least_s = BUSY[name]
    host.faults = [Fault("GET", reply)]
    assert publisher(host, clock).publish().deed == "created"
    assert least_s <= clock.pauses[0] <= least_s + 1


def test_a_secondary_limit_of_github_is_waited_for_a_minute(
    github: FakeHost, clock: QuickClock
) -> None:
    told = {"message": "You have exceeded a secondary rate limit."}
    github.faults = [Fault("POST", Reply(403, told)) for _ in range(2)]
    publisher(github, clock, timeout_s=600).publish()
    first, second = clock.pauses
    assert 60 <= first < 62
    assert 120 <= second < 124
    assert len(github.comments) == 1


def test_a_limit_beyond_the_patience_of_the_caller_is_an_error_at_once(
    host: FakeHost, clock: QuickClock
) -> None:
    reply = Reply(429, {"message": "slow"}, {"Retry-After": "3600"})
    refusal = refusal_of(host, clock, Fault("GET", reply))
    error = refusal.error("acme/infra#12")
    assert clock.pauses == []
    assert error.exit_code == 9
    assert "3600 seconds" in error.problems[0].next_step


def test_a_host_that_stays_broken_is_given_up(
    host: FakeHost, clock: QuickClock
) -> None:
    faults = [Fault("GET", Reply(500, {})) for _ in range(99)]
    refusal = refusal_of(host, clock, *faults)
    assert refusal.error("x").exit_code == 4
    assert len(host.asked) == ATTEMPTS
    assert clock.pauses == sorted(clock.pauses)


REFUSED = {
    401: 3,
    403: 3,
    404: 6,
}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("status", REFUSED)
def test_a_refusal_is_told_once_with_a_next_step(
    host: FakeHost, clock: QuickClock, status: int, method: str
) -> None:
    path = "comments" if host.service == "github" else ""
    reply = Reply(status, {"message": "no"})
    refusal = refusal_of(host, clock, Fault(method, reply, path=path))
    error = refusal.error("acme/infra#12")
    assert error.exit_code == REFUSED[status]
    assert error.problems[0].next_step
    assert clock.pauses == []
    assert host.comments == {}


GITHUB_REFUSALS = [
    (403, "Resource not accessible by integration", "read-only", 3),
    (403, "Resource not accessible by personal access token", "permission", 3),
    (
        403,
        "Resource protected by organization SAML enforcement.",
        "permission",
        3,
    ),
    (403, "Unable to create comment because issue is locked.", "closed", 5),
    (403, "Repository was archived so is read-only.", "closed", 5),
    (410, "Issues are disabled for this repo", "missing", 6),
    (422, "Validation Failed", "other", 4),
]


@pytest.mark.parametrize(("status", "told", "meaning", "code"), GITHUB_REFUSALS)
def test_github_says_why_it_refuses(
    github: FakeHost,
    clock: QuickClock,
    status: int,
    told: str,
    meaning: str,
    code: int,
) -> None:
    reply = Reply(status, {"message": told})
    refusal = refusal_of(github, clock, Fault("POST", reply))
    assert refusal.meaning == meaning
    error = refusal.error("acme/infra#12")
    assert error.exit_code == code
    assert told in error.problems[0].cause


def test_a_sign_in_page_of_azure_is_a_token_that_is_refused(
    clock: QuickClock,
) -> None:
    host = HOSTS["azure-devops"]()
    page = Reply(203, text="<!DOCTYPE html><html>Sign in</html>")
    elsewhere = Reply(302, None, {"Location": "https://login.example.invalid/"})
    with serving(host):
        for reply in (page, elsewhere):
            refusal = refusal_of(host, clock, Fault("GET", reply))
            assert refusal.error("x").exit_code == 3
            assert "<" not in refusal.told_text


def test_a_repository_that_was_renamed_is_followed_on_the_same_host_alone(
    github: FakeHost, clock: QuickClock
) -> None:
    old = "/ghe/api/v3/repos/acme/infra/issues/12/comments"
    other = HOSTS["github"]()
    with serving(other):
        for method, status, is_followed in (
            ("GET", 301, True),
            ("POST", 307, True),
            ("POST", 301, False),
        ):
            github.comments.clear()
            moved = Reply(status, None, {"Location": f"{github.url}{old}"})
            github.faults = [Fault(method, moved)]
            if is_followed:
                publisher(github, clock).publish()
                assert len(github.comments) == 1
            else:
                refusal = refusal_of(github, clock, *github.faults)
                assert refusal.meaning == "moved"
        # A token is sent to no other host, whatever this one says.
        away = Reply(301, None, {"Location": f"{other.url}{old}"})
        refusal = refusal_of(github, clock, Fault("GET", away))
        assert refusal.error("x").exit_code == 6
        assert other.asked == []


def test_the_link_to_a_next_page_leads_to_no_other_host(
    clock: QuickClock,
) -> None:
    host = HOSTS["bitbucket-cloud"]()
    page = {"values": [], "next": "https://evil.example.invalid/2.0/next"}
    with serving(host):
        refusal = refusal_of(host, clock, Fault("GET", Reply(200, page)))
    assert "evil.example.invalid" in refusal.told_text


@pytest.mark.parametrize("text", ["<html>Portal</html>", "", "null", "{"])
def test_a_page_in_place_of_a_list_is_no_empty_list(
    host: FakeHost, clock: QuickClock, text: str
) -> None:
    """Else every report would be posted anew."""
    from providers.forge.publish import expected_shapes

    host.faults = [Fault("GET", Reply(200, text=text)) for _ in range(9)]
    with pytest.raises(ForgeRefusal), expected_shapes():
        publisher(host, clock).publish()
    assert host.comments == {}


def test_nobody_there_is_tried_again_and_then_told_without_the_address(
    host: FakeHost, clock: QuickClock
) -> None:
    api = "http://127.0.0.1:9/secret-path"
    sender = transport(host, clock, api)
    for method in ("GET", "POST"):
        with pytest.raises(ForgeRefusal) as refused:
            sender.send(method, "/user", None)
        assert refused.value.error("x").exit_code == 4
        assert "127.0.0.1:9: " in refused.value.told_text
        assert "secret-path" not in refused.value.told_text
    assert len(clock.pauses) == 2 * (ATTEMPTS - 1)


def test_a_post_whose_answer_breaks_off_is_not_sent_twice(
    github: FakeHost, clock: QuickClock
) -> None:
    github.faults = [Fault("POST", Reply(504, {}), is_after=True)]
    with pytest.raises(UnsureOutcome):
        transport(github, clock).send(
            "POST", "/repos/acme/infra/issues/12/comments", {"body": "x"}
        )
    assert len(github.asked) == 1


def test_a_proxy_of_the_environment_is_used(
    github: FakeHost, clock: QuickClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets the whole address; the fake host stands for both."""
    monkeypatch.setenv("http_proxy", github.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    api = "http://forge.example.invalid/ghe/api/v3"
    answer = transport(github, clock, api).send(
        "GET", "/repos/acme/infra/pulls/12"
    )
    assert answer.document()["number"] == 12
    assert github.asked[0].headers["Host"] == "forge.example.invalid"


# What a service that says too much repeats, in each place where it could.
ECHOES = [
    Reply(400, {"message": f"bad header Bearer {TOKEN}"}),
    Reply(403, {"message": f"no {TOKEN}", "errors": [TOKEN]}),
    Reply(500, text=f"Traceback: {TOKEN}"),
    Reply(200, text=f"{TOKEN} is no JSON"),
    Reply(404, {"error": {"message": TOKEN}}),
    Reply(302, None, {"Location": f"https://x.invalid/?t={TOKEN}"}),
]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("reply", ECHOES, ids=lambda r: str(r.status))
def test_no_message_has_the_token(
    host: FakeHost, clock: QuickClock, reply: Reply, method: str
) -> None:
    faults = [Fault(method, reply) for _ in range(40)]
    try:
        refusal = refusal_of(host, clock, *faults)
    except UnsureOutcome as unsure:
        assert TOKEN not in f"{unsure} {unsure!r}"
        return
    error = refusal.error("acme/infra#12")
    assert isinstance(error, TonnageError)
    shown = "".join(problem_text(problem) for problem in error.problems)
    assert TOKEN not in f"{shown} {refusal} {refusal!r} {error!r}"


def test_a_login_shows_itself_to_nobody() -> None:
    login = ForgeLogin(f"Bearer {TOKEN}", (TOKEN,))
    assert TOKEN not in f"{login} {login!r}"
    assert login.masked(f"a {TOKEN} b") == "a *** b"


def authority(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that nobody but its owner knows, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "own")])
    start = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    end = dt.datetime(2099, 1, 1, tzinfo=dt.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "own.pem", folder / "own.key"
    certificate_file.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
    )
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate_file, key_file


def test_an_own_authority_is_believed_when_it_is_named(
    clock: QuickClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate_file, key_file = authority(tmp_path)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"id": 7}')

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_file, key_file)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(
        target=server.serve_forever, args=(0.01,), daemon=True
    ).start()
    host = HOSTS["gitlab"]()
    api = f"https://127.0.0.1:{server.server_port}/api/v4"
    with pytest.raises(ForgeRefusal) as refused:
        transport(host, clock, api).send("GET", "/user")
    assert "SSL_CERT_FILE" in refused.value.next_step
    named = transport(host, clock, api, str(certificate_file))
    assert named.send("GET", "/user").document() == {"id": 7}
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate_file))
    assert transport(host, clock, api).send("GET", "/user").status == 200
    server.shutdown()
    server.server_close()


def test_a_password_of_the_home_folder_takes_no_token_s_place(
    github: FakeHost,
    clock: QuickClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    transport(github, clock).send("GET", "/repos/acme/infra/pulls/12")
    assert github.asked[0].headers["Authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize("broken", [f"{TOKEN}\n", f"{TOKEN}\u2019"])
def test_a_token_that_no_header_may_have_is_told_without_it(
    github: FakeHost, clock: QuickClock, broken: str
) -> None:
    sender = Transport(
        next(h for h in forge_hosts() if h.service == github.service),
        github.api,
        ForgeLogin(f"Bearer {broken}", (broken,)),
        timeout_s=300,
        clock=clock,
    )
    with pytest.raises(ForgeRefusal) as refused:
        sender.send("GET", "/user")
    error = refused.value
    assert TOKEN not in f"{error} {error!r} {error.__context__ or ''}"
    assert github.asked == []


def test_an_answer_that_never_ends_is_given_up(
    github: FakeHost, clock: QuickClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("providers.forge.transport.MOST_ANSWER_BYTES", 1000)
    github.faults = [
        Fault("GET", Reply(200, text="x" * 2000)) for _ in range(ATTEMPTS)
    ]
    with pytest.raises(ForgeRefusal):
        transport(github, clock).send("GET", "/repos/acme/infra/pulls/12")
