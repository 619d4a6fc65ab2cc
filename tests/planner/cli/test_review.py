"""review: planned beside actual, and what the cheapest plan of today would save."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from planner.plan.canonical import parse_plan
from tests.planner.cli.conftest import Command
from tests.planner.plan.actual.conftest import (
    export_row,
    focus_bytes,
    planned_rows,
)


@pytest.fixture
def exported(saved: Path) -> Path:
    """An export that is exactly the saved plan."""
    plan = parse_plan(saved.read_bytes(), str(saved))
    path = saved.parent / "f.csv"
    path.write_bytes(focus_bytes(planned_rows(plan)))
    return saved


def review_of(tonnage: Command, plan: Path, *argv: str):
    return tonnage("review", plan.name, "--from", "f.csv", *argv)


def test_the_plan_itself_is_as_planned(
    tonnage: Command, exported: Path
) -> None:
    code, out, _ = review_of(tonnage, exported, "--fail-above", "0%")
    assert (code, "as planned" in out) == (0, True)
    assert "Stay" in out


def test_what_cost_more_is_told_and_may_fail(
    tonnage: Command, exported: Path
) -> None:
    rows = exported.parent / "f.csv"
    more = export_row(ServiceName="Vertex AI", EffectiveCost="60")
    rows.write_bytes(rows.read_bytes() + focus_bytes([more]).split(b"\n", 1)[1])
    for share, expected_code in (("20%", 5), ("90%", 0)):
        code, out, err = review_of(tonnage, exported, "--fail-above", share)
        assert code == expected_code
        assert "unknown +$60.00" in out
        assert ("error[review]" in err) == (expected_code == 5)


@pytest.mark.parametrize("share", ["20", "-1%", "NaN%", "x"])
def test_a_share_is_in_percent(
    tonnage: Command, exported: Path, share: str
) -> None:
    code, _, err = review_of(tonnage, exported, "--fail-above", share)
    assert (code, "20%" in err) == (2, True)


def test_the_same_machines_are_no_move(
    tonnage: Command, exported: Path
) -> None:
    """However dear they were: the causes say why."""
    plan = parse_plan(exported.read_bytes(), "p")
    dear = planned_rows(plan)
    for row in dear:
        row["EffectiveCost"] = f"{Decimal(row['EffectiveCost']) * 3:f}"
    (exported.parent / "f.csv").write_bytes(focus_bytes(dear))
    code, out, _ = review_of(tonnage, exported)
    assert (code, "price +$" in out) == (0, True)
    assert "Stay: the cheapest plan of today has the same machines" in out


def test_a_cheaper_fleet_is_proposed_as_a_pull_request(
    tonnage: Command, exported: Path
) -> None:
    """The body says what was paid, why, what is cheaper, and how to get there."""
    spec = exported.parent / "chat.yaml"
    # The plan was of another load, so that today fewer machines do.
    text = spec.read_text()
    spec.write_text(text.replace("peak_rps: 1", "peak_rps: 60"))
    plan_argv = ("plan", "chat.yaml", "-o", "chat.plan.json")
    assert tonnage(*plan_argv)[0] == 0
    spec.write_text(text)
    plan = parse_plan(exported.read_bytes(), "p")
    rows = focus_bytes(
        [export_row(EffectiveCost=f"{plan.cost.total / 30:.2f}")]
    )
    (exported.parent / "f.csv").write_bytes(rows)
    code, out, _ = review_of(tonnage, exported, "-f", "markdown")
    assert code == 0
    assert out.startswith("### chat: $")
    assert "### Move: it saves $" in out
    assert "the spec is another than that of the plan" in out
    assert "next: tonnage plan chat.yaml --stack chat" in out
    code, document, _ = review_of(tonnage, exported, "-f", "json")
    reviewed = json.loads(document)
    move = reviewed["move"]
    assert Decimal(move["saves_usd"]) == Decimal(
        reviewed["actual_period_usd"]
    ) - Decimal(move["usd"])
    assert (move["spec_changed"], move["fleet_changes"]) == (True, True)


def test_another_spec_and_none_are_told(
    tonnage: Command, exported: Path
) -> None:
    spec = exported.parent / "chat.yaml"
    spec.write_text(spec.read_text() + "\n# another one\n")
    assert "another than that of the plan" in review_of(tonnage, exported)[1]
    spec.write_text("kind: Nothing\n")
    code, out, _ = review_of(tonnage, exported)
    assert (code, "Not planned again" in out) == (0, True)
    spec.unlink()
    code, out, _ = review_of(tonnage, exported)
    assert (code, "chat.yaml is not here" in out) == (0, True)
