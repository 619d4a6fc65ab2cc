"""Rules are judged in a process of their own, which is ended when it takes too long."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import msgspec

from planner.cli.policy_worker import NO_ENGINE_EXIT_CODE
from planner.errors import Problem, UsageError
from planner.plan.policy.verdict import RuleAnswer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.plan.policy.verdict import RuleQuestion

# Rules that are written for people take milliseconds.
TIME_LIMIT_S: Final = 20
ENGINE_PACKAGE: Final = "cel"


def require_engine() -> None:
    """Raise UsageError without the package that evaluates rules."""
    if find_spec(ENGINE_PACKAGE) is None:
        raise _no_engine()


def judge_in_process(
    question: RuleQuestion, limit_s: float = TIME_LIMIT_S
) -> Sequence[RuleAnswer]:
    """Return an answer for every rule over every documents, also where there is none in time.

    Raises UsageError without the package that evaluates rules.
    """
    # With -P, no module of the working folder is taken for one of ours.
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "planner.cli.policy_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        fault = f"it took longer than {limit_s:g} s"
        try:
            output, _ = process.communicate(
                msgspec.json.encode(question), limit_s
            )
            fault = "the engine of CEL ended without an answer"
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
    if process.returncode == NO_ENGINE_EXIT_CODE:
        raise _no_engine()
    answers = [
        msgspec.json.decode(line, type=RuleAnswer)
        for line in output.splitlines(keepends=True)
        # The last one may have been cut.
        if line.endswith(b"\n")
    ]
    if any(answer.document < 0 for answer in answers):
        return answers
    return [*answers, *_unanswered(question, len(answers), fault)]


def _unanswered(
    question: RuleQuestion, answered: int, fault: str
) -> Iterator[RuleAnswer]:
    """Yield answers for what the process did not come to; the first of them stopped it."""
    positions = [
        (document, rule)
        for document in range(len(question.documents))
        for rule in range(len(question.rules))
    ]
    for document, rule in positions[answered:]:
        yield RuleAnswer(document=document, rule=rule, fault=fault)
        fault = "a rule before it stopped the engine of CEL"


def _no_engine() -> UsageError:
    return UsageError(
        Problem(
            code="policy",
            message="policies need the Python package common-expression-language",
            cause="without it no rule can be judged, and nothing passes unjudged",
            next_step="install it with: pip install 'tonnage[policy]'",
        )
    )
