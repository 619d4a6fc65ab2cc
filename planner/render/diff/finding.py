"""What a difference has to tell at a line of a file: for annotations and reports of code hosts."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from planner.render.clean import clean
from planner.render.diff.wording import (
    change_text,
    relaxation_text,
    side_text,
    verdict_text,
    why_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.plan.diff_document import DiffDocument, SpecDiff
    from planner.plan.threshold import ThresholdVerdict

Level: TypeAlias = Literal["error", "warning", "note"]
RuleId: TypeAlias = Literal[
    "invalid-spec",
    "infeasible",
    "cost-threshold",
    "unknown-price",
    "cost-change",
]
RULES: Final[dict[RuleId, str]] = {
    "invalid-spec": "A spec cannot be read or planned.",
    "infeasible": "It is proved that nothing meets a spec.",
    "cost-threshold": "A change costs more than --fail-if allows.",
    "unknown-price": "A part of the cost is unknown, and never counted as 0.",
    "cost-change": "A change makes a spec cost more or less.",
}


class DiffFinding(Struct, frozen=True, kw_only=True):
    """Something to tell.

    path    from the top of the repository; None: of no file that there is
    line    and `column` count from 1
    key     what makes it the same finding when lines move
    """

    rule: RuleId
    level: Level
    message: str
    path: str | None
    line: int = 1
    column: int = 1
    key: str = ""


def diff_findings(document: DiffDocument) -> tuple[DiffFinding, ...]:
    """Return all that is to tell of a difference, the gravest first."""
    found = [
        *(_threshold(verdict, document) for verdict in _exceeded(document)),
        *(
            finding
            for spec in document.specs
            for finding in _of_spec(spec, document)
        ),
    ]
    levels: tuple[Level, ...] = ("error", "warning", "note")
    return tuple(sorted(found, key=lambda finding: levels.index(finding.level)))


def _exceeded(document: DiffDocument) -> list[ThresholdVerdict]:
    return [verdict for verdict in document.thresholds if verdict.is_exceeded]


def _threshold(
    verdict: ThresholdVerdict, document: DiffDocument
) -> DiffFinding:
    """Return a finding at the spec that grows most."""
    growing = [
        spec
        for spec in document.specs
        if spec.after is not None and spec.after.period == verdict.period
    ]
    worst = max(growing, key=_growth, default=None)
    return DiffFinding(
        rule="cost-threshold",
        level="error",
        message=clean(verdict_text(verdict)),
        path=worst.path if worst is not None else None,
        line=_first_line(worst) if worst is not None else 1,
        key=verdict.threshold,
    )


def _growth(spec: SpecDiff) -> Decimal:
    usd = spec.delta.usd if spec.delta is not None else None
    return usd or Decimal(0)


def _of_spec(spec: SpecDiff, document: DiffDocument) -> Iterator[DiffFinding]:
    yield from _problems(spec, document)
    after = spec.after
    if after is not None and after.status == "infeasible":
        relaxation = relaxation_text(spec)
        yield DiffFinding(
            rule="infeasible",
            level="error",
            message=clean(
                "nothing meets this spec, which is proved"
                + (f"; {relaxation}" if relaxation else "")
            ),
            path=spec.path,
            line=_first_line(spec),
            key=spec.path,
        )
    if after is not None and after.cost and not after.cost.is_complete:
        yield DiffFinding(
            rule="unknown-price",
            level="warning",
            message=f"a price is unknown: it costs {side_text(after)}",
            path=spec.path,
            line=_first_line(spec),
            key=spec.path,
        )
    if _is_other_cost(spec):
        yield _change(spec)


def _is_other_cost(spec: SpecDiff) -> bool:
    """Whether a spec costs more or less, or may."""
    delta = spec.delta
    return delta is not None and (delta.usd != 0 or delta.bound != "exact")


def _problems(spec: SpecDiff, document: DiffDocument) -> Iterator[DiffFinding]:
    before, after = spec.before, spec.after
    for problem in after.problems if after is not None else ():
        yield DiffFinding(
            rule="invalid-spec",
            level="error",
            message=clean(
                f"error[{problem.code}]: {problem.message}; {problem.next_step}"
            ),
            path=problem.path,
            line=max(1, problem.line),
            column=max(1, problem.column),
            key=f"{problem.code} {problem.message}",
        )
    for problem in before.problems if before is not None else ():
        # Its lines are those of the old file.
        yield DiffFinding(
            rule="invalid-spec",
            level="warning",
            message=clean(
                f"in {document.before.name} it was not valid, so nothing is compared: "
                f"line {problem.line}, error[{problem.code}]: {problem.message}"
            ),
            path=spec.path if after is not None else None,
            key=f"before {problem.code} {problem.message}",
        )


def _change(spec: SpecDiff) -> DiffFinding:
    is_dearer = (
        spec.delta is None or spec.delta.usd is None or spec.delta.usd > 0
    )
    texts = [
        f"{change_text(spec.delta)}: {side_text(spec.before)} -> {side_text(spec.after)}",
        why_text(spec),
    ]
    if is_dearer:
        texts.append(relaxation_text(spec))
    return DiffFinding(
        rule="cost-change",
        level="note",
        message=clean("; ".join(text for text in texts if text)),
        # What was removed has no line any more.
        path=spec.path if spec.after is not None else None,
        line=_first_line(spec),
        key=spec.path,
    )


def _first_line(spec: SpecDiff) -> int:
    """Return the first line of the new file that says something else, 1 without one."""
    lines = [change.line for change in spec.keys if change.line is not None]
    return min(lines, default=1)
