"""The process that judges rules: it reads a question as JSON, and writes an answer a line.

The parent ends it when it takes too long, so that no expression holds up a pipeline: in the engine
a loop that makes lists takes the square of their length.
"""

from __future__ import annotations

import sys
from typing import Final

import msgspec

NO_ENGINE_EXIT_CODE: Final = 3


def answer_questions() -> int:
    """Answer the question of standard input, and return the exit code of the process."""
    try:
        from planner.plan.policy.cel_engine import answers_to
    except ImportError:
        return NO_ENGINE_EXIT_CODE
    from planner.plan.policy.verdict import RuleQuestion

    question = msgspec.json.decode(sys.stdin.buffer.read(), type=RuleQuestion)
    for answer in answers_to(question):
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(answer_questions())
