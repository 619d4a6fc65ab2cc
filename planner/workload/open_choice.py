"""The engine, or the guesses, that cost least, where a spec leaves that open. Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias, TypeVar, get_args

from msgspec import Struct
from msgspec.structs import replace

from planner.errors import Problem, SpecError
from planner.perf.serving.drafting import published_methods
from planner.solve.cause import because
from planner.solve.solution import PlanWarning
from planner.spec.conflict import conflict_problems
from planner.spec.model import Batch, EngineName, GuessMethod, Inference

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.solve.cause import Cause
    from planner.solve.solution import Counterfactual, Solution
    from planner.spec.model import Spec

FoundT = TypeVar("FoundT")
# Says of a name that was not taken what is found with it, or nothing where the plan says that.
_Teller: TypeAlias = "Callable[[str, Solution | Problem], Cause | None]"


class OpenChoice(Struct, frozen=True, kw_only=True):
    """What a spec leaves to the plan.

    spec   the spec that leaves it open
    specs  by each name that it may say instead, the ones first that are taken at equal cost
    code   of the lines that say what the others cost
    tell   says it of one of them
    alone  what to say where nothing else is known
    """

    spec: Inference | Batch
    specs: dict[str, Inference | Batch]
    code: str
    tell: _Teller
    alone: Cause | None = None


def open_choice(spec: Spec) -> OpenChoice | None:
    """Return what a spec leaves to the plan; nothing where it says all.

    Where engine and guesses are both open, it is the engine: each of them has its guesses.
    """
    if not isinstance(spec, Inference | Batch):
        return None
    if spec.serving.engine == "any":
        engines: tuple[EngineName, ...] = get_args(EngineName)
        return OpenChoice(
            spec=spec,
            specs={
                engine: replace(
                    spec, serving=replace(spec.serving, engine=engine)
                )
                for engine in engines
            },
            code="engine-choice",
            tell=_tell_engine,
        )
    if spec.serving.speculation != "auto":
        return None
    methods = guess_methods(spec)
    return OpenChoice(
        spec=spec,
        specs={method: with_guesses(spec, method) for method in methods},
        code="guess-choice",
        tell=_tell_guesses,
        alone=because("unknown-guesses") if len(methods) == 1 else None,
    )


def guess_methods(spec: Inference | Batch) -> tuple[GuessMethod, ...]:
    """Return off, and the methods whose acceptance is published for the weights of a spec."""
    published = published_methods(spec.model.name or "")
    methods: tuple[GuessMethod, ...] = get_args(GuessMethod)
    return tuple(
        method for method in methods if method == "off" or method in published
    )


def with_guesses(
    spec: Inference | Batch, method: GuessMethod
) -> Inference | Batch:
    """Return a spec with guesses by a method as they are published, or without any: off."""
    serving = replace(spec.serving, speculation=method, acceptance=None)
    return replace(spec, serving=serving)


def cheapest_answer(
    choice: OpenChoice,
    solve: Callable[[Spec], Solution],
) -> Solution:
    """Return the cheapest answer of a choice; it says what each other one costs.

    Of answers that cost the same, and where none has machines, the first is taken.
    Raises SpecError when all are refused.
    """
    found = _with_each(choice, solve)
    answers = _answers(found)
    taken = min(answers, key=lambda name: _usd_of(answers[name]))
    best = answers[taken]
    if not best.pools:
        return best
    told = (
        choice.alone,
        *(
            choice.tell(name, one)
            for name, one in found.items()
            if name != taken
        ),
    )
    others = (
        PlanWarning(
            code=choice.code, reason=reason, place=choice.spec.serving.place
        )
        for reason in told
        if reason is not None
    )
    return replace(best, warnings=(*best.warnings, *others))


def cheapest_counterfactual(
    choice: OpenChoice,
    solve: Callable[[Spec], Counterfactual],
) -> Counterfactual:
    """Return the cheapest of what other circumstances would take, with all that is open.

    Raises SpecError when all are refused.
    """
    answers = _answers(_with_each(choice, solve))
    return min(
        answers.values(),
        key=lambda one: Decimal("Infinity") if one.usd is None else one.usd,
    )


def _with_each(
    choice: OpenChoice, solve: Callable[[Spec], FoundT]
) -> dict[str, FoundT | Problem]:
    """Return what is found with each name, or what refuses it."""
    return {
        name: _solved_or_refused(spec, solve)
        for name, spec in choice.specs.items()
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


def _answers(found: dict[str, FoundT | Problem]) -> dict[str, FoundT]:
    """Return what was found, without what was refused. Raises SpecError when that was all."""
    answers = {
        name: one for name, one in found.items() if not isinstance(one, Problem)
    }
    if not answers:
        raise SpecError(
            *(one for one in found.values() if isinstance(one, Problem))
        )
    return answers


def _usd_of(solution: Solution) -> Decimal:
    """Return what an answer costs; one without machines costs more than all others."""
    return Decimal("Infinity") if solution.bill is None else solution.bill.total


def _tell_engine(engine: str, found: Solution | Problem) -> Cause:
    """Say what it would be to serve with another engine."""
    if isinstance(found, Problem):
        return because("refused-engine", engine=engine, told=found.message)
    if found.bill is None:
        return because("no-engine", engine=engine)
    return because("other-engine", engine=engine, other_usd=found.bill.total)


def _tell_guesses(method: str, found: Solution | Problem) -> Cause | None:
    """Say what it would be to guess in another way."""
    if method == "off":
        # A plan with guesses says what it costs without them, also where a spec names a method.
        return None
    if isinstance(found, Problem):
        return because("refused-guesses", method=method, told=found.message)
    if found.bill is None:
        return because("no-guesses", method=method)
    return because("other-guesses", method=method, other_usd=found.bill.total)
