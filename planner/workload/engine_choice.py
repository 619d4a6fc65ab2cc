"""The engine that costs least, where a spec leaves that to the plan. Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, TypeVar, get_args

from msgspec.structs import replace

from planner.errors import Problem, SpecError
from planner.solve.cause import because
from planner.solve.solution import PlanWarning
from planner.spec.conflict import conflict_problems
from planner.spec.model import Batch, EngineName, Inference

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.solve.cause import Cause
    from planner.solve.solution import Counterfactual, Solution
    from planner.spec.model import Spec

FoundT = TypeVar("FoundT")


def open_engine(spec: Spec) -> Inference | Batch | None:
    """Return a spec that leaves to the plan what serves its model; nothing for all others."""
    if isinstance(spec, Inference | Batch) and spec.serving.engine == "any":
        return spec
    return None


def cheapest_answer(
    spec: Inference | Batch,
    solve: Callable[[Spec], Solution],
) -> Solution:
    """Return the cheapest answer with any engine; it says what each other one costs.

    Of answers that cost the same, and where none has machines, that of the first engine is taken.
    Raises SpecError when all engines refuse the spec.
    """
    found = _with_each(spec, solve)
    answers = _answers(found)
    engine = min(answers, key=lambda name: _usd_of(answers[name]))
    best = answers[engine]
    if not best.pools:
        return best
    others = (
        PlanWarning(
            code="engine-choice",
            reason=_other_reason(other, one),
            place=spec.serving.place,
        )
        for other, one in found.items()
        if other != engine
    )
    return replace(best, warnings=(*best.warnings, *others))


def cheapest_counterfactual(
    spec: Inference | Batch,
    solve: Callable[[Spec], Counterfactual],
) -> Counterfactual:
    """Return the cheapest of what other circumstances would take with any engine.

    Raises SpecError when all engines refuse the spec.
    """
    answers = _answers(_with_each(spec, solve))
    return min(
        answers.values(),
        key=lambda one: Decimal("Infinity") if one.usd is None else one.usd,
    )


def _with_each(
    spec: Inference | Batch, solve: Callable[[Spec], FoundT]
) -> dict[EngineName, FoundT | Problem]:
    """Return what is found with each engine, or what it refuses."""
    engines: tuple[EngineName, ...] = get_args(EngineName)
    return {
        engine: _solved_or_refused(
            replace(spec, serving=replace(spec.serving, engine=engine)), solve
        )
        for engine in engines
    }


def _solved_or_refused(
    spec: Spec, solve: Callable[[Spec], FoundT]
) -> FoundT | Problem:
    problems = conflict_problems(spec)
    if problems:
        return problems[0]
    try:
        return solve(spec)
    except SpecError as refusal:
        return refusal.problems[0]


def _answers(
    found: dict[EngineName, FoundT | Problem],
) -> dict[EngineName, FoundT]:
    """Return what was found, without what was refused. Raises SpecError when that was all."""
    answers = {
        engine: one
        for engine, one in found.items()
        if not isinstance(one, Problem)
    }
    if not answers:
        raise SpecError(
            *(one for one in found.values() if isinstance(one, Problem))
        )
    return answers


def _usd_of(solution: Solution) -> Decimal:
    """Return what an answer costs; one without machines costs more than all others."""
    return Decimal("Infinity") if solution.bill is None else solution.bill.total


def _other_reason(engine: EngineName, found: Solution | Problem) -> Cause:
    """Say what it would be to serve with another engine."""
    if isinstance(found, Problem):
        return because("refused-engine", engine=engine, told=found.message)
    if found.bill is None:
        return because("no-engine", engine=engine)
    return because("other-engine", engine=engine, other_usd=found.bill.total)
