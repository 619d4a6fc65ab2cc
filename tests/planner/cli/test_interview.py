"""Questions for a spec: asked through click's runner, and on a terminal for real."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from planner.cli.interview import ask_for_spec
from planner.cli.spec_draft import KINDS, NONE, draft, questions
from planner.errors import SpecError
from planner.facts.cloud import clouds
from planner.spec.load import load_spec
from planner.spec.model import Inference, Training
from planner.spec.stack_name import STACK_NAME
from tests.conftest import ROOT, present
from tests.planner.cli.conftest import Command

CANCELLED = 8
ANSWER_S = 60.0
# A terminal is given back a moment before its program has ended.
PATIENCE_S = 3.0
# Standard input is the terminal that Ctrl-C of a person comes from.
ON_TERMINAL = (
    "import fcntl, signal, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    # Who runs tests in the background passes on that Ctrl-C is ignored.
    "signal.signal(signal.SIGINT, signal.default_int_handler);"
    "from planner.cli.main import main; main()"
)


@click.command()
@click.option("-o", "output")
@click.option("--force", is_flag=True)
def asked(output: str | None, force: bool) -> None:
    text, path = ask_for_spec(output, force=force)
    click.echo(f"{path}\n{text}", nl=False)


def answered(*answers: str, flags: tuple[str, ...] = ()) -> tuple[str, str]:
    """The spec of answers, and what was said meanwhile."""
    lines = "".join(f"{answer}\n" for answer in answers)
    result = CliRunner().invoke(asked, flags, input=lines + "\n" * 20)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def spec_in(out: str):
    path, text = out.split("\n", 1)
    return load_spec(text.encode(), path)


@pytest.mark.parametrize("kind", KINDS)
def test_the_defaults_are_a_spec_that_plans(
    tonnage: Command, here: Path, kind: str
) -> None:
    text = answered(kind)[0].split("\n", 1)[1]
    (here / "a.yaml").write_text(text)
    code, _, err = tonnage("plan", "a.yaml")
    assert code == 0, err


def test_each_answer_is_in_the_spec(here: Path) -> None:
    assert here.exists()
    out, _ = answered(
        *("serve", "support", "meta-llama/Llama-3.3-70B-Instruct"),
        *("1s", NONE, "7.5", "2k", "300", "diurnal", "aws,gcp"),
    )
    spec = spec_in(out)
    assert isinstance(spec, Inference)
    assert out.startswith("support.yaml\n# yaml-language-server: $schema=")
    [limit] = present(spec.sla).limits
    assert (limit.metric, float(limit.seconds)) == ("ttft", 1.0)
    assert float(present(spec.traffic.peak_rps)) == 7.5
    assert spec.traffic.profile == "diurnal"
    assert set(spec.where.clouds) == {"aws", "gcp"}


WRONG = {
    "a kind": (("srve", "serve"), "did you mean 'serve'"),
    "a name": (("serve", "My Chat!", "chat"), "name"),
    "a model": (
        ("serve", "chat", "llma-3.1-8b", "llama-3.1-8b"),
        "did you mean 'llama-3.1-8b'?",
    ),
    "a time": (("serve", "chat", "", "80 bananas", "800ms"), "ttft_p95"),
    "a rate": (("serve", "chat", "", "", "", "-3", "3"), "peak_rps"),
    "a cloud": (
        ("serve", "chat", *[""] * 7, "aws,gpc", "aws"),
        "did you mean",
    ),
    "a method": (
        ("train", "t", "", "", "", "lroa", "lora"),
        "did you mean 'lora'",
    ),
    "yaml": (("serve", "chat", "", "1s}\tx: [", "1s"), "ttft_p95"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_is_told_why_and_asked_again(
    here: Path, name: str
) -> None:
    """By the rules of the loader, which judges the whole file in the end."""
    assert here.exists()
    answers, told = WRONG[name]
    out, err = answered(*answers)
    assert told in err
    spec_in(out)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_loader_refuses_is_never_written(
    here: Path, kind: str
) -> None:
    """Whatever is answered first: the next answer repairs it, or it is asked again."""
    assert here.exists()
    for number, question in enumerate(questions(kind)):
        before = [""] * number
        for wrong in ("[]", "none of that", "-1", "0", "é: x", "# y"):
            out, _ = answered(kind, *before, wrong)
            spec_in(out)
        assert question.default


def test_a_key_that_is_left_out_leaves_no_empty_block() -> None:
    answers: dict[str, str | None] = {
        question.key: question.default for question in questions("serve")
    }
    without = answers | {"sla.ttft_p95": None, "sla.tpot_p95": None}
    text = draft("serve", without).text
    assert "sla" not in text
    assert load_spec(text.encode(), "x.yaml")
    places = draft("serve", answers).lines
    lines = draft("serve", answers).text.splitlines()
    for key, line in places.items():
        assert lines[line - 1].strip().startswith(key.split(".")[-1])


def test_a_file_that_exists_is_not_written_over(here: Path) -> None:
    (here / "serve.yaml").write_text("mine")
    out, err = answered("serve", "serve", "other")
    assert "serve.yaml exists" in err
    assert out.startswith("other.yaml")
    assert answered("serve", flags=("--force",))[0].startswith("serve.yaml")


def test_kinds_and_names_are_those_of_specs() -> None:
    for kind, name in KINDS.items():
        assert STACK_NAME.fullmatch(kind)
        spec = load_spec(
            draft(
                kind, {q.key: q.default for q in questions(kind)}
            ).text.encode(),
            "x.yaml",
        )
        assert type(spec).__name__ == name
    assert Training.__name__ in KINDS.values()
    with pytest.raises(SpecError):
        load_spec(b"kind: Serve", "x.yaml")
    assert clouds()


def typed(
    here: Path, *words: str, answers: tuple[str, ...], end: bytes = b""
) -> tuple[int, str]:
    """Run the program on a terminal; returns its exit code and what was shown."""
    leader, follower = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-c", ON_TERMINAL, *words],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=here,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "dumb"},
        start_new_session=True,
    )
    os.close(follower)
    shown = ""
    waiting = [*(f"{answer}\n".encode() for answer in answers), end]
    ends = time.monotonic() + ANSWER_S
    while time.monotonic() < ends:
        if select.select([leader], [], [], 0.05)[0]:
            try:
                shown += os.read(leader, 4096).decode()
            except OSError:
                break
        elif shown.rstrip().endswith(":") and waiting:
            os.write(leader, waiting.pop(0))
        elif program.poll() is not None:
            break
    try:
        code = program.wait(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        program.kill()
        code = program.wait()
    os.close(leader)
    return code, shown


def test_a_person_at_a_terminal_is_asked(here: Path) -> None:
    answers = ("serve", "chat", "lama-3.1-8b", "llama-3.1-8b", *[""] * 7)
    code, shown = typed(here, "init", answers=answers)
    assert code == 0, shown
    assert "did you mean 'llama-3.1-8b'?" in shown
    assert "wrote chat.yaml and spec.schema.json" in shown
    assert "next: tonnage plan chat.yaml" in shown
    assert load_spec((here / "chat.yaml").read_bytes(), "chat.yaml")


@pytest.mark.parametrize("key", [b"\x03", b"\x04"], ids=["Ctrl-C", "Ctrl-D"])
def test_who_ends_it_has_no_file(here: Path, key: bytes) -> None:
    code, shown = typed(here, "init", answers=("serve", "chat"), end=key)
    assert code == CANCELLED, shown
    assert "cancelled: nothing more is done" in shown
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("words", [("--no-input",), ("--blueprint", "chat-8b")])
def test_who_says_what_to_write_is_not_asked(
    here: Path, words: tuple[str, ...]
) -> None:
    code, shown = typed(here, "init", *words, answers=())
    assert code == 0, shown
    assert (here / "chat-8b.yaml").exists()


def test_without_a_terminal_nobody_is_asked(
    tonnage: Command, here: Path
) -> None:
    code, out, err = tonnage("init")
    assert (code, out) == (0, "")
    assert "wrote chat-8b.yaml and spec.schema.json" in err
    assert (here / "spec.schema.json").read_text() == tonnage("schema", "spec")[
        1
    ]
    # A second one finds the schema there; a file that is none of ours stays.
    assert "wrote other.yaml     next" in tonnage("init", "-o", "other.yaml")[2]
    (here / "spec.schema.json").write_text("{}")
    assert tonnage("init", "-o", "third.yaml")[0] == 0
    assert (here / "spec.schema.json").read_text() == "{}"
    assert tonnage("init", "--policy")[0] == 0
    assert (here / "policy.schema.json").exists()
