"""From what a cloud answered to the error that a user sees, with its exit code."""

from __future__ import annotations

import random
import re
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from planner.errors import (
    CapacityError,
    CredentialError,
    Problem,
    ResourceError,
)
from planner.facts import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from planner.errors import TonnageError

NEXT_STEPS: Final = {
    "capacity": "plan again with other regions or machine types",
    "quota": "ask the cloud for quota, or plan with other regions or purchase options",
    "permission": "ask for the right that the message names, then apply the same plan",
    "credentials": "log in to the cloud again, then apply the same plan",
    "throttle": "wait a minute, then apply the same plan",
    "transient": "wait a minute, then apply the same plan",
    "conflict": "find out whose it is; rename the stack, or delete what is in the way",
    "api": "switch the service on that the message names, then apply the same plan",
    "policy": "ask those who set the policy that the message names",
    "in_use": "delete what uses it, then apply the same plan",
    "gone": "somebody else has deleted it: apply the same plan",
    "invalid": "this is a fault of tonnage: report it with the message",
    "resource": "correct what the cloud names, then apply the same plan",
}
# Answers after which the same call may succeed a moment later.
TRANSIENT_CLASSES: Final = frozenset({"throttle", "transient"})
# A call that a cloud refuses for a moment is made this often, with a growing pause.
MAX_ATTEMPTS: Final = 5
FIRST_PAUSE_S: Final = 2.0
LONGEST_PAUSE_S: Final = 120.0
CODE_PATTERN: Final = re.compile(r"[A-Za-z_.]+")


class RefusedCall(NamedTuple):
    """What was, or would be, refused.

    step     what was tried
    message  what the cloud answers
    kind     of the refusal, of those in NEXT_STEPS; empty where the message tells
    remedy   what helps; empty where that follows from the kind
    """

    step: str
    message: str
    kind: str = ""
    remedy: str = ""


class ErrorRule(Struct, frozen=True):
    """How an answer is recognized: by its code, by a text in it, or by both.

    retry_s  seconds after which the cloud wants to be asked again; 0 where it does not say
    """

    code: str
    text: str
    error_class: str
    retry_s: float

    def applies(self, codes: set[str], lower_message: str) -> bool:
        """Whether an answer is meant."""
        has_code = not self.code or self.code in codes
        return has_code and self.text in lower_message


@cache
def _error_rules() -> tuple[ErrorRule, ...]:
    """Return the rules in the order in which they are tried: those with a text decide first."""
    columns = {
        "cloud": table.nonempty_text,
        "code": table.any_text,
        "text": table.any_text,
        "class": table.one_of(*NEXT_STEPS),
        "http": table.any_text,
        "retry_s": lambda cell: float(cell or 0),
        **table.SOURCE_COLUMNS,
    }
    rules = [
        ErrorRule(row["code"], row["text"], row["class"], row["retry_s"])
        for row in table.load_rows("stacks", "errors.csv", columns)
    ]
    return tuple(sorted(rules, key=lambda rule: not rule.text))


def classify_error(message: str) -> str:
    """Return what kind of refusal a message is, of those in NEXT_STEPS."""
    rule = _rule_of(message)
    return rule.error_class if rule else "resource"


def _rule_of(message: str) -> ErrorRule | None:
    """Return the first rule that an answer is meant by."""
    codes = {word.strip(".") for word in CODE_PATTERN.findall(message)}
    lower_message = message.lower()
    return next(
        (rule for rule in _error_rules() if rule.applies(codes, lower_message)),
        None,
    )


def is_transient(message: str) -> bool:
    """Whether the same call may succeed a moment later."""
    return classify_error(message) in TRANSIENT_CLASSES


def retry_delay_s(attempt: int, messages: Iterable[str], seed: str) -> float:
    """Return the pause after an attempt that was refused with some messages, seconds.

    pause = first pause * 2^(attempt - 1), at most 120 s, * jitter between 0.5 and 1.5

    The first pause is the longest that the clouds ask for. The same seed gives the same pause;
    those of different steps differ, so that they do not all come back at once.
    """
    rules = [_rule_of(message) for message in messages]
    first_s = max(
        [FIRST_PAUSE_S, *(rule.retry_s for rule in rules if rule is not None)]
    )
    jitter = 0.5 + random.Random(f"{seed}/{attempt}").random()  # noqa: S311 - spreads load
    return min(LONGEST_PAUSE_S, first_s * 2.0 ** (attempt - 1)) * jitter


def combined_error(
    refusals: Sequence[RefusedCall],
    verb: str = "failed",
    cause: str = "what was done is saved; the next apply goes on from there",
) -> TonnageError:
    """Return the error of a run of which something was refused, or would be.

    It is about capacity or credentials only when every failure is.
    """
    kinds = [
        refusal.kind or classify_error(refusal.message) for refusal in refusals
    ]
    problems = [
        Problem(
            code=kind,
            message=f"{refusal.step} {verb}: {refusal.message}",
            cause=cause,
            next_step=refusal.remedy or NEXT_STEPS[kind],
        )
        for refusal, kind in zip(refusals, kinds, strict=True)
    ]
    if all(kind in ("capacity", "quota") for kind in kinds):
        return CapacityError(*problems)
    if all(kind in ("credentials", "permission") for kind in kinds):
        return CredentialError(*problems)
    return ResourceError(*problems)
