"""Google Cloud as the owner of a stack sees it: with the default credentials of applications."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

import google.auth
from google.auth.exceptions import GoogleAuthError, RefreshError
from google.auth.transport.requests import AuthorizedSession
from msgspec import ValidationError, convert

from providers.live.rest import send, with_retries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from requests import Session

FoundT = TypeVar("FoundT")

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"


class LoginSession(AuthorizedSession):
    """Gets a new token when one has expired, with the errors of `providers.live.access`."""

    def request(self, *args: Any, **settings: Any) -> Any:
        """Send a request. Raises PermissionError where the login gives no token any more."""
        # The package does not say its types.
        ask: Any = super().request
        try:
            return ask(*args, **settings)
        except RefreshError as error:
            kind = OSError if error.retryable else PermissionError
            raise kind(_told_refusal(error)) from error
        except GoogleAuthError as error:
            raise OSError(str(error)) from error


def _told_refusal(error: RefreshError) -> str:
    """Return the first thing that is said: then the whole answer follows, whatever is in it."""
    return str(error.args[0]) if error.args else "no token is given"


class Account(NamedTuple):
    """Who is signed in, and the project that is chosen."""

    session: Session
    project: str


def open_account() -> Account:
    """Return who is signed in. Raises PermissionError when nobody is, or without a project."""
    try:
        credentials, project = google.auth.default(scopes=[SCOPE])
    except GoogleAuthError as error:
        raise PermissionError(str(error)) from error
    if not project:
        raise PermissionError(
            "no project is chosen: gcloud config set project PROJECT"
        )
    session = LoginSession(credentials)  # type: ignore[no-untyped-call]
    with_retries(session)
    return Account(session, project)


def pages(session: Session, url: str) -> Iterator[dict[str, Any]]:
    """Yield the pages of a list, whose URL has a query; a token that comes again ends them."""
    token, seen = "", set()
    while token not in seen:
        seen.add(token)
        page = send(
            session,
            "GET",
            f"{url}&pageToken={quote(token, safe='')}" if token else url,
        )
        yield page
        token = page.get("nextPageToken", "")


def zonal_things(
    session: Session, url: str, kind: str, region: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what the zones of a region have of an aggregated list, each with its zone.

    Raises OSError for a list without zones: those that have nothing are in it too.
    """
    listed = [
        scope
        for page in pages(session, url)
        for scope in page.get("items", {}).items()
    ]
    if not listed:
        raise OSError("the list has no zones")
    for place, scoped in listed:
        zone = place.removeprefix("zones/")
        if zone.rpartition("-")[0] == region:
            for thing in scoped.get(kind, ()):
                yield zone, thing


def understood(answer: dict[str, Any], kind: type[FoundT]) -> FoundT:
    """Return an answer as a value; fields that are new are passed over.

    Raises OSError for one that has another form. Numbers of 64 bits come as text.
    """
    try:
        return convert(answer, kind, strict=False)
    except ValidationError as error:
        raise OSError(f"the answer is not understood: {error}") from error
