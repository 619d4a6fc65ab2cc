"""What a run tells: events for programs, what remains after a refusal, and its history."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, chat
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


def started(*arguments: str, **pipes: object) -> subprocess.Popen:
    """Start tonnage as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "planner.cli.main", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **pipes,  # type: ignore[call-overload]
    )


@pytest.mark.parametrize("output_format", ["text", "json"])
def test_a_run_that_nobody_hears_ends_as_one_that_was_asked_to(
    tonnage: Command, saved: str, output_format: str
) -> None:
    """As `tonnage apply p.json | head -1` leaves it."""
    reader, writer = os.pipe()
    os.close(reader)
    with started(
        *("apply", saved, "--simulate", "-f", output_format),
        stdout=writer,
        stderr=writer,
    ) as process:
        os.close(writer)
        assert process.wait() == 8
    [run] = json.loads(
        tonnage("history", "chat", "--simulate", "-f", "json")[1]
    )
    assert run["outcome"] == "cancelled"
    assert tonnage("apply", saved, "--simulate")[0] == 0


def test_a_run_that_dies_is_in_the_history(
    tonnage: Command, saved: str, here: Path
) -> None:
    (here / "w.yaml").write_text("delays: [{type: '*', seconds: 1}]")
    with started(
        *("apply", saved, "--simulate", "w.yaml", "-f", "json"),
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    listed = tonnage("history", "chat", "--simulate", "-f", "json")[1]
    [run] = json.loads(listed)
    assert (run["outcome"], run["ended"]) == ("no end", "")


def test_a_damaged_state_hides_no_other_stack(
    tonnage: Command, saved: str, here: Path
) -> None:
    assert tonnage("apply", saved, "--simulate")[0] == 0
    (here / ".tonnage/simulated/stacks/bad.json").write_text("{")
    code, out, err = tonnage("list", "--simulate")
    assert (code, "chat" in out, "bad.json" in err) == (0, True, True)


def test_production_is_not_made_anew_unasked(
    tonnage: Command, saved: str, here: Path
) -> None:
    assert tonnage("apply", saved, "--simulate")[0] == 0
    moved = (here / "chat.yaml").read_text().replace("[aws]", "[gcp]")
    (here / "chat.yaml").write_text(moved)
    assert tonnage("plan", "chat.yaml", "-o", "q.json", "--simulate")[0] == 0
    code, _, err = tonnage("apply", "q.json", "--simulate", "--allow", "outage")
    assert (code, "in production" in err) == (5, True)
    # A pipe that says yes is no person.
    code, _, err = tonnage("destroy", "chat", "--simulate")
    assert (code, "in production" in err) == (5, True)


def test_a_second_apply_goes_on_with_the_fallback_that_stands(
    tonnage: Command, here: Path
) -> None:
    spec = chat(extra="where: {clouds: [gcp]}\nbuy: {fallback: 100%}")
    (here / "chat.yaml").write_text(spec)
    assert tonnage("plan", "chat.yaml", "-o", "p.json")[0] == 0
    plan = json.loads((here / "p.json").read_text())
    machine = plan["solution"]["pools"][0]["instance_type"]
    (here / "w.yaml").write_text(
        f"capacity: [{{instance_type: {machine}, nodes: 0}}]"
    )
    world = ("--simulate", "w.yaml")
    assert tonnage("apply", "p.json", *world)[0] == 0
    code, out, err = tonnage("apply", "p.json", *world)
    assert (code, "nothing was changed" in out) == (0, True), err


DESK = (
    "apiVersion: tonnage/v1\nkind: Workspace\nname: desk\nusers: 1\n"
    "accelerator: {memory: 20GiB}\nwhere: {clouds: [CLOUD]}\n"
)


def zones_of(here: Path, path: str) -> list[str]:
    plan = json.loads((here / path).read_text())
    [pool] = plan["solution"]["pools"]
    zones: list[str] = pool["zones"]
    return zones


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_a_stack_that_stands_in_another_zone_stays_there(
    tonnage: Command, here: Path, cloud: str
) -> None:
    """Also when a zone that comes before has machines again, and when its own has none left."""
    text = DESK.replace("CLOUD", cloud)
    (here / "desk.yaml").write_text(text)
    assert tonnage("plan", "desk.yaml", "-o", "p.json")[0] == 0
    first, second, *_ = zones_of(here, "p.json")
    (here / "w.yaml").write_text(f"capacity: [{{zone: '{first}', nodes: 0}}]")
    assert tonnage("apply", "p.json", "--simulate", "w.yaml")[0] == 0

    (here / "desk.yaml").write_text(f"{text}labels: {{team: blue}}\n")
    planned = ("plan", "desk.yaml", "--simulate", "-o", "q.json")
    code, _, err = tonnage(*planned)
    assert code == 0, err
    assert zones_of(here, "q.json")[0] == second
    changes = json.loads((here / "q.json").read_text())["changes"]
    gone = {change["name"] for change in changes["delete"]}
    gone |= {change["name"] for change in changes["replace_first"]}
    assert not any("home" in name or "subnet" in name for name in gone)
    assert tonnage("apply", "q.json", "--simulate", "--yes")[0] == 0

    (here / "desk.yaml").write_text(text.replace("users: 1", "users: 2"))
    (here / "w.yaml").write_text(f"capacity: [{{zone: '{second}', nodes: 1}}]")
    assert tonnage(*planned)[0] == 0
    code, _, err = tonnage(
        *("apply", "q.json", "--simulate", "w.yaml", "--yes"),
        *("--allow", "outage"),
    )
    assert code == 14, err
    status = json.loads(
        tonnage("status", "desk", "--simulate", "-f", "json")[1]
    )
    assert status["facts"]["pools"][0]["zones"][0] == second


def test_the_status_says_how_the_service_is_called(
    tonnage: Command, here: Path, saved: str
) -> None:
    """In the words that apply said."""
    code, out, _ = tonnage("apply", saved, "--simulate")
    assert code == 0
    [call] = [line for line in out.splitlines() if "curl" in line]
    code, out, _ = tonnage("status", "chat", "--simulate")
    assert code == 0
    [again] = [line for line in out.splitlines() if "curl" in line]
    assert again.split() == call.split()
    assert '"model": "llama-3.1-8b"' in out


def test_a_peer_with_the_addresses_of_a_standing_stack_is_refused(
    tonnage: Command, here: Path, saved: str
) -> None:
    """A new stack takes others; one that stands keeps those that it has."""
    assert tonnage("apply", saved, "--simulate")[0] == 0
    text = (here / "chat.yaml").read_text()
    for peer, code in (("10.42.0.0/16", 2), ("10.43.0.0/16", 0)):
        (here / "chat.yaml").write_text(
            f"{text}\nnetwork: {{peer_cidrs: [{peer}]}}\n"
        )
        found, _, err = tonnage(
            *("plan", "chat.yaml", "--simulate", "-o", "q.json")
        )
        assert (found, "of the stack itself" in err) == (code, code == 2), err


def test_disks_that_keep_their_size_are_told(
    tonnage: Command, here: Path
) -> None:
    text = DESK.replace("CLOUD", "aws")
    (here / "desk.yaml").write_text(f"{text}disk: 100GiB\n")
    applied = ("apply", "desk.yaml", "--simulate", "--yes")
    assert tonnage(*applied)[0] == 0
    assert "keep their size" not in tonnage(*applied)[2]
    (here / "desk.yaml").write_text(f"{text}disk: 300GiB\n")
    code, _, err = tonnage(*applied)
    assert code == 0, err
    assert "keep their size, 107 GB; the bill counts 322 GB" in err
