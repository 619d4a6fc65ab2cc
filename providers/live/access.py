"""What clouds answer to the owner of a stack, as the errors of tonnage.

Modules of a cloud raise PermissionError when they are refused, FileNotFoundError for what the
cloud does not know, and OSError for everything else.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from planner.errors import (
    CredentialError,
    MissingError,
    Problem,
    ResourceError,
    TonnageError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def cloud_errors(provider: str, message: str) -> Iterator[None]:
    """Turn what a cloud refuses into an error that says what could not be done."""
    try:
        yield
    except ModuleNotFoundError as error:
        next_step = f"install them: pip install 'tonnage[{provider}]'"
        raise _error(UsageError, message, error, next_step) from error
    except PermissionError as error:
        next_step = (
            "sign in to the account of the stack, with the right to do it"
        )
        raise _error(CredentialError, message, error, next_step) from error
    except FileNotFoundError as error:
        next_step = "complete the stack: tonnage apply"
        raise _error(MissingError, message, error, next_step) from error
    except OSError as error:
        next_step = "do it again in some minutes"
        raise _error(ResourceError, message, error, next_step) from error


def _error(
    kind: type[TonnageError], message: str, error: Exception, next_step: str
) -> TonnageError:
    return kind(
        Problem(
            code="cloud",
            message=message,
            cause=str(error),
            next_step=next_step,
        )
    )
