"""The whole life of a benchmark on simulated clouds, and how it ends when something goes wrong."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from planner.cli import bench_run, bench_watch
from planner.errors import Problem, ResourceError
from providers.simulated.clock import advance
from providers.simulated.shared import SharedWorld
from stacks.operate import bench
from tests.conftest import chat
from tests.planner.cli.conftest import Command

STACK = "chat-bench"
ARGV = ("bench", "chat.yaml", "--simulate", "--yes")
LOOKS_A_LOAD = 10


class Machine:
    """The machine of a benchmark: time passes, and one result after the other is in the bucket."""

    def __init__(self, here: Path) -> None:
        self.here = here
        self.looks = 0
        self.measured = 0
        self.most_results = 99
        self.failure = ""
        self.on_look: Callable[[], None] = lambda: None

    def __call__(self, world: SharedWorld, seconds: float) -> None:
        advance(world, seconds)
        self.looks += 1
        self.on_look()
        [folder] = self.here.glob(".tonnage/simulated/buckets/*/bench")
        users = [1, 4, 16, 64]
        if self.failure and self.measured == 1:
            self.write(folder, "failure.json", self.failure)
        elif self.looks % LOOKS_A_LOAD == 0 and self.measured < min(
            self.most_results, len(users)
        ):
            count = users[self.measured]
            self.write(folder, f"{count:05d}-users.json", result(count))
            self.measured += 1
        if self.measured == len(users):
            self.write(folder, "manifest.json", "{}")

    def write(self, folder: Path, name: str, text: str) -> None:
        (folder / name).write_text(text)


def result(users: int) -> str:
    """What vLLM writes of a load, as far as it is read; times grow with the load."""
    return json.dumps(
        {
            "model_id": "llama-3.1-8b",
            "backend": "openai",
            "endpoint_type": "openai",
            "num_prompts": 20,
            "max_concurrency": users,
            "request_rate": "inf",
            "completed": 20,
            "duration": 100.0,
            "total_input_tokens": 18_000,
            "total_output_tokens": 4_000,
            "mean_ttft_ms": 150.0 + 6 * users,
            "mean_tpot_ms": 30.0 + 0.4 * users,
        }
    )


@pytest.fixture
def spec(here: Path) -> Path:
    path = here / "chat.yaml"
    path.write_text(chat(extra="labels: {team: a, env: prod}"))
    return path


@pytest.fixture
def machine(here: Path, spec: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(here)
    monkeypatch.setattr(bench_watch, "advance", made)
    return made


def stacks(tonnage: Command, *flags: str) -> str:
    code, out, err = tonnage("list", "--simulate", *flags)
    assert code == 0, err
    return out


def assert_nothing_is_left(tonnage: Command, here: Path, *flags: str) -> None:
    assert stacks(tonnage, *flags).strip() == "no stack exists"
    assert not list(here.glob(".tonnage/simulated/buckets/*"))


def test_without_yes_it_is_shown_with_what_it_costs_at_most(
    tonnage: Command, here: Path, spec: Path
) -> None:
    code, out, err = tonnage("bench", spec.name)
    assert (code, err) == (0, "")
    assert re.match(
        r"1 x \S+ \(1 x \S+\) for \d+ min, at most \$\d+\.\d\d\n", out
    )
    assert f"tonnage destroy {STACK} --allow delete-data --yes" in out
    assert "bring them with --weights FOLDER" in out
    assert out.endswith(f"next: tonnage bench {spec.name} --yes\n")
    assert max(map(len, out.splitlines())) <= 100
    assert not (here / ".tonnage").exists()


def test_a_benchmark_is_applied_measured_learned_and_deleted(
    tonnage: Command, here: Path, machine: Machine
) -> None:
    code, out, err = tonnage(*ARGV)
    assert code == 0, err
    assert "measured 4 of 4: chat-bench/00064-users.json" in err
    assert "4 points of llama-3.1-8b" in out
    assert_nothing_is_left(tonnage, here)
    # What `calibrate` makes of the same files, and a plan takes it.
    learned = (here / "chat.calibration.json").read_bytes()
    found = re.search(r"on (\S+), TP1 in (\S+)", out)
    assert found is not None
    files = [str(path.relative_to(here)) for path in (here / STACK).iterdir()]
    code, _, err = tonnage(
        *("calibrate", *sorted(files), "--gpu", found[1], "--tp", "1"),
        *("--precision", found[2], "-o", "by-hand.json"),
    )
    assert code == 0, err
    assert (here / "by-hand.json").read_bytes() == learned
    code, out, err = tonnage(
        "plan", "chat.yaml", "--calibration", "chat.calibration.json"
    )
    assert code == 0, err


def test_simulated_machines_that_nobody_plays_measure_nothing(
    tonnage: Command, here: Path, spec: Path
) -> None:
    code, out, err = tonnage(*ARGV)
    assert code == 0, err
    assert "simulated machines measure nothing" in out
    assert not (here / "chat.calibration.json").exists()
    assert_nothing_is_left(tonnage, here)


@pytest.mark.parametrize(
    "name", ["models", "net", "*-template", "*-nodes", "*-deadline"]
)
def test_a_failure_of_the_apply_leaves_nothing(
    tonnage: Command, here: Path, machine: Machine, name: str
) -> None:
    (here / "world.yaml").write_text(
        f"faults: [{{on: create, name: '{name}', code: InvalidParameterValue}}]\n"
    )
    world = ("--simulate", "world.yaml")
    code, _, err = tonnage("bench", "chat.yaml", *world, "--yes")
    assert code == 4
    assert "InvalidParameterValue" in err
    # It says what was wrong, and not that something stands.
    assert "resources of chat-bench stand" not in err
    assert machine.looks == 0
    assert_nothing_is_left(tonnage, here, "world.yaml")


def test_no_capacity_is_told_as_such_and_leaves_nothing(
    tonnage: Command, here: Path, machine: Machine
) -> None:
    (here / "world.yaml").write_text("capacity: [{nodes: 0}]\n")
    code, _, err = tonnage(
        "bench", "chat.yaml", "--simulate", "world.yaml", "--yes"
    )
    assert code == 14, err
    assert_nothing_is_left(tonnage, here, "world.yaml")


def test_what_cannot_be_deleted_is_named_with_the_command_that_does_it(
    tonnage: Command, here: Path, machine: Machine
) -> None:
    (here / "world.yaml").write_text(
        "faults: [{on: delete, name: net, code: DependencyViolation, times: 9}]\n"
    )
    code, _, err = tonnage(
        "bench", "chat.yaml", "--simulate", "world.yaml", "--yes"
    )
    assert code == 4
    assert "error[left]:" in err
    next_step = err.rpartition("next: ")[2].strip()
    assert next_step.startswith(f"tonnage destroy {STACK} --allow delete-data")
    # What was measured is paid for, and kept.
    assert len(list((here / STACK).iterdir())) == 4
    for _ in range(9):
        code, _, err = tonnage(*next_step.split()[1:])
        if code == 0:
            break
    assert code == 0, err
    assert_nothing_is_left(tonnage, here, "world.yaml")


def test_both_failures_are_told_when_the_deletion_fails_too(
    tonnage: Command, here: Path, machine: Machine
) -> None:
    machine.failure = json.dumps({"name": "4 users", "reason": "out of memory"})
    (here / "world.yaml").write_text(
        "faults: [{on: delete, name: net, code: DependencyViolation, times: 9}]\n"
    )
    code, _, err = tonnage(
        "bench", "chat.yaml", "--simulate", "world.yaml", "--yes"
    )
    assert code == 7
    assert "cause: 4 users: out of memory" in err
    assert "error[left]:" in err


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_it_and_leaves_nothing(
    tonnage: Command, here: Path, machine: Machine, name: str
) -> None:
    def interrupt() -> None:
        if machine.looks == LOOKS_A_LOAD + 2:
            os.kill(os.getpid(), getattr(signal, name))

    machine.on_look = interrupt
    code, _, err = tonnage(*ARGV)
    assert code == 8
    assert "what was measured is kept" in err
    assert len(list((here / STACK).iterdir())) == 1
    assert_nothing_is_left(tonnage, here)


def test_a_load_that_cannot_be_measured_fails_with_its_reason(
    tonnage: Command, here: Path, machine: Machine
) -> None:
    machine.failure = json.dumps({"name": "4 users", "reason": "out of memory"})
    code, _, err = tonnage(*ARGV)
    assert code == 7
    assert "cause: 4 users: out of memory" in err
    assert f"tonnage calibrate {STACK}/*.json" in err
    assert not (here / "chat.calibration.json").exists()
    assert_nothing_is_left(tonnage, here)


def test_the_limit_of_cost_ends_it(
    tonnage: Command, here: Path, machine: Machine
) -> None:
    machine.most_results = 2
    code, _, err = tonnage(*ARGV, "--max-cost", "4")
    assert code == 9
    assert "2 of 4 loads were measured within" in err
    assert "--max-cost USD" in err
    assert_nothing_is_left(tonnage, here)


def test_a_limit_below_what_is_expected_is_refused_before_anything_is_made(
    tonnage: Command, here: Path, machine: Machine
) -> None:
    code, _, err = tonnage(*ARGV, "--max-cost", "0.01")
    assert (code, machine.looks) == (5, 0)
    least = re.search(r"costs \$(\d+\.\d\d) at most", err)
    assert least is not None
    assert not list(here.glob(".tonnage/simulated/buckets/*"))
    # What it says is enough.
    enough = str(float(least[1]) + 0.01)
    code, _, err = tonnage(*ARGV, "--max-cost", enough)
    assert code == 0, err


def test_a_run_that_was_cut_off_is_gone_on_with_or_deleted(
    tonnage: Command,
    here: Path,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The computer was lost: nobody deletes the stack."""

    def crash() -> None:
        if machine.looks == LOOKS_A_LOAD + 2:
            raise KeyboardInterrupt

    machine.on_look = crash
    with monkeypatch.context() as patched:
        patched.setattr(
            bench_run.BenchRun,
            "_deleted_at_the_end",
            lambda *_: nullcontext(),
        )
        assert tonnage(*ARGV)[0] == 8
    assert STACK in stacks(tonnage)
    code, _, err = tonnage(*ARGV)
    assert (code, "add --resume" in err) == (2, True)
    assert STACK in stacks(tonnage)
    # Another sweep on the same stack would be another benchmark.
    spec = here / "chat.yaml"
    text = spec.read_text()
    spec.write_text(text.replace("mean: 200", "mean: 210"))
    code, _, err = tonnage(*ARGV, "--resume")
    assert (code, "planned otherwise" in err) == (2, True)
    spec.write_text(text)
    code, out, err = tonnage(*ARGV, "--resume")
    assert code == 0, err
    assert "4 points of llama-3.1-8b" in out
    assert_nothing_is_left(tonnage, here)


def test_weights_of_a_folder_are_brought_to_the_machine(
    tonnage: Command, here: Path, machine: Machine
) -> None:
    weights = here / "weights"
    weights.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (weights / name).write_text("{}")
    arrived: list[Path] = []
    machine.on_look = lambda: arrived.extend(
        here.glob(".tonnage/simulated/buckets/*/models/llama-3.1-8b/*")
    )
    code, _, err = tonnage(*ARGV, "--weights", "weights")
    assert code == 0, err
    assert {path.name for path in arrived} >= {"tokenizer.json"}


def test_weights_that_are_not_whole_are_refused_before_anything_is_made(
    tonnage: Command, here: Path, machine: Machine
) -> None:
    (here / "weights").mkdir()
    code, _, err = tonnage(*ARGV, "--weights", "weights")
    assert (code, "is missing" in err) == (2, True)
    assert not list(here.glob(".tonnage/simulated/buckets/*"))


def test_a_stack_that_somebody_else_deletes_is_told_at_once(
    tonnage: Command,
    here: Path,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise ResourceError(
            Problem(code="bucket", message="no such bucket", next_step="look")
        )

    def delete() -> None:
        if machine.looks == 2:
            flags = ("--allow", "delete-data", "--yes", "--simulate")
            assert tonnage("destroy", STACK, *flags)[0] == 0
            folder = here / ".tonnage/simulated/buckets/gone/bench"
            folder.mkdir(parents=True)
            monkeypatch.setattr(bench, "bench_state", refuse)

    machine.on_look = delete
    code, _, err = tonnage(*ARGV)
    assert (code, "was deleted meanwhile" in err) == (7, True)
    assert stacks(tonnage).strip() == "no stack exists"


def test_what_serves_no_named_model_is_refused(
    tonnage: Command, here: Path
) -> None:
    (here / "size.yaml").write_text(
        chat().replace("name: llama-3.1-8b", "params: 8B")
    )
    code, _, err = tonnage("bench", "size.yaml")
    assert (code, "model.name" in err) == (2, True)
    (here / "desk.yaml").write_text(
        "apiVersion: tonnage/v1\nkind: Workspace\nname: desk\n"
        "accelerator: {memory: 20GiB}\n"
    )
    assert tonnage("bench", "desk.yaml")[0] == 2


def test_classes_of_requests_are_measured_as_one(
    tonnage: Command, here: Path, spec: Path
) -> None:
    """One machine has nobody to divide requests for it."""
    _, whole, _ = tonnage("bench", spec.name)
    (here / "classes.yaml").write_text(chat(extra="serving: {classes: auto}"))
    code, out, err = tonnage("bench", "classes.yaml")
    assert (code, err) == (0, "")
    assert out == whole.replace(spec.name, "classes.yaml")


def test_a_real_machine_does_not_wait_for_weights_that_nobody_brings(
    tonnage: Command, here: Path, spec: Path
) -> None:
    code, _, err = tonnage("bench", "chat.yaml", "--yes")
    assert (code, "--weights FOLDER" in err) == (2, True)
    assert "chat.yaml:5:" in err
