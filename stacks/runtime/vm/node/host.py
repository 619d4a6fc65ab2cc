"""What the program touches of its machine: clocks, commands, files and requests."""

from __future__ import annotations

import datetime as dt
import http.client
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message

COMMAND_TIMEOUT_S = 300.0
REQUEST_TIMEOUT_S = 30.0
BYTES_TYPE = "application/octet-stream"


class CommandError(Exception):
    """A command that is missing or ran too long (code -1), or ended with another code than 0."""

    def __init__(self, message: str, code: int = -1) -> None:
        super().__init__(message)
        self.code = code


class RequestError(Exception):
    """A request without an answer (status 0), or with an answer of 300 and above."""

    def __init__(
        self, status: int, text: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(f"status {status}: {text[:300]}")
        self.status = status
        self.headers = headers or {}


class Answer(NamedTuple):
    """The answer to a request; names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def document(self) -> Any:
        """Return the body as JSON. Raises ValueError when it is none."""
        return json.loads(self.body)


class Host:
    """The machine itself. Tests put a simulated one in its place."""

    def now_s(self) -> float:
        """Return seconds since the start of the system; no setting of a clock changes them."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def utc(self) -> dt.datetime:
        """Return the date and time, which requests are signed with."""
        return dt.datetime.now(dt.timezone.utc)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def path(self, path: str) -> Path:
        """Return a file of the machine by its absolute path."""
        return Path(path)

    def log(self, text: str) -> None:
        """Write a line to the journal of the unit."""
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def run(
        self,
        *words: str,
        timeout_s: float = COMMAND_TIMEOUT_S,
        env: Mapping[str, str] | None = None,
        with_errors: bool = False,
    ) -> str:
        """Run a command and return what it prints, `with_errors` on both streams.

        Raises CommandError.
        """
        try:
            process = subprocess.run(  # noqa: S603 - words of the program and its settings
                words,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
                env={**os.environ, **(env or {})},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CommandError(f"{words[0]}: {error}") from error
        if process.returncode:
            # The end of a message says what went wrong.
            message = (process.stderr or process.stdout).strip()[-300:]
            raise CommandError(
                f"{words[0]} ended with {process.returncode}: {message}",
                process.returncode,
            )
        return process.stdout + (process.stderr if with_errors else "")

    def succeeds(self, *words: str) -> bool:
        """Whether a command is there and ends with 0."""
        try:
            self.run(*words)
        except CommandError:
            return False
        return True

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Answer:
        """Send a request and return its answer. Raises RequestError."""
        request = urllib.request.Request(  # noqa: S310 - addresses of the cloud and this machine
            url,
            data=body,
            # Without one every body would be called a form.
            headers={"content-type": BYTES_TYPE, **(headers or {})},
            method=method,
        )
        try:
            return _answer(request, timeout_s)
        except urllib.error.HTTPError as error:
            raise _refusal(error) from error
        except (OSError, http.client.HTTPException) as error:
            raise RequestError(0, repr(error)) from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would carry the token of this machine to another host."""

    def redirect_request(self, *_: Any) -> None:
        """Return no request, so that the redirect is an error."""


def _answer(request: urllib.request.Request, timeout_s: float) -> Answer:
    # Metadata servers are never behind a proxy.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), _NoRedirect
    )
    with opener.open(request, timeout=timeout_s) as response:
        return Answer(
            response.status, _names(response.headers), response.read()
        )


def _refusal(error: urllib.error.HTTPError) -> RequestError:
    """Return what a server has refused; a text that breaks off changes nothing about that."""
    try:
        with error:
            text = error.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        text = error.reason
    return RequestError(error.code, text, _names(error.headers))


def _names(headers: Message) -> dict[str, str]:
    return {name.lower(): text for name, text in headers.items()}


def write_whole(path: Path, text: str | bytes) -> None:
    """Write a file so that a reader, or a machine that stops meanwhile, sees all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.new")
    with unfinished.open("wb") as stream:
        stream.write(text.encode() if isinstance(text, str) else text)
        stream.flush()
        os.fsync(stream.fileno())
    unfinished.replace(path)


def read_document(path: Path) -> Any:
    """Return a JSON file; nothing when it is missing or torn."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
