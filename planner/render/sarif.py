"""Findings as SARIF 2.1.0, which code hosts show beside the lines that they are about."""

from __future__ import annotations

import hashlib
import json
import string
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from planner.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.errors import Place
    from planner.plan.part import Properties

SarifLevel: TypeAlias = Literal["error", "warning", "note"]
SCHEMA_URL: Final = "https://json.schemastore.org/sarif-2.1.0.json"
URI_LETTERS: Final = frozenset(string.ascii_letters + string.digits + "/._~-")
HASH_DIGITS: Final = 16
# Of one run, more of them are refused by GitHub.
MOST_RESULTS: Final = 5_000


class SarifFinding(Struct, frozen=True, kw_only=True):
    """One result: what is wrong, of which rule, and where.

    title       what the rule is for, the same in each of its findings
    help        what to do about it
    key         what makes it the same finding when lines move, beside its rule and its file
    is_accepted whether somebody accepts it, and `acceptance` says who and why
    """

    rule: str
    title: str
    level: SarifLevel
    message: str
    place: Place | None = None
    help: str = ""
    key: str = ""
    is_accepted: bool = False
    acceptance: str = ""


def sarif_text(findings: Sequence[SarifFinding]) -> str:
    """Return a SARIF log of one run, as JSON. Equal findings give equal bytes.

    A result keeps its identity, by which a host knows it again, when lines move: it follows from
    the rule, the file and the key, and from how many there are of them. What a host would refuse
    to read is left out, the last first.
    """
    findings = findings[:MOST_RESULTS]
    rules = {finding.rule: finding for finding in findings}
    rule_ids = sorted(rules)
    counts: dict[str, int] = {}
    results = []
    for finding in findings:
        subject = _subject(finding)
        counts[subject] = counts.get(subject, 0) + 1
        results.append(
            _result(
                finding,
                rule_ids.index(finding.rule),
                _identity(subject, counts[subject]),
            )
        )
    log = {
        "$schema": SCHEMA_URL,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "tonnage",
                        "semanticVersion": VERSION,
                        "rules": [_rule(rules[rule]) for rule in rule_ids],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": results,
            }
        ],
    }
    return json.dumps(log, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _rule(finding: SarifFinding) -> Properties:
    rule: Properties = {
        "id": finding.rule,
        "shortDescription": {"text": finding.title},
        "defaultConfiguration": {"level": finding.level},
    }
    if finding.help:
        rule["help"] = {"text": finding.help}
    return rule


def _result(
    finding: SarifFinding, rule_index: int, identity: str
) -> Properties:
    result: Properties = {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "level": finding.level,
        "message": {"text": finding.message},
        "partialFingerprints": {"primaryLocationLineHash": identity},
    }
    if finding.place is not None:
        result["locations"] = [{"physicalLocation": _location(finding.place)}]
    if finding.is_accepted:
        result["suppressions"] = [
            {"kind": "external", "justification": finding.acceptance}
        ]
    return result


def _location(place: Place) -> Properties:
    location: Properties = {"artifactLocation": {"uri": file_uri(place.path)}}
    if place.line:
        location["region"] = {
            "startLine": place.line,
            "startColumn": place.column,
        }
    return location


def file_uri(path: str) -> str:
    """Return a path as a URI: one of the file system where it is absolute, else a relative one."""
    quoted = "".join(
        letter
        if letter in URI_LETTERS
        else "".join(f"%{byte:02X}" for byte in letter.encode())
        for letter in path.removeprefix("./")
    )
    return f"file://{quoted}" if path.startswith("/") else quoted


def _subject(finding: SarifFinding) -> str:
    """Return what a finding is about, whatever its line is."""
    path = finding.place.path if finding.place else ""
    return "\n".join(filter(None, (finding.rule, path, finding.key)))


def _identity(subject: str, count: int) -> str:
    digest = hashlib.sha256(f"{subject}\n{count}".encode()).hexdigest()
    return f"{digest[:HASH_DIGITS]}:1"
