"""The commands of batches, on simulated clouds, where nobody answers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.planner.cli.conftest import Command

BLUEPRINTS = Path(__file__).resolve().parents[3] / "blueprints"
STACK = "classify-backlog"


@pytest.fixture
def requests(tonnage: Command, here: Path) -> Path:
    """A standing batch stack, and a file of 25 requests to it."""
    code, _, err = tonnage(
        "apply", str(BLUEPRINTS / f"{STACK}.yaml"), "--simulate", "--yes"
    )
    assert code == 0, err
    path = here / "night_run.jsonl"
    path.write_text(
        "".join(
            json.dumps(
                {"custom_id": f"{n}", "url": "/v1/completions", "body": {}}
            )
            + "\n"
            for n in range(25)
        )
    )
    return path


def test_a_batch_is_submitted_shown_and_collected(
    tonnage: Command, here: Path, requests: Path
) -> None:
    code, out, err = tonnage("batch", "status", STACK, "--simulate")
    assert (code, out) == (0, f"{STACK} has no batch yet\n"), err
    code, out, err = tonnage(
        "batch", "submit", STACK, str(requests), "--lines", "10", "--simulate"
    )
    assert code == 0, err
    assert out.startswith(f"submitted night-run to {STACK}: 3 files\n")
    assert f"tonnage batch results {STACK} night-run --simulate" in out
    code, _, err = tonnage(
        "batch", "submit", STACK, str(requests), "--simulate"
    )
    assert (code, "night-run was submitted already" in err) == (2, True)
    code, out, _ = tonnage("batch", "status", STACK, "--simulate")
    assert "night-run" in out
    assert "open" in out
    code, out, _ = tonnage("batch", "status", STACK, "--simulate", "-f", "json")
    [job] = json.loads(out)
    assert (job["name"], job["files"], job["answered"]) == ("night-run", 3, 0)

    # What a machine would write.
    [folder] = (here / ".tonnage/simulated/buckets").glob("*/batch/night-run")
    for name in ("00001.jsonl", "00000.jsonl"):
        (folder / "output").mkdir(exist_ok=True)
        (folder / "output" / name).write_text(f'{{"custom_id": "{name}"}}\n')
    code, out, err = tonnage(
        "batch", "results", STACK, "night-run", "-o", "answers", "--simulate"
    )
    assert (code, out) == (5, "answers: 2 answers, 0 errors\n")
    assert "night-run is not done: 2 of 3 files" in err
    assert [
        json.loads(line)["custom_id"]
        for line in (here / "answers/output.jsonl").read_text().splitlines()
    ] == ["00000.jsonl", "00001.jsonl"]

    (folder / "output" / "00002.jsonl").write_text('{"custom_id": "last"}\n')
    # The same folder takes the rest of the same batch.
    code, out, err = tonnage(
        "batch", "results", STACK, "night-run", "-o", "answers", "--simulate"
    )
    assert (code, out) == (0, "answers: 3 answers, 0 errors\n"), err
    # The machines of a batch that runs once have left.
    code, _, err = tonnage(
        "batch", "submit", STACK, str(requests), "--job", "more", "--simulate"
    )
    assert code == 0
    assert f"bring them back: tonnage start {STACK}" in err


def test_answers_go_with_their_stack_and_that_is_said(
    tonnage: Command, here: Path, requests: Path
) -> None:
    tonnage("batch", "submit", STACK, str(requests), "--simulate")
    code, _, err = tonnage("destroy", STACK, "--simulate", "--yes")
    assert (code, "models (bucket)" in err) == (0, True)
    assert list((here / ".tonnage/simulated/buckets").iterdir())
    code, _, err = tonnage(
        "destroy", STACK, "--simulate", "--yes", "--allow", "delete-data"
    )
    assert (code, "deleted with their data" in err) == (0, True)
    # Three lines of requests, and what was written about them.
    assert re.search(r"classify\S*-models-\w+: \S+ \w+ in \d+ objects", err), (
        err
    )
    assert not list((here / ".tonnage/simulated/buckets").iterdir())


def test_what_others_wrote_is_not_written_over(
    tonnage: Command, here: Path, requests: Path
) -> None:
    tonnage("batch", "submit", STACK, str(requests), "--simulate")
    own = here / "night-run" / "output.jsonl"
    own.parent.mkdir()
    own.write_text("mine\n")
    code, _, err = tonnage("batch", "results", STACK, "night-run", "--simulate")
    assert (code, "-o FOLDER" in err) == (2, True)
    assert own.read_text() == "mine\n"


def test_a_name_that_was_begun_takes_only_the_same_requests(
    tonnage: Command, here: Path, requests: Path
) -> None:
    """Machines may have answered files of a batch whose submission was cut off."""
    submit = ("batch", "submit", STACK, str(requests), "--simulate")
    assert tonnage(*submit)[0] == 0
    [folder] = (here / ".tonnage/simulated/buckets").glob("*/batch/night-run")
    (folder / "manifest.json").unlink()
    (folder / "output").mkdir()
    (folder / "output/00000.jsonl").write_text('{"custom_id": "0"}\n')
    code, _, err = tonnage(*submit, "--lines", "10")
    assert (code, "begun with other requests" in err) == (2, True)
    whole = requests.read_text()
    requests.write_text(whole.replace('"1"', '"one"'))
    code, _, err = tonnage(*submit)
    assert (code, "begun with other requests" in err) == (2, True)
    requests.write_text(whole)
    assert tonnage(*submit)[0] == 0


def test_what_is_no_batch_is_refused_with_a_next_step(
    tonnage: Command, here: Path, requests: Path
) -> None:
    code, _, err = tonnage("batch", "results", STACK, "nothing", "--simulate")
    assert (code, "no batch is named nothing" in err) == (6, True)
    (here / "-.jsonl").write_text(requests.read_text())
    code, _, err = tonnage("batch", "submit", STACK, "./-.jsonl", "--simulate")
    assert (code, "--job NAME" in err) == (2, True)
    requests.write_text("{}\n")
    code, _, err = tonnage(
        "batch", "submit", STACK, str(requests), "--simulate"
    )
    assert code == 2
    assert (
        "night_run.jsonl:1:1  error[batch]: the request has no custom_id" in err
    )
    tonnage("apply", str(BLUEPRINTS / "chat-8b.yaml"), "--simulate", "--yes")
    code, _, err = tonnage("batch", "status", "chat-8b", "--simulate")
    assert (code, "its kind is inference" in err) == (2, True)
