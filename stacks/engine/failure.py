"""From what a cloud answered to the error that a user sees, with its exit code."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Final

from planner.errors import (
    CapacityError,
    CredentialError,
    Problem,
    ResourceError,
)
from stacks.spec.table import lookup_table

if TYPE_CHECKING:
    from planner.errors import TonnageError

NEXT_STEPS: Final = {
    "capacity": "plan again with other regions or machine types",
    "quota": "ask the cloud for quota, or plan with other regions or purchase options",
    "credentials": "log in to the cloud again, then apply the same plan",
    "throttle": "wait a minute, then apply the same plan",
    "resource": "correct what the cloud names, then apply the same plan",
}
# A call that a cloud refuses for a moment is made this often, with a growing pause.
MAX_ATTEMPTS: Final = 5
FIRST_PAUSE_S: Final = 2.0
CODE_PATTERN: Final = re.compile(r"[A-Za-z_]+")


def classify_error(message: str) -> str:
    """Return capacity, quota, credentials, throttle or resource, by the code in a message."""
    class_by_code = lookup_table("errors.csv", "code", "class")
    return next(
        (
            class_by_code[code_word]
            for code_word in CODE_PATTERN.findall(message)
            if code_word in class_by_code
        ),
        "resource",
    )


def is_transient(message: str) -> bool:
    """Whether the same call may succeed a moment later."""
    return classify_error(message) == "throttle"


def retry_delay_s(attempt: int, seed: str) -> float:
    """Return the pause after an attempt, seconds.

    pause = 2^attempt * jitter, jitter between 0.5 and 1.5. The same seed gives the same pause;
    those of different steps differ, so that they do not all come back at once.
    """
    jitter = 0.5 + random.Random(f"{seed}/{attempt}").random()  # noqa: S311 - spreads load
    return FIRST_PAUSE_S * 2.0 ** (attempt - 1) * jitter


def combined_error(failures: list[tuple[str, str]]) -> TonnageError:
    """Return the error of a run whose steps (name, message) failed.

    It is about capacity or credentials only when every failure is.
    """
    failure_classes = [classify_error(message) for _, message in failures]
    problems = [
        Problem(
            code=failure_class,
            message=f"{step_name} failed: {message}",
            cause="what was done is saved; the next apply goes on from there",
            next_step=NEXT_STEPS[failure_class],
        )
        for (step_name, message), failure_class in zip(
            failures, failure_classes, strict=True
        )
    ]
    if all(
        error_class in ("capacity", "quota") for error_class in failure_classes
    ):
        return CapacityError(*problems)
    if all(error_class == "credentials" for error_class in failure_classes):
        return CredentialError(*problems)
    return ResourceError(*problems)
