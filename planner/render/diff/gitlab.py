"""A difference as GitLab's code quality report: a JSON list with a place for each finding."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from planner.render.diff.finding import diff_findings

if TYPE_CHECKING:
    from planner.plan.diff_document import DiffDocument
    from planner.render.diff.finding import DiffFinding, Level

SEVERITIES: Final[dict[Level, str]] = {
    "error": "critical",
    "warning": "minor",
    "note": "info",
}


def code_quality_report(document: DiffDocument) -> str:
    """Return the report; what has no line in a file that there is has no place in it."""
    entries = [
        {
            "description": finding.message,
            "check_name": f"tonnage/{finding.rule}",
            "fingerprint": _fingerprint(finding),
            "severity": SEVERITIES[finding.level],
            "location": {
                "path": finding.path,
                "lines": {"begin": finding.line},
            },
        }
        for finding in diff_findings(document)
        if finding.path is not None
    ]
    return json.dumps(entries, indent=2, ensure_ascii=False) + "\n"


def _fingerprint(finding: DiffFinding) -> str:
    """Return what stays the same when lines move."""
    identity = f"{finding.rule}\0{finding.path}\0{finding.key}"
    return hashlib.sha256(identity.encode()).hexdigest()
