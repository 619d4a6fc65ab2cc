"""What policies say of plans: a page for people, and findings for code hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.errors import Place
from planner.render.page import LINE_WIDTH, Paragraph
from planner.render.sarif import SarifFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.errors import Problem
    from planner.plan.policy.rule import PolicyWaiver
    from planner.plan.policy.verdict import Judgment, Verdict
    from planner.plan.types import Notice
    from planner.render.page import Page, Tone
    from planner.render.sarif import SarifLevel

# One rule passes, two rules pass.
PLURALS: Final[dict[Judgment, str]] = {
    "passes": "pass",
    "warns": "warn",
    "denies": "deny",
}
TONES: Final[dict[Judgment, Tone]] = {
    "passes": "good",
    "warns": "warn",
    "denies": "bad",
    "waived": "dim",
    "not judged": "dim",
}
JUDGMENT_WIDTH: Final = max(map(len, TONES))
INDENT: Final = "  "


def verdicts_page(spec_path: str, verdicts: Sequence[Verdict]) -> Page:
    """Return what every rule says of the plan of a spec, and why it does not pass."""
    if not verdicts:
        return (Paragraph(f"{spec_path}: no policy"),)
    return (
        Paragraph(
            f"{spec_path}: {len(verdicts)} rules, {_counts(verdicts)}", "strong"
        ),
        *(line for verdict in verdicts for line in _verdict_lines(verdict)),
    )


def verdicts_line(verdicts: Sequence[Verdict]) -> str:
    """Say how many rules of which policies pass, and how many do not."""
    paths = ", ".join(dict.fromkeys(verdict.policy for verdict in verdicts))
    return f"policy {paths}: {_counts(verdicts)}"


def _counts(verdicts: Sequence[Verdict]) -> str:
    counts = {
        judgment: sum(verdict.judgment == judgment for verdict in verdicts)
        for judgment in TONES
    }
    return ", ".join(
        f"{count} {judgment if count == 1 else PLURALS.get(judgment, judgment)}"
        for judgment, count in counts.items()
        if count
    )


def _verdict_lines(verdict: Verdict) -> Iterator[Paragraph]:
    rule = verdict.rule
    # The message of a rule says what breaks it, which is not so where it passes.
    subject = (
        rule.id
        if verdict.judgment == "passes"
        else f"{rule.id}: {rule.message}"
    )
    yield Paragraph(
        f"{INDENT}{verdict.judgment:<{JUDGMENT_WIDTH}}  {subject}",
        TONES[verdict.judgment],
        LINE_WIDTH,
    )
    margin = INDENT + " " * JUDGMENT_WIDTH + INDENT
    if verdict.cause:
        yield Paragraph(margin + verdict.cause, "dim", LINE_WIDTH)
    if verdict.judgment == "waived" and verdict.waiver is not None:
        yield Paragraph(margin + waiver_text(verdict.waiver), "dim", LINE_WIDTH)
    elif verdict.judgment in ("warns", "denies"):
        yield Paragraph(margin + verdict.problem.next_step, "dim", LINE_WIDTH)


def reason_text(verdict: Verdict) -> str:
    """Say which rule does not pass where, and why or by whom it is waived."""
    reason = (
        waiver_text(verdict.waiver)
        if verdict.judgment == "waived" and verdict.waiver
        else verdict.cause
    )
    text = f"{verdict.place}: {verdict.rule.id}: {verdict.rule.message}"
    return f"{text} ({reason})" if reason else text


def waiver_text(waiver: PolicyWaiver) -> str:
    """Say who answers for a waiver, how long and why."""
    return f"waived by {waiver.owner} until {waiver.until}: {waiver.reason}"


def verdict_findings(verdicts: Sequence[Verdict]) -> list[SarifFinding]:
    """Return what does not pass as findings; what is waived is there, and suppressed."""
    levels: dict[Judgment, SarifLevel] = {
        "denies": "error",
        "warns": "warning",
        "waived": "note",
    }
    return [
        SarifFinding(
            rule=verdict.rule.id,
            title=verdict.rule.message,
            level=levels[verdict.judgment],
            message=f"{verdict.rule.message}: {verdict.cause}",
            place=_line_place(verdict.place),
            help=verdict.problem.next_step,
            is_accepted=verdict.judgment == "waived",
            acceptance=waiver_text(verdict.waiver) if verdict.waiver else "",
        )
        for verdict in verdicts
        if verdict.judgment in levels
    ]


def _line_place(place: Place) -> Place:
    """Return a place that has a line: of a whole file its first, as hosts show no others."""
    return place if place.line else Place(place.path, 1, 1)


def problem_finding(problem: Problem) -> SarifFinding:
    """Return a problem that refuses a spec as a finding."""
    cause = f": {problem.cause}" if problem.cause else ""
    return SarifFinding(
        rule=problem.code,
        title=f"what tonnage refuses: {problem.code}",
        level="error",
        message=f"{problem.message}{cause}. Next: {problem.next_step}",
        place=problem.place,
    )


def notice_finding(notice: Notice, spec_path: str) -> SarifFinding:
    """Return what a plan warns of as a finding that stops nothing."""
    return SarifFinding(
        rule=notice.code,
        title=f"what tonnage warns of: {notice.code}",
        level="note",
        message=notice.message,
        place=Place(
            notice.path or spec_path, notice.line or 0, notice.column or 0
        ),
    )
