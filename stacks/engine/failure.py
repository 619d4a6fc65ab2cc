"""From what a cloud answered to the error that a user sees, with its exit code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from planner.errors import (
    CapacityError,
    CredentialError,
    Problem,
    ResourceError,
)
from stacks.site import table

if TYPE_CHECKING:
    from planner.errors import TonnageError

NEXT: Final = {
    "capacity": "plan again with other regions or machine types",
    "quota": "ask the cloud for quota, or plan with other regions or purchase options",
    "credentials": "log in to the cloud again, then apply the same plan",
    "throttle": "wait a minute, then apply the same plan",
    "resource": "correct what the cloud names, then apply the same plan",
}
WORD: Final = re.compile(r"[A-Za-z_]+")


def classify(message: str) -> str:
    """Return capacity, quota, credentials, throttle or resource, by the code in a message."""
    known = table("errors.csv", "code", "class")
    return next(
        (known[w] for w in WORD.findall(message) if w in known), "resource"
    )


def error(failed: list[tuple[str, str]]) -> TonnageError:
    """Return the error of a run whose steps (name, message) failed.

    It is about capacity or credentials only when every failure is.
    """
    classes = [classify(message) for _, message in failed]
    problems = [
        Problem(
            code=found,
            message=f"{name} failed: {message}",
            cause="what was done is saved; the next apply goes on from there",
            next_step=NEXT[found],
        )
        for (name, message), found in zip(failed, classes, strict=True)
    ]
    if all(c in ("capacity", "quota") for c in classes):
        return CapacityError(*problems)
    if all(c == "credentials" for c in classes):
        return CredentialError(*problems)
    return ResourceError(*problems)
