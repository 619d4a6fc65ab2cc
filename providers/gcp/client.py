"""Google Cloud as the owner of a stack sees it: with the default credentials of applications."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import google.auth
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import AuthorizedSession

from providers.live.rest import with_retries

if TYPE_CHECKING:
    from requests import Session

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"


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
    session = AuthorizedSession(credentials)  # type: ignore[no-untyped-call]
    with_retries(session)
    return Account(session, project)
