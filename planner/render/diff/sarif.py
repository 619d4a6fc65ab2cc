"""A difference as SARIF 2.1.0: what is wrong, at the line of the spec that it is about.

A cost that changes is no defect, so it is left to the other formats.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from planner.render.diff.finding import RULES, diff_findings

if TYPE_CHECKING:
    from planner.plan.diff_document import DiffDocument
    from planner.plan.part import Properties
    from planner.render.diff.finding import DiffFinding, RuleId

SARIF_VERSION: Final = "2.1.0"
SARIF_SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/"
    "sarif-schema-2.1.0.json"
)
# Of those that are problems, in the order of their index.
PROBLEM_RULES: Final[tuple[RuleId, ...]] = (
    "invalid-spec",
    "infeasible",
    "cost-threshold",
    "unknown-price",
)
# Of one run, more of them are refused by GitHub.
MOST_RESULTS: Final = 5_000
# What stands for itself in the path of an address (RFC 3986, 3.3).
PATH_LETTERS: Final = frozenset(
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/"
)


def sarif_log(document: DiffDocument) -> str:
    """Return the log of one run."""
    problems = [
        finding
        for finding in diff_findings(document)
        if finding.rule in PROBLEM_RULES
    ]
    run = {
        "tool": {
            "driver": {
                "name": "tonnage",
                "semanticVersion": document.tool_version,
                "rules": [_rule(rule) for rule in PROBLEM_RULES],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {
            "SRCROOT": {"description": {"text": "the top of the repository"}}
        },
        "results": [_result(finding) for finding in problems[:MOST_RESULTS]],
    }
    log = {"$schema": SARIF_SCHEMA, "version": SARIF_VERSION, "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def _rule(rule: RuleId) -> Properties:
    return {
        "id": f"tonnage/{rule}",
        "name": rule,
        "shortDescription": {"text": RULES[rule]},
    }


def _result(finding: DiffFinding) -> Properties:
    identity = f"{finding.rule}\0{finding.path}\0{finding.key}"
    result: Properties = {
        "ruleId": f"tonnage/{finding.rule}",
        "ruleIndex": PROBLEM_RULES.index(finding.rule),
        "level": finding.level,
        "message": {"text": finding.message},
        "partialFingerprints": {
            "primaryLocationLineHash": hashlib.sha256(
                identity.encode()
            ).hexdigest()
        },
    }
    if finding.path is not None:
        result["locations"] = [
            {
                "physicalLocation": {
                    "artifactLocation": {
                        "uri": _uri(finding.path),
                        "uriBaseId": "SRCROOT",
                    },
                    "region": {
                        "startLine": finding.line,
                        "startColumn": finding.column,
                    },
                }
            }
        ]
    return result


def _uri(path: str) -> str:
    """Return a relative path as a part of an address."""
    return "".join(
        chr(byte) if byte in PATH_LETTERS else f"%{byte:02X}"
        for byte in path.encode()
    )
