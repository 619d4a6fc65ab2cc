"""Requests to code hosts: patient with those that are busy, and silent about the token.

Proxies are those of the environment; certificates are judged by the system's, or by those that
SSL_CERT_FILE names: companies put theirs there, and not into a package.
"""

from __future__ import annotations

import json
import random
import ssl
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import urljoin, urlsplit

from requests import RequestException, Session
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from planner.version import VERSION
from providers.forge.fault import BUSY, OTHER, RATE, UnsureOutcome, refusal
from providers.forge.fault import ForgeRefusal as Refusal
from providers.live.rest import connection_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from requests import PreparedRequest, Response

    from providers.forge.host import ForgeHost
    from providers.forge.setting import ForgeLogin

TIMEOUT_S: Final = 30.0
# A page of a hundred comments of the largest size of all hosts is not reached by any of them.
MOST_ANSWER_BYTES: Final = 64 * 2**20
CHUNK_BYTES: Final = 2**16
HEADERS: Final = {
    "Accept": "application/json",
    "User-Agent": f"tonnage/{VERSION}",
    # A host closes what has waited; a POST on that would be one that may have arrived.
    "Connection": "close",
}
SHOWN_CHARACTERS: Final = 300
# Attempts at a request that the host is too busy for; pauses grow from one second on.
ATTEMPTS: Final = 6
FIRST_PAUSE_S: Final = 1.0
REDIRECTS: Final = 3
FIRST_REDIRECT: Final = 300
FIRST_ERROR: Final = 400
FIRST_FAILURE: Final = 500
NOT_AUTHORITATIVE: Final = 203
UNSENT: Final = (NewConnectionError, ConnectTimeoutError)
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
    headers: Mapping[str, str]
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


class LoginHeader(AuthBase):
    """Signs requests in; without it, a password of ~/.netrc would take the place of the token."""

    def __init__(self, header: str) -> None:
        self._header = header

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """Return the request with the login."""
        request.headers["Authorization"] = self._header
        return request


class SystemAuthorities(HTTPAdapter):
    """Believes whom the system believes, in place of a package."""

    def __init__(self, authority_file: str) -> None:
        self._context = ssl.create_default_context()
        if authority_file:
            # Of an instance that only its owner knows.
            self._context.load_verify_locations(authority_file)
        super().__init__()

    def init_poolmanager(self, *sizes: Any, **settings: Any) -> None:
        """Let connections judge by the system's authorities."""
        super().init_poolmanager(*sizes, ssl_context=self._context, **settings)

    def proxy_manager_for(self, proxy: str, **settings: Any) -> Any:
        """Let connections through a proxy judge by them, too."""
        return super().proxy_manager_for(
            proxy, ssl_context=self._context, **settings
        )

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:  # noqa: ARG002
        """Ask for a certificate, and add no authorities of a package."""
        conn.cert_reqs = "CERT_REQUIRED"


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
        self._session = Session()
        self._session.auth = LoginHeader(login.header)
        self._session.headers.update(HEADERS)
        if api.startswith("https:"):
            self._session.mount("https://", SystemAuthorities(authority_file))

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
            return self._read(asked, min(TIMEOUT_S, left_s))
        except RequestException as error:
            raise self._broken(asked, error) from error
        except ValueError:
            # It has the header with the token in it, and so is no part of what is raised.
            told = "the token has characters that no header may have"
        raise Refusal(OTHER, 0, told)

    def _read(self, asked: ForgeRequest, timeout_s: float) -> ForgeAnswer:
        with self._session.request(
            asked.method,
            asked.url,
            json=asked.document,
            timeout=timeout_s,
            # A token follows none to another host.
            allow_redirects=False,
            stream=True,
        ) as answer:
            text = _body(answer).decode("utf-8", "replace")
            return ForgeAnswer(answer.status_code, answer.headers, text)

    def _broken(
        self, asked: ForgeRequest, error: RequestException
    ) -> Refusal | UnsureOutcome:
        """Return what a connection that broke means. The URL is not told: only its host."""
        told = self.masked(connection_text(asked.url, error))
        causes = list(_causes(error))
        if any(isinstance(x, ssl.SSLCertVerificationError) for x in causes):
            next_step = (
                "name the file with the authority of the host: SSL_CERT_FILE"
            )
            return Refusal(OTHER, 0, told, next_step)
        # Then nothing was sent, so it may be sent again.
        is_unsent = any(isinstance(x, UNSENT) for x in causes)
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


def _body(answer: Response) -> bytes:
    """Return the bytes of an answer. Raises RequestException where it breaks off or never ends."""
    body = bytearray()
    for chunk in answer.iter_content(CHUNK_BYTES):
        body += chunk
        if len(body) > MOST_ANSWER_BYTES:
            told = f"the answer has more than {MOST_ANSWER_BYTES // 2**20} MiB"
            raise RequestException(told)
    return bytes(body)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and those that it came from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


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
