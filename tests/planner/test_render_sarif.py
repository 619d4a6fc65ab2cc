"""SARIF for code hosts: read by another implementation, and the same finding when lines move."""

from __future__ import annotations

import json
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from planner.errors import Place
from planner.render.sarif import SarifFinding, SarifLevel, file_uri, sarif_text

PATHS = st.text("ab/.#?%&= ü漢+\\:", min_size=1, max_size=20).filter(
    lambda text: not text.startswith(("/", "./"))
)


@st.composite
def some_findings(draw: st.DrawFn) -> list[SarifFinding]:
    places = st.none() | st.tuples(
        PATHS, st.integers(1, 900), st.integers(1, 80)
    )
    levels: list[SarifLevel] = ["error", "warning", "note"]
    return [
        SarifFinding(
            rule=draw(st.sampled_from(["budget", "owner", "region"])),
            title="a rule",
            level=draw(st.sampled_from(levels)),
            message=draw(st.text(min_size=1, max_size=20)),
            place=Place(*place) if place else None,
            help=draw(st.sampled_from(["", "do it"])),
            is_accepted=draw(st.booleans()),
            acceptance="by ann",
        )
        for place in draw(st.lists(places, max_size=6))
    ]


FINDINGS = some_findings()


def results_of(findings: list[SarifFinding]) -> list[dict]:
    found: list[dict] = json.loads(sarif_text(findings))["runs"][0]["results"]
    return found


@settings(deadline=None)
@given(FINDINGS)
def test_another_implementation_reads_what_is_written(
    findings: list[SarifFinding],
) -> None:
    sarif_pydantic = pytest.importorskip("sarif_pydantic")
    log = sarif_pydantic.Sarif.model_validate_json(sarif_text(findings))
    (run,) = log.runs
    rules = run.tool.driver.rules or []
    results = run.results or []
    assert log.version == "2.1.0"
    assert len(results) == len(findings)
    for result, finding in zip(results, findings, strict=True):
        assert result.rule_id == finding.rule
        assert result.message.text == finding.message
        assert result.level == finding.level
        assert rules[result.rule_index].id == finding.rule
        if finding.place is None:
            assert not result.locations
            continue
        place = result.locations[0].physical_location
        assert unquote(place.artifact_location.uri) == finding.place.path
        assert place.region.start_line == finding.place.line
        assert place.region.start_column == finding.place.column


@given(FINDINGS, st.integers(1, 50))
def test_a_finding_is_the_same_when_lines_move_and_amounts_change(
    findings: list[SarifFinding], moved: int
) -> None:
    later = [
        replace(
            finding,
            message=finding.message + " now",
            place=finding.place
            and Place(finding.place.path, finding.place.line + moved, 1),
        )
        for finding in findings
    ]
    before, after = (
        [r["partialFingerprints"] for r in results_of(which)]
        for which in (findings, later)
    )
    assert before == after
    assert len({str(identity) for identity in before}) == len(findings)


@given(PATHS)
def test_a_path_is_a_uri_and_back(path: str) -> None:
    for written in (path, f"./{path}"):
        uri = file_uri(written)
        assert urlsplit(f"x:/{uri}").path == f"/{uri}"
        assert unquote(uri) == path
    assert unquote(urlsplit(file_uri(f"/{path}")).path) == f"/{path}"
    assert file_uri(f"/{path}").startswith("file:///")


def test_what_somebody_accepts_is_suppressed_and_named() -> None:
    finding = SarifFinding(
        rule="a",
        title="b",
        level="note",
        message="c",
        is_accepted=True,
        acceptance="waived by ann until 2026-12-31: a test",
    )
    (result,) = results_of([finding])
    assert result["suppressions"] == [
        {"kind": "external", "justification": finding.acceptance}
    ]


def test_nothing_found_is_a_log_too() -> None:
    assert results_of([]) == []
