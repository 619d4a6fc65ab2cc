"""The command: what it refuses, what it says, and that it ends well, as a process of its own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from planner.cli import serve
from tests.conftest import ROOT
from tests.planner.cli.conftest import Command
from tests.planner.cli.served.conftest import BROKEN, DESK, digests

pytestmark = pytest.mark.enable_socket
PATIENCE_S = 60


@contextmanager
def serving(
    folder: Path, *words: str
) -> Iterator[tuple[subprocess.Popen, int]]:
    """A server in a session of its own, and the port that it tells."""
    process = subprocess.Popen(
        [sys.executable, "-m", "planner.cli.main", "serve", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            port = re.search(r"at http://127\.0\.0\.1:(\d+)/", line)
            if port:
                yield process, int(port[1])
                break
        else:
            pytest.fail(f"it did not begin: {said}")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def answer(port: int, request_line: str, host: str = "localhost") -> str:
    """What a server answers to letters that no client would send so."""
    with socket.create_connection(
        ("127.0.0.1", port), PATIENCE_S
    ) as connection:
        connection.sendall(
            f"{request_line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        )
        parts = iter(lambda: connection.recv(65536), b"")
        return b"".join(parts).decode()


def session_ids(process: subprocess.Popen) -> list[int]:
    """The processes of the session that a server leads."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        is_alive = fields[0] != "Z"
        if int(fields[3]) == process.pid and is_alive:
            found.append(int(status.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
@pytest.mark.parametrize(
    ("ending", "code", "said"),
    [
        (signal.SIGINT, 0, "stopped\n"),
        (signal.SIGTERM, 0, "stopped\n"),
        (signal.SIGKILL, -signal.SIGKILL, ""),
    ],
)
def test_it_answers_and_ends_with_its_workers(
    here: Path, ending: signal.Signals, code: int, said: str
) -> None:
    (here / "desk.yaml").write_text(DESK)
    (here / "broken.yaml").write_text(BROKEN)
    before = digests(here)
    with serving(here, "--port", "0") as (process, port):
        page = answer(port, "GET /")
        assert page.startswith("HTTP/1.1 200 OK")
        assert "server:" not in page.lower()
        assert "/mo" in page
        assert "broken.yaml:6:11" in page
        assert " 404 " in answer(port, "GET /spec/../../etc/passwd")
        assert " 404 " in answer(port, "GET /assets/../report.css")
        assert " 405 " in answer(port, "POST /")
        assert " 421 " in answer(port, "GET /", "evil.example")
        assert " 400 " in answer(port, "\0GET /")
        assert len(session_ids(process)) >= 2
        process.send_signal(ending)
        assert process.wait(PATIENCE_S) == code
        assert process.stderr is not None
        assert process.stderr.read() == said
        deadline = time.monotonic() + PATIENCE_S
        while session_ids(process) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert session_ids(process) == []
    assert digests(here) == before


def test_a_port_that_is_taken_is_said(tonnage: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, _, err = tonnage("serve", "--port", port)
    assert code == 2
    assert f"error[address]: cannot listen at 127.0.0.1, port {port}: " in err
    assert "--port 0" in err


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_what_others_reach_takes_a_word(tonnage: Command, host: str) -> None:
    code, _, err = tonnage("serve", "--host", host)
    assert code == 2
    assert f"error[serve]: others may reach {host}" in err
    assert "no sign-in" in err
    assert "--expose" in err


def test_without_its_packages_it_says_how_to_get_them(
    tonnage: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "PACKAGES", ("starlette", "no_such_package"))
    code, _, err = tonnage("serve")
    assert code == 2
    assert "error[serve]: " in err
    assert "pip install 'tonnage[serve]'" in err


def test_a_flag_that_names_no_file_is_said_at_once(tonnage: Command) -> None:
    code, _, err = tonnage("serve", "--port", "0", "--prices", "none.yaml")
    assert code == 6
    assert "none.yaml  error[file]: no such file" in err


def test_loopback_is_told_from_what_others_reach() -> None:
    own = ("127.0.0.1", "127.8.0.1", "::1", "localhost")
    others = ("0.0.0.0", "::", "10.0.0.1", "localhost.example", "")
    assert all(map(serve.is_loopback, own))
    assert not any(map(serve.is_loopback, others))
