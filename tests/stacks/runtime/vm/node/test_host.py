"""Requests of a machine over a real connection, with servers that misbehave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from stacks.runtime.vm.node.host import (
    CommandError,
    Host,
    RequestError,
    read_document,
    write_whole,
)

pytestmark = pytest.mark.enable_socket


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, headers, body = {
            "/well": (200, {"ETag": '"7"'}, b'{"a": 1}'),
            "/missing": (404, {"x-ms-error-code": "BlobNotFound"}, b"gone"),
            "/moved": (307, {"Location": "/well"}, b""),
            "/torn": (200, {"Content-Length": "99"}, b"half"),
            "/torn-error": (500, {"Content-Length": "99"}, b"half"),
        }[self.path]
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        kind = self.headers["Content-Type"]
        self.send_response(201)
        self.end_headers()
        self.wfile.write(f"{kind} {len(body)}".encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_answer_has_its_headers_in_lower_case(url: str) -> None:
    answer = Host().send("GET", f"{url}/well")
    assert answer.document() == {"a": 1}
    assert answer.headers["etag"] == '"7"'


def test_a_body_is_no_form_unless_it_says_so(url: str) -> None:
    answer = Host().send("PUT", f"{url}/x", {}, b"12345")
    assert answer.body == b"application/octet-stream 5"
    assert Host().send("PUT", f"{url}/x", {}, b"").body.endswith(b" 0")


@pytest.mark.parametrize(
    ("path", "status"),
    [("/missing", 404), ("/moved", 307), ("/torn", 0), ("/torn-error", 500)],
)
def test_whatever_goes_wrong_is_one_kind_of_error(
    url: str, path: str, status: int
) -> None:
    with pytest.raises(RequestError) as caught:
        Host().send("GET", url + path)
    assert caught.value.status == status
    if path == "/missing":
        assert caught.value.headers["x-ms-error-code"] == "BlobNotFound"


def test_nobody_there_is_an_error_without_a_status() -> None:
    with pytest.raises(RequestError) as caught:
        Host().send("GET", "http://127.0.0.1:9/")
    assert caught.value.status == 0


def test_a_command_says_what_it_printed_or_why_it_failed() -> None:
    host = Host()
    assert host.run("echo", "a  b") == "a  b\n"
    with pytest.raises(CommandError, match="ended with 3: no"):
        host.run("sh", "-c", "echo no >&2; exit 3")
    with pytest.raises(CommandError, match="no-such-command"):
        host.run("no-such-command")
    with pytest.raises(CommandError, match="timed out"):
        host.run("sleep", "5", timeout_s=0.05)


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "state.json"
    assert read_document(path) is None
    write_whole(path, '{"a": 1}')
    assert read_document(path) == {"a": 1}
    path.write_text('{"a": ')
    assert read_document(path) is None
    assert [p.name for p in path.parent.iterdir()] == ["state.json"]
