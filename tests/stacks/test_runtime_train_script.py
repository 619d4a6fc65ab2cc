"""What a node of a training job does, run with stand-ins for its cloud, its job and its clock."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from planner.perf.reliability.retention import (
    Retention,
    held_checkpoint_s,
    held_checkpoints,
)
from providers.catalog.load import load_catalog
from stacks.cloud import NodeCommands
from stacks.runtime.vm import agent
from stacks.runtime.vm.retention import expired_checkpoints
from stacks.runtime.vm.training import BUSY_FILE, train_script
from stacks.spec.stack import StackSpec, derive_stack
from tests.conftest import ROOT, only, present, solve, spec_of

SPEC = """apiVersion: tonnage/v1
kind: Training
name: t
model: {name: llama-3.1-70b}
data: {tokens: 20B, location: "s3://bucket/tokens"}
train: {method: pretrain, deadline: 30d}
buy: {spot: never}
"""


@given(
    st.sets(st.integers(1, 3000), max_size=60),
    st.integers(2, 6),
    st.integers(1, 900),
)
def test_kept_are_the_newest_and_one_of_each_span(
    steps: set[int], keep_last: int, span: int
) -> None:
    names = [f"iter_{step:07d}" for step in steps]
    random.Random(1).shuffle(names)
    expired = expired_checkpoints(
        [*names, "done-abc", "iter_x"], keep_last, span
    )
    kept = {int(name[5:]) for name in set(names) - set(expired)}
    assert set(sorted(steps)[-keep_last:]) <= kept
    assert {step // span for step in steps} == {step // span for step in kept}
    for step in kept - set(sorted(steps)[-keep_last:]):
        assert step == max(s for s in steps if s // span == step // span)


@given(
    st.integers(1, 400),
    st.integers(2, 5),
    st.integers(1, 40),
    st.integers(1, 30),
)
def test_what_is_priced_is_what_the_machines_keep(
    steps: int, keep_last: int, span: int, every: int
) -> None:
    """Checkpoints come every few steps, and the node's own rule deletes at each of them."""
    span *= every
    retention = Retention(keep_last=keep_last, keep_every_s=span)
    held: list[str] = []
    held_s = 0
    for step in range(steps):
        if step and step % every == 0:
            held.append(f"iter_{step:07d}")
            for name in expired_checkpoints(held, keep_last, span):
                held.remove(name)
        held_s += len(held)
    assert held_checkpoint_s(retention, every, steps) == pytest.approx(held_s)
    # The last one is written when the run ends.
    held.append(f"iter_{steps:07d}")
    left = len(held) - len(expired_checkpoints(held, keep_last, span))
    assert held_checkpoints(retention, every, steps) == left


def node_script(tmp_path: Path, **limits: int) -> str:
    """The script of a node whose cloud is a folder: the bucket."""
    catalog = only(
        load_catalog(None), lambda o: o.instance.instance_type == "p5.48xlarge"
    )
    solution = solve(catalog, SPEC)
    run = present(solution.training_run)
    kept = replace(run.checkpoints_kept, keep_last=2, span_steps=1000)
    solution = replace(
        solution,
        training_run=replace(
            run, optimizer_steps=limits["last_step"], checkpoints_kept=kept
        ),
    )
    stack: StackSpec = derive_stack(spec_of(SPEC), solution, "t")
    [(fleet, group)] = stack.scaling_groups
    fleet = replace(
        fleet,
        spare_nodes=0,
        scaling_groups=(replace(group, nodes=limits.get("nodes", 1)),),
    )
    bucket = tmp_path / "bucket"
    folder = bucket / "checkpoints"
    folder.mkdir(parents=True)
    (bucket / "train.py").write_text("")
    commands = NodeCommands(
        give_back=f"echo given back >> {tmp_path}/told",
        list_peers=f"cat {tmp_path}/peers",
        fetch_models=f"mkdir -p {tmp_path}/models/checkpoints; "
        f"cp {bucket}/train.py {tmp_path}/models/; "
        f"cp {folder}/latest* {tmp_path}/models/checkpoints/ 2>/dev/null || true",
        save_checkpoints=f"cp -r {tmp_path}/models/checkpoints/. {folder}/",
        list_checkpoints=f"ls {folder}",
        fetch_checkpoint=f'echo "fetched $1" >> {tmp_path}/told; '
        f'cp -r {folder}/"$1" {tmp_path}/models/checkpoints/',
        drop_checkpoint=f'rm -r {folder}/"$1"',
        is_done=f'[ -f {folder}/done-"$1" ]',
        notice="false",
        mount_files="true",
        fill_files="true",
    )
    script = train_script(stack, fleet, fleet.scaling_groups[0], commands)
    for path, own in (
        ("/models", tmp_path / "models"),
        (BUSY_FILE, tmp_path / "busy"),
        ("/opt/tonnage", ROOT / "stacks" / "runtime" / "vm"),
    ):
        # Paths of the stand-ins themselves already are in the folder.
        script = script.replace(str(own), "@@").replace(path, str(own))
        script = script.replace("@@", str(own))
    (tmp_path / "models").mkdir()
    return script


def run_node(tmp_path: Path, script: str, job: str) -> tuple[int, list[str]]:
    """Run a node; its job is a shell script whose folder is that of the checkpoints."""
    programs = tmp_path / "bin"
    programs.mkdir(exist_ok=True)
    for name, body in {
        "docker": f'cd {tmp_path}/models/checkpoints\nfor word in "$@"; do case $word in '
        f"TONNAGE_DONE=*) mark=${{word#*=}};; esac; done\n{job}\n",
        "sleep": "[ $1 = 60 ] && exec /bin/sleep 30; exec /bin/sleep 0.05",
        "hostname": "echo 10.0.0.5",
    }.items():
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    told = tmp_path / "told"
    return done.returncode, told.read_text().split("\n")[
        :-1
    ] if told.exists() else []


SAVES = "for step in 0000400 0000800 0001200 0001600 {}; do mkdir -p iter_$step; done\n"


def test_a_job_that_says_it_is_done_gives_its_node_back(tmp_path: Path) -> None:
    script = node_script(tmp_path, last_step=2000)
    status, told = run_node(tmp_path, script, SAVES.format("0002000"))
    assert (status, told) == (0, ["given back"])
    kept = {p.name for p in (tmp_path / "bucket" / "checkpoints").iterdir()}
    # The newest two, and the newest of the first 1,000 steps.
    assert {name for name in kept if name.startswith("iter")} == {
        "iter_0000800",
        "iter_0001600",
        "iter_0002000",
    }
    own = {p.name for p in (tmp_path / "models" / "checkpoints").glob("iter*")}
    assert own == {"iter_0001600", "iter_0002000"}
    # A node that starts now, such as a spare, leaves at once.
    (tmp_path / "told").unlink()
    assert run_node(tmp_path, script, "exit 9") == (0, ["given back"])


def test_a_job_may_say_that_it_is_done_by_its_mark(tmp_path: Path) -> None:
    script = node_script(tmp_path, last_step=2000)
    assert run_node(tmp_path, script, 'touch "$mark"') == (0, ["given back"])


@pytest.mark.parametrize("job", [SAVES.format("0001800"), "exit 3", "true"])
def test_a_job_that_is_not_done_keeps_its_node_and_starts_again(
    tmp_path: Path, job: str
) -> None:
    """A job that was asked to stop ends well too, but before its last step."""
    script = node_script(tmp_path, last_step=2000)
    status, told = run_node(tmp_path, script, job)
    assert status != 0
    assert told == []


def test_a_start_fetches_the_newest_checkpoint_alone(tmp_path: Path) -> None:
    script = node_script(tmp_path, last_step=2000)
    folder = tmp_path / "bucket" / "checkpoints"
    for step in ("0000400", "0001200"):
        (folder / f"iter_{step}").mkdir()
    (folder / "latest_checkpointed_iteration.txt").write_text("1200")
    status, told = run_node(tmp_path, script, "mkdir iter_0002000")
    assert (status, told) == (0, ["fetched iter_0001200", "given back"])


def test_a_checkpoint_that_only_the_node_has_is_gone_on_from(
    tmp_path: Path,
) -> None:
    """It was saved before the stop, and its copy to the bucket was not finished."""
    script = node_script(tmp_path, last_step=2000)
    own = tmp_path / "models" / "checkpoints"
    (own / "iter_0001600").mkdir(parents=True)
    (own / "iter_0001600" / "part").write_text("")
    (own / "latest_checkpointed_iteration.txt").write_text("1600")
    status, told = run_node(tmp_path, script, "mkdir iter_0002000")
    assert (status, told) == (0, ["fetched iter_0001600", "given back"])


def test_a_node_that_never_begins_to_train_becomes_idle(tmp_path: Path) -> None:
    """A node loads for at most so long; a job that fails at once does not begin that anew."""
    script = node_script(tmp_path, last_step=2000)
    since = tmp_path / "busy-since"
    since.touch()
    os.utime(since, (0, time.time() - 30 * 86_400))
    status, _ = run_node(tmp_path, script, "exit 3")
    assert status == 3
    assert not (tmp_path / "busy").exists()
    assert since.stat().st_mtime < time.time() - 86_400


def test_a_spare_stands_by_without_being_idle_until_the_job_is_done(
    tmp_path: Path,
) -> None:
    script = node_script(tmp_path, last_step=2000, nodes=2)
    (tmp_path / "peers").write_text("10.0.0.3\n10.0.0.4\n10.0.0.5\n")
    mark = next(
        line.removeprefix("job=")
        for line in script.splitlines()
        if line.startswith("job=")
    )
    ends = tmp_path / "bucket" / "checkpoints" / f"done-{mark}"
    # The peers are asked once a round: in the third one the job is done.
    script = script.replace(
        f"cat {tmp_path}/peers",
        f"cat {tmp_path}/peers; echo x >> {tmp_path}/rounds; "
        f"[ $(wc -l < {tmp_path}/rounds) -lt 3 ] || touch {ends}",
    )
    assert run_node(tmp_path, script, "exit 9") == (0, ["given back"])
    assert agent.says_busy(time.time(), str(tmp_path / "busy"))
    assert len((tmp_path / "rounds").read_text().split()) == 3


def test_the_agent_believes_a_fresh_word_of_the_job_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = tmp_path / "busy"
    settings = {"port": 0, "busy_file": str(word)}
    monkeypatch.setattr(agent, "gpu_busy", lambda: False)
    assert not agent.node_busy(settings)
    word.touch()
    assert agent.node_busy(settings)
    os.utime(word, (0, time.time() - 2 * agent.SAID_S))
    assert not agent.node_busy(settings)
    assert not agent.node_busy(json.loads('{"port": 0, "busy_file": ""}'))
