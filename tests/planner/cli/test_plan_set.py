"""plan --set: the plan of a spec that says something else, which is not a plan of its file."""

from __future__ import annotations

import json
from pathlib import Path

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
