"""The page of what stands between a plan and its apply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.render.page import LINE_WIDTH, Page, PageTable, Paragraph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stacks.engine.checkup import Finding

MARKS: Final = {"ok": "ok", "fix": "FIX", "unknown": "?", "unneeded": "-"}


def doctor_page(findings: Sequence[Finding]) -> Page:
    """Return a line for each thing that was looked at, and how many there are to fix."""
    rows = []
    for finding in findings:
        rows.append((MARKS[finding.state], finding.subject, finding.text))
        if finding.remedy and finding.state != "unneeded":
            rows.append(("", "", f"-> {finding.remedy}"))
    faults = sum(finding.state == "fix" for finding in findings)
    return (
        PageTable(("", "", ""), tuple(rows), width=LINE_WIDTH),
        Paragraph(""),
        Paragraph(
            "nothing would stop an apply that was looked at"
            if not faults
            else f"{faults} to fix before an apply",
            "good" if not faults else "bad",
        ),
    )
