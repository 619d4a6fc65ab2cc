"""The engine of the Common Expression Language: evaluates rules over documents.

It is native code of another project, so a process of its own runs it (planner/cli).
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import cel

from planner.market.price_age import age_days
from planner.plan.policy.verdict import RuleAnswer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.plan.policy.verdict import RuleQuestion

# ERROR: <input>:1:8: Syntax error: mismatched input 'x'
SYNTAX_ERROR: Final = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
ADVICE: Final = ". Check "
# What an evaluation raises.
FAULTS: Final = (
    KeyError,
    IndexError,
    ArithmeticError,
    TypeError,
    RuntimeError,
    ValueError,
)
TYPES_FAULT: Final = (
    "types do not go together: numbers of documents are doubles (write 2.0, or double(x)), and "
    "null has no keys"
)


def answers_to(question: RuleQuestion) -> Iterator[RuleAnswer]:
    """Yield the answer of every rule over every documents; only faults where one is no CEL."""
    programs = [
        [text for text in rule if text is not None] for rule in question.rules
    ]
    faults = [
        fault
        for position, texts in enumerate(programs)
        for fault in _syntax_faults(position, texts)
    ]
    if faults:
        yield from faults
        return
    compiled = [[cel.compile(text) for text in texts] for texts in programs]
    for number, documents in enumerate(question.documents):
        context = cel.Context(documents, _functions(question.today))
        for position, rule_programs in enumerate(compiled):
            yield _answer(number, position, rule_programs, context)


def _syntax_faults(position: int, texts: Sequence[str]) -> Iterator[RuleAnswer]:
    """Yield the expressions of a rule that are none."""
    for number, text in enumerate(texts):
        try:
            cel.compile(text)
        except ValueError as error:
            found = SYNTAX_ERROR.search(str(error))
            line, column, fault = (
                found.groups() if found else ("0", "0", str(error)[-200:])
            )
            yield RuleAnswer(
                document=-1,
                rule=position,
                expression=number,
                fault=fault.partition(" expecting ")[0],
                line=int(line),
                column=int(column),
            )


def _answer(
    document: int, rule: int, programs: Sequence[Any], context: Any
) -> RuleAnswer:
    """Judge a rule: it is broken where `when` holds, unless `unless` does."""
    is_broken = False
    for number, program in enumerate(programs):
        fault, key = "", ""
        try:
            outcome = program.execute(context)
        except FAULTS as error:
            fault, key = _fault_of(error)
        else:
            if not isinstance(outcome, bool):
                fault = f"it is {outcome!r:.60}, neither true nor false"
        if fault:
            return RuleAnswer(
                document=document,
                rule=rule,
                expression=number,
                fault=fault,
                key=key,
            )
        is_broken = bool(outcome) if number == 0 else not outcome
        if not is_broken:
            break
    return RuleAnswer(document=document, rule=rule, is_broken=is_broken)


def _fault_of(error: Exception) -> tuple[str, str]:
    """Return why an expression has no value, and the key that is missing, if it is that."""
    text = str(error).partition(ADVICE)[0].strip()
    match error:
        case KeyError():
            key = str(error.args[0])
            return f"missing key {key}", key
        case TypeError():
            return TYPES_FAULT, ""
        case _:
            return text, ""


def _functions(today: str) -> dict[str, Any]:
    """Return the functions that rules have beside those of the language."""
    return {
        "age_days": partial(_age, today=today),
        "sum": lambda numbers: float(sum(numbers)),
        "min": lambda numbers: float(min(numbers)),
        "max": lambda numbers: float(max(numbers)),
    }


def _age(date: Any, today: str) -> float:
    """Return how many days old a date is. Raises ValueError for one that is not known."""
    age = age_days(str(date or ""), today)
    if age is None:
        raise ValueError(f"no date: {date}")
    return float(age)
