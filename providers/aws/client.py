"""AWS as the owner of a stack sees it: with the credentials that the tools of AWS use."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from collections.abc import Iterator

REFUSALS: Final = (
    "AccessDenied",
    "AccessDeniedException",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidClientTokenId",
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
    try:
        yield open_session(region).client(name, config=RETRIES)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in REFUSALS:
            raise PermissionError(str(error)) from error
        if "NotFound" in code:
            raise FileNotFoundError(str(error)) from error
        raise OSError(str(error)) from error
    except BotoCoreError as error:
        raise OSError(str(error)) from error
