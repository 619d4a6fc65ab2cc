"""Requests to code hosts: patient with those that are busy, and silent about the token.

It needs no package beyond Python's own, as a job installs tonnage alone. Proxies are those of the
environment; certificates are judged by the system's, or by those that SSL_CERT_FILE names.
"""

from __future__ import annotations

import json
import random
import ssl
import time
from email.utils import parsedate_to_datetime
from http.client import HTTPException, IncompleteRead
from socket import gaierror
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import urljoin, urlsplit
from urllib.request import (
    BaseHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    Request,
    build_opener,
)

from planner.version import VERSION
from providers.forge.fault import BUSY, OTHER, RATE, UnsureOutcome, refusal
from providers.forge.fault import ForgeRefusal as Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message

    from providers.forge.host import ForgeHost
    from providers.forge.setting import ForgeLogin

TIMEOUT_S: Final = 30.0
# A page of a hundred comments of the largest size of all hosts is not reached by any of them.
MOST_ANSWER_BYTES: Final = 64 * 2**20
SHOWN_CHARACTERS: Final = 300
# Attempts at a request that the host is too busy for; pauses grow from one second on.
ATTEMPTS: Final = 6
FIRST_PAUSE_S: Final = 1.0
REDIRECTS: Final = 3
FIRST_REDIRECT: Final = 300
FIRST_ERROR: Final = 400
FIRST_FAILURE: Final = 500
NOT_AUTHORITATIVE: Final = 203
SAME_METHOD: Final = (307, 308)
LIMITED: Final = (403, 429)
GET: Final = "GET"
POST: Final = "POST"
REMAINING_HEADERS: Final = ("X-RateLimit-Remaining", "RateLimit-Remaining")
RESET_HEADERS: Final = ("X-RateLimit-Reset", "RateLimit-Reset")
# A time of a header that is further away than this is one in seconds since 1970.
LONGEST_SPAN_S: Final = 10.0**8


class WaitingClock(Protocol):
    """What passes time."""

    def now_s(self) -> float:
        """Return seconds that never run backward."""

    def wait(self, pause_s: float) -> None:
        """Return after a pause."""

    def share(self) -> float:
        """Return a random number from 0 to 1."""


class SystemClock:
    """The clock of this machine."""

    def now_s(self) -> float:
        """Return seconds that never run backward."""
        return time.monotonic()

    def wait(self, pause_s: float) -> None:
        """Return after a pause."""
        time.sleep(pause_s)

    def share(self) -> float:
        """Return a random number from 0 to 1."""
        return random.random()  # noqa: S311 - no secret depends on it


class ForgeAnswer(NamedTuple):
    """What a code host answers."""

    status: int
    headers: Message
    text: str

    def document(self) -> Any:
        """Return the JSON of an answer. Raises ForgeRefusal for what is none."""
        try:
            return json.loads(self.text)
        except ValueError as error:
            # Its text may be anything, and is not shown.
            told = "the answer is no JSON"
            raise Refusal(OTHER, self.status, told) from error


class ForgeRequest(NamedTuple):
    """What is asked of a code host."""

    method: str
    url: str
    document: Mapping[str, Any] | None
    is_repeatable: bool = True
    is_graphql: bool = False


class _NoRedirects(HTTPRedirectHandler):
    """Leaves redirects to who asked: a token follows none to another host."""

    def redirect_request(self, *_: Any) -> None:
        """Return no request, so that the answer is the redirect."""


class Transport:
    """Sends requests to the API of a code host until a deadline."""

    def __init__(
        self,
        host: ForgeHost,
        api: str,
        login: ForgeLogin,
        *,
        timeout_s: float,
        clock: WaitingClock,
        authority_file: str = "",
    ) -> None:
        self.host = host
        self.api = api
        self._login = login
        self._clock = clock
        self._end_s = clock.now_s() + timeout_s
        handlers: list[BaseHandler] = [_NoRedirects()]
        if api.startswith("https:"):
            context = _certificates(authority_file)
            handlers.append(HTTPSHandler(context=context))
        self._opener = build_opener(*handlers)

    def masked(self, text: str) -> str:
        """Return a text without the token."""
        return self._login.masked(text)

    def send(
        self, method: str, path: str, document: Mapping[str, Any] | None = None
    ) -> ForgeAnswer:
        """Send a request until it is answered, and return the answer.

        `path` is below the API's address, or a whole address of the same host. Raises ForgeRefusal
        for what is refused. Raises UnsureOutcome for a POST that may have arrived: sent again, it
        might do its work twice.
        """
        url = path if "://" in path else f"{self.api}{path}"
        is_repeatable = method != POST
        return self._persist(ForgeRequest(method, url, document, is_repeatable))

    def repeat(self, path: str) -> ForgeAnswer:
        """Send a POST that may do its work twice, as then nothing changes."""
        return self._persist(ForgeRequest(POST, f"{self.api}{path}", None))

    def query(self, url: str, document: Mapping[str, Any]) -> ForgeAnswer:
        """Send a GraphQL query or mutation that may do its work twice.

        Raises ForgeRefusal for errors too, which have the status of an answer, when there is
        nothing else in it.
        """
        return self._persist(ForgeRequest(POST, url, document, is_graphql=True))

    def _persist(self, request: ForgeRequest) -> ForgeAnswer:
        for attempt in range(ATTEMPTS):
            try:
                return self._answer(request)
            except UnsureOutcome:
                # What may be under way has time to be seen.
                self._clock.wait(FIRST_PAUSE_S + self._clock.share())
                raise
            except Refusal as error:
                pause_s = self._pause_s(error, attempt)
                self._wait(pause_s, error, attempt)
        raise AssertionError

    def refused(self, answer: ForgeAnswer) -> Refusal:
        """Return what an answer refuses, with how long the host asks to wait."""
        shown = " ".join(self.masked(_message(answer)).split())
        found = refusal(
            self.host.forge,
            answer.status,
            answer.text,
            shown[:SHOWN_CHARACTERS],
        )
        if answer.status in LIMITED and _header(answer, REMAINING_HEADERS) == 0:
            found.meaning = RATE
        if answer.status >= FIRST_FAILURE:
            found.meaning = BUSY
        found.wait_s = _asked_pause_s(answer)
        return found

    def _answer(self, request: ForgeRequest) -> ForgeAnswer:
        """Send a request, and after it where a redirect of the same host leads."""
        for _ in range(REDIRECTS):
            answer = self._sent_once(request)
            if not FIRST_REDIRECT <= answer.status < FIRST_ERROR:
                break
            location = answer.headers.get("Location", "")
            target = urljoin(request.url, location)
            follows = request.method == GET or answer.status in SAME_METHOD
            if not follows or _origin(target) != _origin(self.api):
                break
            request = request._replace(url=target)
        is_page = answer.status == NOT_AUTHORITATIVE
        has_errors = request.is_graphql and not _has_data(answer.document())
        if answer.status >= FIRST_REDIRECT or is_page or has_errors:
            error = self.refused(answer)
            if error.meaning == BUSY and not request.is_repeatable:
                raise UnsureOutcome(str(error)) from error
            raise error
        return answer

    def _sent_once(self, asked: ForgeRequest) -> ForgeAnswer:
        if _origin(asked.url) != _origin(self.api):
            # A host that names a page elsewhere would get the token sent there.
            told = f"it leads to another host: {urlsplit(asked.url).netloc}"
            raise Refusal(OTHER, 0, told)
        left_s = max(1.0, self._end_s - self._clock.now_s())
        try:
            return self._read(self._request(asked), min(TIMEOUT_S, left_s))
        except (OSError, HTTPException) as error:
            raise self._broken(asked, error) from error

    def _read(self, request: Request, timeout_s: float) -> ForgeAnswer:
        try:
            opened = self._opener.open(request, timeout=timeout_s)
        except HTTPError as error:
            # It is an answer too.
            opened = error
        with opened:
            body = opened.read(MOST_ANSWER_BYTES)
            if getattr(opened, "length", 0):
                # It ends before its own length: a read of so many bytes at most says nothing.
                raise IncompleteRead(body)
            text = body.decode("utf-8", "replace")
            return ForgeAnswer(opened.status, opened.headers, text)

    def _request(self, asked: ForgeRequest) -> Request:
        headers = {
            "Authorization": self._login.header,
            "Accept": "application/json",
            "User-Agent": f"tonnage/{VERSION}",
        }
        body = None
        if asked.document is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(asked.document).encode()
        return Request(  # noqa: S310 - its origin is that of the API
            asked.url, data=body, headers=headers, method=asked.method
        )

    def _broken(
        self, asked: ForgeRequest, error: OSError | HTTPException
    ) -> Refusal | UnsureOutcome:
        """Return what a connection that broke means. The URL is not told: only its host."""
        reason = error.reason if isinstance(error, URLError) else error
        words = str(reason) or type(error).__name__
        told = self.masked(f"{urlsplit(asked.url).netloc}: {words}")
        if isinstance(reason, ssl.SSLCertVerificationError):
            next_step = (
                "name the file with the authority of the host: SSL_CERT_FILE"
            )
            return Refusal(OTHER, 0, told, next_step)
        # Then nothing was sent, so it may be sent again.
        is_unsent = isinstance(reason, (ConnectionRefusedError, gaierror))
        if not asked.is_repeatable and not is_unsent:
            return UnsureOutcome(told)
        return Refusal(BUSY, 0, told)

    def _pause_s(self, error: Refusal, attempt: int) -> float:
        """Return the seconds until the next attempt. Raises the refusal of one who will not."""
        if error.meaning not in (RATE, BUSY):
            raise error
        doubled = float(1 << attempt)
        grown_s = FIRST_PAUSE_S * doubled
        if error.wait_s is not None:
            pause_s = error.wait_s
        elif error.meaning == RATE:
            pause_s = max(grown_s, self.host.quiet_pause_s * doubled)
        else:
            pause_s = grown_s
        # Those who were refused together do not come back together.
        return pause_s + self._clock.share() * grown_s

    def _wait(self, pause_s: float, error: Refusal, attempt: int) -> None:
        is_last = attempt == ATTEMPTS - 1
        if is_last or self._clock.now_s() + pause_s > self._end_s:
            if error.meaning == RATE:
                error.next_step = (
                    f"do it again in {pause_s:.0f} seconds, or raise --timeout"
                )
            raise error
        self._clock.wait(pause_s)


def _certificates(authority_file: str) -> ssl.SSLContext:
    """Return whom to believe; `authority_file` is of an instance that only its owner knows."""
    context = ssl.create_default_context()
    if authority_file:
        context.load_verify_locations(authority_file)
    return context


def _has_data(document: Any) -> bool:
    """Return whether GraphQL answers something; beside errors a part of it may be there."""
    fields = document.get("data") or {}
    return any(field is not None for field in fields.values())


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _message(answer: ForgeAnswer) -> str:
    """Return what an answer says to people; of a page of HTML, that it is one."""
    try:
        document = json.loads(answer.text)
    except ValueError:
        is_page = answer.text.lstrip().startswith("<")
        return "a page in place of an answer" if is_page else answer.text
    if not isinstance(document, dict):
        return answer.text
    for key in ("message", "error_description", "error", "errors"):
        value = document.get(key)
        if isinstance(value, str):
            return _with_details(value, document)
        if value:
            return json.dumps(value)
    return answer.text


def _with_details(message: str, document: Mapping[str, Any]) -> str:
    details = document.get("errors") or document.get("error_description")
    return f"{message}: {json.dumps(details)}" if details else message


def _header(answer: ForgeAnswer, names: tuple[str, ...]) -> float | None:
    """Return the number of the first header that is there; None for another text."""
    for name in names:
        text = answer.headers.get(name, "")
        if text.strip().isdecimal():
            return float(text)
    return None


def _asked_pause_s(answer: ForgeAnswer) -> float | None:
    """Return for how long a host asks to be left alone; None where it does not say.

    Times are compared with the host's own clock: that of this machine may be wrong.
    """
    host_date = _date_s(answer.headers.get("Date", ""))
    asked = answer.headers.get("Retry-After", "").strip()
    if asked.isdecimal():
        return float(asked)
    until_s = _date_s(asked)
    if until_s is None and _header(answer, REMAINING_HEADERS) == 0:
        until_s = _header(answer, RESET_HEADERS)
    if until_s is None:
        return None
    if until_s < LONGEST_SPAN_S:
        return until_s
    return None if host_date is None else max(0.0, until_s - host_date) + 1


def _date_s(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None
