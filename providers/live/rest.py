"""Requests to the REST services of clouds that have no client among our packages."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from requests import RequestException
from requests.adapters import HTTPAdapter
from requests.exceptions import ChunkedEncodingError
from urllib3.util import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from requests import Response, Session
    from urllib3 import BaseHTTPResponse

TIMEOUT_S: Final = 60
# A service may ask for a pause of hours; nobody waits for that.
LONGEST_PAUSE_S: Final = 30


class PatientRetry(Retry):
    """Waits as long as a service asks for, up to LONGEST_PAUSE_S."""

    def get_retry_after(self, response: BaseHTTPResponse) -> float | None:
        """Return the pause in seconds; None where the service asks for none."""
        pause_s = super().get_retry_after(response)
        return None if pause_s is None else min(pause_s, LONGEST_PAUSE_S)


# What a service says when it is busy. What is sent asks or sets, so it may be sent again.
BUSY: Final = (429, 500, 502, 503, 504)
RETRIED_SCHEME: Final = "https://"
RETRIES: Final = PatientRetry(
    5,
    backoff_factor=1,
    # Those who were refused together do not come back together.
    backoff_jitter=1,
    status_forcelist=BUSY,
    allowed_methods=None,
    raise_on_status=False,
)
REFUSED: Final = (401, 403)
# Google Cloud says with the status of a refusal too that it is asked too often, or for too much.
BUSY_REASONS: Final = (
    "rateLimitExceeded",
    "userRateLimitExceeded",
    "RATE_LIMIT_EXCEEDED",
    "quotaExceeded",
    "QUOTA_EXCEEDED",
)
UNKNOWN: Final = 404
FIRST_ERROR: Final = 400
WHOLE: Final = 200
# A connection that ends in the middle of an answer is not among what an adapter tries again.
BODY_ATTEMPTS: Final = 2
REASON_CHARACTERS: Final = 500


def with_retries(session: Session) -> None:
    """Let a session try busy services again, up to five times within half a minute."""
    session.mount(RETRIED_SCHEME, HTTPAdapter(max_retries=RETRIES))


def send(
    session: Session,
    method: str,
    url: str,
    document: Mapping[str, Any] | None = None,
    *,
    parse_float: Callable[[str], Any] = float,
) -> dict[str, Any]:
    """Send a request, with a document as JSON, and return the document of the answer.

    `parse_float` reads numbers that have a point. Raises the errors of `providers.live.access`.
    """
    try:
        answer = _whole_answer(session, method, url, document)
    except RequestException as error:
        raise OSError(connection_text(url, error)) from error
    if answer.status_code >= FIRST_ERROR:
        message = f"{answer.status_code}: {_told_text(answer)}"
        # One who asks too often is no stranger.
        is_busy = any(reason in answer.text for reason in BUSY_REASONS)
        if answer.status_code in REFUSED and not is_busy:
            raise PermissionError(message)
        if answer.status_code == UNKNOWN:
            raise FileNotFoundError(message)
        raise OSError(message)
    # What was only taken in may have an answer without text.
    if not answer.text and answer.status_code != WHOLE:
        return {}
    answer_document = answer.json(parse_float=parse_float)
    if not isinstance(answer_document, dict):
        raise OSError(f"the answer is no JSON object: {_told_text(answer)}")
    return answer_document


def _whole_answer(
    session: Session,
    method: str,
    url: str,
    document: Mapping[str, Any] | None,
) -> Response:
    """Send a request, and again when its answer breaks off."""
    for _ in range(BODY_ATTEMPTS - 1):
        with suppress(ChunkedEncodingError):
            return session.request(
                method, url, json=document, timeout=TIMEOUT_S
            )
    return session.request(method, url, json=document, timeout=TIMEOUT_S)


def connection_text(url: str, error: RequestException) -> str:
    """Return what happened to a connection. The reason within is short; around it is the URL."""
    inner = error.args[0] if error.args else error
    return f"{urlsplit(url).netloc}: {getattr(inner, 'reason', inner)}"


def _told_text(answer: Response) -> str:
    """Return the start of what a service says, without the token if it repeats that."""
    login = str(answer.request.headers.get("authorization", ""))
    token = login.rpartition(" ")[2]
    text = answer.text.replace(token, "***") if token else answer.text
    return text[:REASON_CHARACTERS]


def list_pages(
    session: Session,
    url: str,
    *,
    rows: str = "value",
    link: str = "nextLink",
    parse_float: Callable[[str], Any] = float,
) -> list[dict[str, Any]]:
    """Return a list, page by page; a link that comes again ends it.

    `rows` and `link` are the fields of a page with its part of the list and with the next page.
    """
    listed: list[dict[str, Any]] = []
    seen: set[str] = set()
    while url and url not in seen:
        seen.add(url)
        page = send(session, "GET", url, parse_float=parse_float)
        # One that lacks its part is no empty list.
        listed += page[rows] or ()
        url = page.get(link) or ""
    return listed
