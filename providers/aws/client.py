"""AWS as the owner of a stack sees it: with the credentials that the tools of AWS use."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

if TYPE_CHECKING:
    from collections.abc import Iterator

REFUSALS: Final = (
    "AccessDenied",
    "AccessDeniedException",
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "SignatureDoesNotMatch",
    "UnauthorizedOperation",
    "UnrecognizedClientException",
)
# Services throttle those that ask often.
RETRIES: Final = Config(retries={"mode": "adaptive", "max_attempts": 8})


def open_session(region: str) -> Session:
    """Return a session of who is signed in. Raises PermissionError when nobody is."""
    try:
        session = Session(region_name=region)
        credentials = session.get_credentials()
    except BotoCoreError as error:
        raise PermissionError(str(error)) from error
    if credentials is None:
        raise PermissionError("no credentials of AWS are configured")
    return session


@contextmanager
def service(name: str, region: str) -> Iterator[Any]:
    """Open the client of a service. What it refuses is raised as in `providers.live.access`."""
    session = open_session(region)
    try:
        yield session.client(name, config=RETRIES)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        reason = _told_text(error, session)
        if code in REFUSALS:
            raise PermissionError(reason) from error
        if "NotFound" in code:
            raise FileNotFoundError(reason) from error
        raise OSError(reason) from error
    except (BotoCoreError, ResponseParserError) as error:
        raise OSError(_told_text(error, session)) from error


def _told_text(error: Exception, session: Session) -> str:
    """Return what an error says, without the secrets that a service may repeat in it."""
    keys = session.get_credentials().get_frozen_credentials()
    text = str(error)
    for secret in filter(None, (keys.secret_key, keys.token)):
        text = text.replace(secret, "***")
    return text
