"""The errors a user can meet, each with its exit code.

TonnageError
├── UsageError        2   the command line or a file on it is wrong
├── SpecError         2   one or more problems in a spec
├── CredentialError   3   a cloud refused the caller
├── ResourceError     4   a resource failed; the state is saved
├── PolicyError       5   what would be done is not allowed
├── MissingError      6   no such stack, plan, model or blueprint
├── ExpectationError  7   what was to be shown was not: a benchmark that fails
├── CancelledError    8   a signal ended the run; the state is saved
├── TimedOutError     9   what was waited for did not come in the time allowed
├── InfeasibleError  10   proved: nothing meets every constraint
├── StaleError       11   the plan no longer matches the spec, the catalog or the state
├── LockedError      12   somebody else works on the stack
├── CatalogError     13   a price or a catalog row cannot be used
└── CapacityError    14   the cloud has no capacity or no quota

An error carries data; the command line turns it into a sentence and an exit code, in one place.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct


class Place(Struct, frozen=True):
    """A position in a file.

    Line and column count from 1; line 0 is the whole file.
    """

    path: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        """Return path:line:column, as compilers write it."""
        return (
            f"{self.path}:{self.line}:{self.column}" if self.line else self.path
        )


class Problem(Struct, frozen=True, kw_only=True):
    """A single problem, and the step that solves it.

    code       short identifier of the problem
    message    what is wrong
    next_step  what the user should do
    place      position in a file, where one is known
    cause      underlying reason, else empty
    """

    code: str
    message: str
    next_step: str
    place: Place | None = None
    cause: str = ""


class TonnageError(Exception):
    """Base of every error that a user can cause.

    Each class sets its own `exit_code`.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = problems

    def __reduce__(self) -> tuple[type[TonnageError], tuple[Problem, ...]]:
        """Let an error leave the process that it was raised in, with its problems."""
        return type(self), self.problems


class UsageError(TonnageError):
    """The command line, or a file named on it, is wrong."""

    exit_code = 2


class SpecError(TonnageError):
    """A spec has problems; `problems` lists all of them."""

    exit_code = 2


class CredentialError(TonnageError):
    """A cloud refused the caller."""

    exit_code = 3


class ResourceError(TonnageError):
    """A resource could not be created, changed or deleted; the state is saved."""

    exit_code = 4


class PolicyError(TonnageError):
    """What would be done needs a permission that was not given."""

    exit_code = 5


class MissingError(TonnageError):
    """A named stack, plan, model or blueprint does not exist."""

    exit_code = 6


class ExpectationError(TonnageError):
    """What was to be shown was not, such as by a benchmark that fails."""

    exit_code = 7


class CancelledError(TonnageError):
    """A signal ended the run; what it did is saved."""

    exit_code = 8


class TimedOutError(TonnageError):
    """What was waited for did not come in the time that was allowed."""

    exit_code = 9


class InfeasibleError(TonnageError):
    """No offer meets every constraint; the search has proved it."""

    exit_code = 10


class StaleError(TonnageError):
    """The plan was made for another spec, catalog or state."""

    exit_code = 11


class LockedError(TonnageError):
    """Another process has locked the stack."""

    exit_code = 12


class CatalogError(TonnageError):
    """A row of the catalog or of the facts cannot be used."""

    exit_code = 13


class CapacityError(TonnageError):
    """The cloud refused capacity or quota."""

    exit_code = 14
