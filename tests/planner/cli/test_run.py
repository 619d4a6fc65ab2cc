"""What a run tells: events for programs, what remains after a refusal, and its history."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import chat
from tests.planner.cli.conftest import Command


@pytest.fixture
def saved(tonnage: Command, here: Path) -> str:
    text = chat(extra="where: {clouds: [aws]}\nlabels: {env: prod}")
    (here / "chat.yaml").write_text(text)
    assert tonnage("plan", "chat.yaml", "-o", "p.json")[0] == 0
    return "p.json"


def events(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


def test_events_are_json_and_nothing_else(tonnage: Command, saved: str) -> None:
    code, out, err = tonnage("apply", saved, "--simulate", "-f", "json")
    assert (code, err) == (0, "")
    told = events(out)
    done = {e["name"] for e in told if e["event"] == "done"}
    assert told[-1]["event"] == "end"
    assert told[-1]["changes"] == len(done)
    assert float(told[-1]["usd_hour"]) > 0
    seconds = [e["seconds"] for e in told[:-1]]
    assert seconds == sorted(seconds)
    code, out, _ = tonnage(
        *("destroy", "chat", "--simulate", "--yes", "-f", "json"),
        *("--allow", "production,delete-data"),
    )
    assert code == 0
    assert {e["name"] for e in events(out) if e["event"] == "done"} == done


def test_a_refusal_says_what_stands_and_what_it_costs(
    tonnage: Command, here: Path, saved: str
) -> None:
    fault = (
        "faults: [{on: create, type: '*Group', code: AccessDenied, times: 9}]"
    )
    (here / "w.yaml").write_text(fault)
    code, out, err = tonnage("apply", saved, "--simulate", "w.yaml")
    assert code in (3, 4)
    assert "resources of chat stand, $" in err
    assert "next: run the same command again, or remove them" in err
    code, out, err = tonnage(
        "apply", saved, "--simulate", "w.yaml", "-f", "json"
    )
    told = events(out)
    assert told[-1]["event"] == "refused"
    assert told[-1]["exit_code"] == code
    codes = [p["code"] for p in told[-1]["problems"]]
    assert codes[-1] == "remains"


def test_every_run_is_in_the_history(
    tonnage: Command, here: Path, saved: str
) -> None:
    assert tonnage("history", "chat", "--simulate")[0] == 6
    (here / "w.yaml").write_text(
        "faults: [{on: create, name: serve-nodes, code: AccessDenied}]"
    )
    assert tonnage("apply", saved, "--simulate", "w.yaml")[0] != 0
    assert tonnage("apply", saved, "--simulate", "w.yaml")[0] == 0
    # Nothing to do is no run.
    assert tonnage("apply", saved, "--simulate", "w.yaml")[0] == 0
    everything = ("--yes", "--allow", "production,delete-data")
    assert tonnage("destroy", "chat", "--simulate", *everything)[0] == 0
    runs = json.loads(tonnage("history", "chat", "--simulate", "-f", "json")[1])
    assert [(r["verb"], r["outcome"]) for r in runs] == [
        ("apply", "permission"),
        ("apply", "done"),
        ("destroy", "done"),
    ]
    assert all(r["by"] and r["began"] <= r["ended"] for r in runs)


def test_what_is_in_production_is_not_destroyed_by_a_yes(
    tonnage: Command, saved: str
) -> None:
    assert tonnage("apply", saved, "--simulate")[0] == 0
    code, _, err = tonnage("destroy", "chat", "--simulate", "--yes")
    assert code == 5
    assert "--allow production" in err
    code, _, err = tonnage(
        "destroy", "chat", "--simulate", "--yes", "--allow", "production"
    )
    assert code == 0
    # It lists what goes.
    assert "serve-nodes" in err
    assert "in production: env: prod" in err


def test_progress_counts(tonnage: Command, saved: str) -> None:
    _, _, err = tonnage("apply", saved, "--simulate")
    counted = [line for line in err.splitlines() if " of " in line]
    assert counted[0].rstrip(")").split("(")[1].startswith("1 of ")
    total = counted[0].split(" of ")[1].split(",")[0]
    assert f"({total} of {total})" in counted[-1]
