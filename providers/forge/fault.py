"""What code hosts refuse, by rows, and what that means for whoever posts."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.errors import (
    CredentialError,
    MissingError,
    PolicyError,
    Problem,
    ResourceError,
    TimedOutError,
    TonnageError,
)
from planner.facts import table
from providers.forge.host import forge_names, pattern_cell

if TYPE_CHECKING:
    from collections.abc import Mapping

LOGIN: Final = "login"
PERMISSION: Final = "permission"
READ_ONLY: Final = "read-only"
MISSING: Final = "missing"
RATE: Final = "rate"
TOO_LONG: Final = "too-long"
CLOSED: Final = "closed"
CONFLICT: Final = "conflict"
MOVED: Final = "moved"
# What no row knows.
OTHER: Final = "other"
BUSY: Final = "busy"
ANY_FORGE: Final = "any"
ERRORS: Final[Mapping[str, type[TonnageError]]] = {
    LOGIN: CredentialError,
    PERMISSION: CredentialError,
    READ_ONLY: CredentialError,
    MISSING: MissingError,
    MOVED: MissingError,
    CLOSED: PolicyError,
    RATE: TimedOutError,
}
MESSAGES: Final = {
    LOGIN: "{where}: the token is refused",
    PERMISSION: "{where}: the token may not comment",
    READ_ONLY: "{where}: the token may only read",
    MISSING: "there is no {where}, or the token may not see it",
    MOVED: "{where} has moved",
    CLOSED: "{where} takes no comments",
    RATE: "{where}: asked too often, and it asks to wait beyond --timeout",
    TOO_LONG: "{where}: the comment is too long, even when most of it is left out",
}
AGAIN: Final = "do it again in some minutes"


class ForgeRefusal(Exception):  # noqa: N818 - it may be expected
    """An answer that is none: what it means, and what the service says."""

    def __init__(
        self, meaning: str, status: int, told_text: str, next_step: str = ""
    ) -> None:
        super().__init__(f"{status}: {told_text}")
        self.meaning = meaning
        self.status = status
        self.told_text = told_text
        self.next_step = next_step
        # Seconds that the service asks to wait; None where it does not say.
        self.wait_s: float | None = None

    def error(self, where: str) -> TonnageError:
        """Return it as the error that a user sees."""
        message = MESSAGES.get(self.meaning, "{where} cannot be commented on")
        kind = ERRORS.get(self.meaning, ResourceError)
        return kind(
            Problem(
                code="comment",
                message=message.format(where=where),
                cause=str(self) if self.status else self.told_text,
                next_step=self.next_step or AGAIN,
            )
        )


class UnsureOutcome(Exception):  # noqa: N818 - it is expected
    """Nobody knows whether what was sent arrived: the connection broke."""


class RefusalRow(Struct, frozen=True, kw_only=True):
    """What an answer means: by its status, and by words in it."""

    forge: str
    status: int
    pattern: re.Pattern[str]
    meaning: str
    next_step: str


@cache
def refusal_rows() -> tuple[RefusalRow, ...]:
    """Return all rows, in the order in which they are tried."""
    columns: table.Columns = {
        "forge": table.one_of(*forge_names(), ANY_FORGE),
        "status": table.integer_between(200, 599),
        "pattern": lambda cell: re.compile(
            pattern_cell(cell).pattern, re.IGNORECASE
        ),
        "meaning": table.one_of(*ERRORS, TOO_LONG, CONFLICT),
        "next_step": table.any_text,
        **table.SOURCE_COLUMNS,
    }
    return tuple(
        RefusalRow(
            forge=row["forge"],
            status=row["status"],
            pattern=row["pattern"],
            meaning=row["meaning"],
            next_step=row["next_step"],
        )
        for row in table.load_rows("providers", "forge_refusals.csv", columns)
    )


def refusal(forge: str, status: int, text: str, shown: str) -> ForgeRefusal:
    """Return what an answer means. `shown` is what may be seen of its text."""
    for row in refusal_rows():
        if (
            row.forge in (forge, ANY_FORGE)
            and row.status == status
            and row.pattern.search(text)
        ):
            return ForgeRefusal(row.meaning, status, shown, row.next_step)
    return ForgeRefusal(OTHER, status, shown)
