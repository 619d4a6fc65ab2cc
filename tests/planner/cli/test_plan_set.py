"""plan --set: the plan of a spec that says something else, which is not a plan of its file."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import chat
from tests.planner.cli.conftest import Command


def planned(tonnage: Command, *words: str) -> dict:
    code, out, _ = tonnage("plan", "chat.yaml", "-f", "json", *words)
    assert code == 0
    return json.loads(out)


def test_it_is_the_plan_of_the_spec_that_would_be_written(
    tonnage: Command, here: Path
) -> None:
    text = chat()
    path = here / "chat.yaml"
    path.write_text(text)
    said = planned(
        tonnage, "--set", "traffic.peak_rps=30", "--set", "sla.ttft_p95=1s"
    )
    path.write_text(
        text.replace("peak_rps: 2", "peak_rps: 30").replace(
            "p95: 2s", "p95: 1s"
        )
    )
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
    (here / "chat.yaml").write_text(chat())
    tonnage("plan", "chat.yaml", "-o", "as-it-is.plan.json")
    code, _, _ = tonnage(
        "plan",
        "chat.yaml",
        "--set",
        "traffic.peak_rps=30",
        "-o",
        "more.plan.json",
    )
    assert code == 0
    code, out, _ = tonnage("diff", "as-it-is.plan.json", "more.plan.json")
    assert code == 0
    assert "traffic.peak_rps" in out
    code, _, err = tonnage("apply", "more.plan.json", "--simulate", "--yes")
    assert code == 11
    assert "chat.yaml has changed" in err
