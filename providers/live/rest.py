"""Requests to the REST services of clouds that have no client among our packages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from requests import RequestException
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from requests import Session

TIMEOUT_S: Final = 60
# What a service says when it is busy. What is sent asks or sets, so it may be sent again.
BUSY: Final = (429, 500, 502, 503, 504)
RETRIES: Final = Retry(
    5,
    backoff_factor=1,
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
) -> dict[str, Any]:
    """Send a request, with a document as JSON, and return the document of the answer.

    Raises the errors of `providers.live.access`.
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
    answer_document: dict[str, Any] = answer.json() if answer.text else {}
    return answer_document
