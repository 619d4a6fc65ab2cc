"""Reports of code hosts: read back as the hosts read them."""

from __future__ import annotations

import json
import re
from urllib.parse import unquote

import pytest

from planner.render.diff.finding import RULES, diff_findings
from planner.render.diff.github import MOST_OF_A_KIND, workflow_commands
from planner.render.diff.gitlab import code_quality_report
from planner.render.diff.sarif import PROBLEM_RULES, sarif_log
from tests.planner.render.differences import (
    EXCEEDED,
    HOSTILE,
    amount,
    document,
    spec,
)

COMMAND = re.compile(r"::(error|warning|notice) ([^:]*)::(.*)")
ODD_PATH = "team x/rág,a:b%.yaml"
TOLD = document(
    spec(ODD_PATH, amount(1), amount(9), value=HOSTILE),
    spec("unknown.yaml", amount(5), amount(5, is_complete=False)),
    spec("broken.yaml", amount(1), None),
    spec("was-broken.yaml", None, amount(1)),
    spec("same.yaml", amount(4), amount(4)),
    thresholds=(EXCEEDED,),
)
SEVERITIES = {"info", "minor", "major", "critical", "blocker"}


def unescaped(text: str) -> str:
    """What GitHub's runner makes of a value (actions/runner, ActionCommand)."""
    for code, letter in (
        ("%0D", "\r"),
        ("%0A", "\n"),
        ("%3A", ":"),
        ("%2C", ","),
        ("%25", "%"),
    ):
        text = text.replace(code, letter)
    return text


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    found = []
    for line in text.splitlines():
        match = COMMAND.fullmatch(line)
        assert match is not None, line
        pairs = [pair.split("=", 1) for pair in match[2].split(",")]
        properties = {name: unescaped(value) for name, value in pairs}
        found.append((match[1], properties, unescaped(match[3])))
    return found


def test_findings_are_at_the_line_that_they_are_about() -> None:
    found = {(f.rule, f.level, f.path, f.line) for f in diff_findings(TOLD)}
    assert found == {
        ("cost-threshold", "error", ODD_PATH, 12),
        ("cost-change", "note", ODD_PATH, 12),
        ("unknown-price", "warning", "unknown.yaml", 12),
        ("cost-change", "note", "unknown.yaml", 12),
        ("invalid-spec", "error", "broken.yaml", 7),
        ("invalid-spec", "warning", "was-broken.yaml", 1),
    }
    levels = [f.level for f in diff_findings(TOLD)]
    assert levels == sorted(levels, key=["error", "warning", "note"].index)


def test_annotations_are_what_was_meant_whatever_anybody_wrote() -> None:
    found = commands(workflow_commands(TOLD))
    assert [level for level, _, _ in found[:2]] == ["notice", "error"]
    places = {
        (properties["file"], properties["line"])
        for _, properties, _ in found
        if "file" in properties
    }
    assert (ODD_PATH, "12") in places
    assert ("broken.yaml", "7") in places
    assert all(properties["title"] for _, properties, _ in found)


def test_github_gets_at_most_ten_annotations_of_a_kind() -> None:
    told = document(
        *(spec(f"{n}.yaml", amount(n), amount(2 * n)) for n in range(1, 40)),
        *(spec(f"x{n}.yaml", amount(n), None) for n in range(25)),
    )
    found = commands(workflow_commands(told))
    for kind in ("error", "notice"):
        of_kind = [text for level, _, text in found if level == kind]
        assert len(of_kind) == MOST_OF_A_KIND
        assert sum("more: see tonnage diff" in text for text in of_kind) == 1
    hidden = [
        int(text.split()[0]) for _, _, text in found if "more: see" in text
    ]
    # All but the total and what counts the others stands for a finding.
    assert len(found) - 1 - len(hidden) + sum(hidden) == 39 + 25


def test_gitlab_gets_what_its_report_takes() -> None:
    """The fields that its documentation names, and a fingerprint for each."""
    entries = json.loads(code_quality_report(TOLD))
    for entry in entries:
        assert set(entry) == {
            "description",
            "check_name",
            "fingerprint",
            "severity",
            "location",
        }
        assert entry["severity"] in SEVERITIES
        assert set(entry["location"]) == {"path", "lines"}
        assert not entry["location"]["path"].startswith(("./", "/"))
        assert entry["location"]["lines"]["begin"] >= 1
    prints = [entry["fingerprint"] for entry in entries]
    assert len(set(prints)) == len(prints) == len(diff_findings(TOLD))


def test_sarif_has_the_structure_of_the_standard() -> None:
    sarif = pytest.importorskip("sarif_pydantic")
    for told in (TOLD, document()):
        log = json.loads(sarif_log(told))
        sarif.Sarif.model_validate(log)
        [run] = log["runs"]
        rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
        for result in run["results"]:
            assert rules[result["ruleIndex"]] == result["ruleId"]
    assert json.loads(sarif_log(document()))["runs"][0]["results"] == []


def test_sarif_has_what_is_wrong_at_its_file_and_nothing_else() -> None:
    [run] = json.loads(sarif_log(TOLD))["runs"]
    places = {
        (
            result["ruleId"],
            unquote(
                result["locations"][0]["physicalLocation"]["artifactLocation"][
                    "uri"
                ]
            ),
        )
        for result in run["results"]
    }
    assert places == {
        ("cost-threshold", ODD_PATH),
        ("unknown-price", "unknown.yaml"),
        ("invalid-spec", "broken.yaml"),
        ("invalid-spec", "was-broken.yaml"),
    }
    assert set(PROBLEM_RULES) == set(RULES) - {"cost-change"}
