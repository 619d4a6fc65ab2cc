"""Requests to the REST services of clouds that have no client among our packages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from requests import RequestException
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from requests import Session

TIMEOUT_S: Final = 60
# What a service says when it is busy. What is sent asks or sets, so it may be sent again.
BUSY: Final = (429, 500, 502, 503, 504)
RETRIES: Final = Retry(
    5,
    backoff_factor=1,
    # Those who were refused together do not come back together.
    backoff_jitter=1,
    status_forcelist=BUSY,
    allowed_methods=None,
    raise_on_status=False,
)
REFUSED: Final = (401, 403)
# Google Cloud says with the status of a refusal too that it is asked too often.
BUSY_REASONS: Final = ("rateLimitExceeded", "RATE_LIMIT_EXCEEDED")
UNKNOWN: Final = 404
FIRST_ERROR: Final = 400


def with_retries(session: Session) -> None:
    """Let a session try busy services again, up to five times within half a minute."""
    session.mount("https://", HTTPAdapter(max_retries=RETRIES))


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
        answer = session.request(method, url, json=document, timeout=TIMEOUT_S)
    except RequestException as error:
        raise OSError(str(error)) from error
    if answer.status_code >= FIRST_ERROR:
        message = f"{answer.status_code}: {answer.text[:500]}"
        # One who asks too often is no stranger.
        is_busy = any(reason in answer.text for reason in BUSY_REASONS)
        if answer.status_code in REFUSED and not is_busy:
            raise PermissionError(message)
        if answer.status_code == UNKNOWN:
            raise FileNotFoundError(message)
        raise OSError(message)
    answer_document: dict[str, Any] = (
        answer.json(parse_float=parse_float) if answer.text else {}
    )
    return answer_document


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
        listed += page.get(rows) or ()
        url = page.get(link) or ""
    return listed
