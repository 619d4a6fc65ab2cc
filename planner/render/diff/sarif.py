"""A difference as SARIF 2.1.0: what is wrong, at the line of the spec that it is about.

A cost that changes is no defect, so it is left to the other formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.errors import Place
from planner.render.diff.finding import RULES, diff_findings
from planner.render.policy import verdict_findings
from planner.render.sarif import SarifFinding, sarif_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.plan.diff_document import DiffDocument
    from planner.plan.policy.verdict import Verdict
    from planner.render.diff.finding import DiffFinding, RuleId

PROBLEM_RULES: Final[frozenset[RuleId]] = frozenset(
    ("invalid-spec", "infeasible", "cost-threshold", "unknown-price")
)


def sarif_log(document: DiffDocument, verdicts: Sequence[Verdict] = ()) -> str:
    """Return the log of one run, with what policies say of the new side."""
    problems = [
        _sarif_finding(finding)
        for finding in diff_findings(document)
        if finding.rule in PROBLEM_RULES
    ]
    return sarif_text([*problems, *verdict_findings(verdicts)])


def _sarif_finding(finding: DiffFinding) -> SarifFinding:
    return SarifFinding(
        rule=finding.rule,
        title=RULES[finding.rule],
        level=finding.level,
        message=finding.message,
        place=None
        if finding.path is None
        else Place(finding.path, finding.line, finding.column),
        key=finding.key,
    )
