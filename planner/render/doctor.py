"""The page of what stands between a plan and its apply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.render.page import LINE_WIDTH, Page, PageTable, Paragraph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.plan.symptom import Symptom

MARKS: Final = {"ok": "ok", "fix": "FIX", "unknown": "?", "unneeded": "-"}


def doctor_page(symptoms: Sequence[Symptom]) -> Page:
    """Return a line for each thing that was looked at, and how many there are to fix."""
    rows = []
    for symptom in symptoms:
        rows.append((MARKS[symptom.state], symptom.subject, symptom.text))
        if symptom.remedy and symptom.state != "unneeded":
            rows.append(("", "", f"-> {symptom.remedy}"))
    faults = sum(symptom.state == "fix" for symptom in symptoms)
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
