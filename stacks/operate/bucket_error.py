"""What buckets of clouds refuse, as the errors of tonnage."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from obstore import exceptions

from planner.errors import (
    CredentialError,
    MissingError,
    Place,
    Problem,
    ResourceError,
    TonnageError,
    UsageError,
)
from stacks.spec.table import lookup_table

if TYPE_CHECKING:
    from collections.abc import Iterator

# How clouds and their clients say that they do not know the user.
REFUSALS: Final = (
    PermissionError,
    exceptions.PermissionDeniedError,
    exceptions.UnauthenticatedError,
)


@contextmanager
def bucket_errors(provider: str, name: str) -> Iterator[None]:
    """Turn what a cloud refuses, or a file that cannot be read, into the errors of tonnage."""
    try:
        yield
    except (ModuleNotFoundError, exceptions.BaseError, OSError) as error:
        raise _translated(error, provider, name) from error


def _translated(error: Exception, provider: str, name: str) -> TonnageError:
    # What the system says of a file of the user has its name; obstore gives none.
    if isinstance(error, OSError) and error.filename is not None:
        return UsageError(
            Problem(
                code="file",
                message=error.strerror or "cannot be read",
                place=Place(str(error.filename)),
                next_step="check the file, then do it again",
            )
        )
    if isinstance(error, ModuleNotFoundError):
        next_step = f"install them: pip install 'tonnage[{provider}]'"
        return UsageError(_problem("package", error, name, next_step))
    if isinstance(error, FileNotFoundError):
        return MissingError(
            _problem("bucket", error, name, "see all stacks: tonnage list")
        )
    rights = lookup_table("bucket_rights.csv", "cloud", "step")
    if isinstance(error, exceptions.PermissionDeniedError) and (
        provider in rights
    ):
        # Whoever owns an account may not read its blobs without a role.
        next_step = rights[provider].format(name=name)
        return CredentialError(_problem("permission", error, name, next_step))
    if isinstance(error, REFUSALS):
        next_step = "sign in to the account of the bucket, then do it again"
        return CredentialError(_problem("credentials", error, name, next_step))
    next_step = "do it again: what has arrived is not sent again"
    return ResourceError(_problem("bucket", error, name, next_step))


def _problem(code: str, error: Exception, name: str, next_step: str) -> Problem:
    # The rest of a text is for those who look for faults in the library.
    cause = str(error).partition("\n\nDebug source")[0].strip()
    return Problem(
        code=code,
        message=f"the bucket {name} cannot be used",
        cause=cause or type(error).__name__,
        next_step=next_step,
    )
