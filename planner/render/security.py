"""The page of what is not safe of a plan, and the line of it in the plan itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.errors import Place
from planner.plan.security import SEVERITIES
from planner.render.page import LINE_WIDTH, Paragraph
from planner.render.sarif import SarifFinding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.facts.rule import Severity
    from planner.plan.security import Finding
    from planner.render.page import Page, Tone
    from planner.render.sarif import SarifLevel

SARIF_LEVELS: Final[dict[Severity, SarifLevel]] = {
    "refuse": "error",
    "high": "error",
    "medium": "warning",
    "low": "note",
}


def security_line(findings: Sequence[Finding], today: str) -> str:
    """Say how many findings there are that nobody accepts, and where they are told.

    What a key of the spec accepts is said with the key: nobody wrote a waiver of it.
    """
    counts = _severity_counts(
        [finding for finding in findings if not finding.is_accepted(today)]
    )
    by_key: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.waiver is not None and finding.waiver.key:
            by_key.setdefault(finding.waiver.key, []).append(finding)
    counts += [
        f"{' and '.join(_severity_counts(accepted))} accepted by {key}"
        for key, accepted in by_key.items()
    ]
    if not counts:
        return "security: no finding"
    return f"security: {', '.join(counts)} (tonnage check --security)"


def _severity_counts(findings: Sequence[Finding]) -> list[str]:
    """Say how many findings there are of each weight, the gravest first."""
    return [
        f"{count} {severity}"
        for severity in SEVERITIES
        if (
            count := sum(
                finding.rule.severity == severity for finding in findings
            )
        )
    ]


def security_page(
    spec_path: str, findings: Sequence[Finding], today: str
) -> Page:
    """Return what is not safe, why, what helps, and who accepts it until when."""
    if not findings:
        return (Paragraph(f"{spec_path}: no finding of security"),)
    blocks: list[Paragraph] = [
        Paragraph(
            f"{spec_path}: {len(findings)} findings of security", "strong"
        )
    ]
    for finding in findings:
        rule = finding.rule
        tone: Tone = "bad" if finding.fails(today) else "dim"
        blocks += [
            Paragraph(
                f"  {rule.severity:<6}  {rule.id}: {rule.reason}",
                tone,
                LINE_WIDTH,
            ),
            Paragraph(
                f"          {', '.join(finding.resources)}", "dim", LINE_WIDTH
            ),
            Paragraph(f"          {_help(finding, today)}", "dim", LINE_WIDTH),
        ]
    return tuple(blocks)


def security_sarif(
    spec_path: str, findings: Sequence[Finding], today: str
) -> list[SarifFinding]:
    """Return the findings for a code host; what somebody accepts is there, and suppressed."""
    return [
        SarifFinding(
            rule=finding.rule.id,
            title=finding.rule.reason,
            level=SARIF_LEVELS[finding.rule.severity],
            message=f"{finding.rule.reason}: {', '.join(finding.resources)}",
            place=Place(spec_path),
            help=finding.rule.remedy,
            is_accepted=finding.is_accepted(today),
            acceptance=_help(finding, today),
        )
        for finding in findings
    ]


def _help(finding: Finding, today: str) -> str:
    waiver = finding.waiver
    if waiver is None:
        return f"{finding.rule.remedy} ({finding.rule.source})"
    if finding.is_accepted(today):
        return waiver.told
    return f"was accepted until {waiver.until}; {finding.rule.remedy}"
