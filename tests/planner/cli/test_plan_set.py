"""plan --set: the plan of a spec that says something else, which is not a plan of its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import chat
from tests.planner.cli.conftest import Command

DESK = """
apiVersion: tonnage/v1
kind: Workspace
name: desk
accelerator: {memory: 16GiB}
users: 1
"""


def planned(tonnage: Command, *words: str) -> dict:
    code, out, _ = tonnage("plan", "desk.yaml", "-f", "json", *words)
    assert code == 0
    return json.loads(out)


def test_it_is_the_plan_of_the_spec_that_would_be_written(
    tonnage: Command, here: Path
) -> None:
    path = here / "desk.yaml"
    path.write_text(DESK)
    said = planned(
        tonnage, "--set", "users=3", "--set", "accelerator.memory=40GiB"
    )
    path.write_text(DESK.replace("users: 1", "users: 3").replace("16", "40"))
    written = planned(tonnage)
    assert said["spec"]["sha256"] != written["spec"]["sha256"]
    # Everything but the digest of the file is the same.
    for plan in (said, written):
        plan["spec"].pop("sha256")
        plan.pop("digest")
    assert said == written


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("runtime=kubernetes", "--set runtime:1:1  error[unsupported]"),
        ("model.name=foo", "--set model.name:1:1  error[model]"),
        ("model.context=900k", "--set model.context:1:1  error[traffic]"),
        (
            "traffic.output_tokens.mean=90k",
            "--set traffic.output_tokens.mean:1:1  error[range]",
        ),
    ],
)
def test_what_planning_refuses_is_said_of_the_flag(
    tonnage: Command, here: Path, override: str, told: str
) -> None:
    """No line of the file says it, and its other problems keep theirs."""
    (here / "chat.yaml").write_text(chat())
    code, _, err = tonnage(
        "plan", "chat.yaml", "--set", override, "--set", "name=other"
    )
    assert code in (2, 6)
    assert told in err
    assert "chat.yaml:" not in err


def test_what_planning_refuses_of_the_file_keeps_its_line(
    tonnage: Command, here: Path
) -> None:
    (here / "chat.yaml").write_text(chat(extra="runtime: slurm"))
    code, _, err = tonnage("plan", "chat.yaml", "--set", "name=other")
    assert code == 2
    assert "chat.yaml:" in err
    assert "--set" not in err


def test_such_a_plan_is_compared_and_not_applied(
    tonnage: Command, here: Path
) -> None:
    (here / "desk.yaml").write_text(DESK)
    plan = ("plan", "desk.yaml", "-o")
    assert tonnage(*plan, "one.plan.json")[0] == 0
    assert tonnage(*plan, "three.plan.json", "--set", "users=3")[0] == 0
    code, out, _ = tonnage("diff", "one.plan.json", "three.plan.json")
    assert code == 0
    assert "users" in out
    code, _, err = tonnage("apply", "three.plan.json", "--simulate", "--yes")
    assert code == 11
    assert "desk.yaml has changed" in err
