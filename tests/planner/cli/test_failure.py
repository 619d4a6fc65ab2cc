"""Errors of commands that were asked for JSON: a document where the answer would have been."""

from __future__ import annotations

import json
from pathlib import Path

import click
import jsonschema
import pytest

from planner.cli.main import COMMANDS, cli
from planner.plan.error_document import error_schema
from tests.conftest import chat
from tests.planner.cli.conftest import Command

# What an argument may be that leads nowhere.
WRONG_WORDS = ("missing.yaml", "broken.yaml", "typo.yaml", "-")
WRONG_FLAGS = (
    ("--nonsense",),
    ("--catalog", "missing.json"),
    ("--simulate", "broken.yaml"),
    ("--backend", "ftp://nowhere"),
    ("--prices", "typo.yaml"),
)
USAGE = 2
DENIED = 5


def json_commands() -> list[tuple[str, ...]]:
    """The words of all commands that take -f json."""
    context = click.Context(cli)
    found: list[tuple[str, ...]] = []
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found += [
                (name, part_name)
                for part_name, part in command.commands.items()
                if takes_json(part)
            ]
        elif takes_json(command):
            found.append((name,))
    return found


def takes_json(command: click.Command) -> bool:
    return any(
        "json" in getattr(parameter.type, "choices", ())
        for parameter in command.params
    )


def option_names(words: tuple[str, ...]) -> set[str]:
    context = click.Context(cli)
    command = cli.get_command(context, words[0])
    for word in words[1:]:
        assert isinstance(command, click.Group)
        command = command.commands[word]
    assert command is not None
    return {name for one in command.params for name in one.opts}


def error_of(text: str) -> dict:
    """The document of an error, which is one line and nothing else."""
    assert text.endswith("\n")
    [line] = text.splitlines()
    document: dict = json.loads(line)
    jsonschema.validate(document, error_schema())
    return document


@pytest.fixture
def wrong_files(here: Path) -> Path:
    (here / "broken.yaml").write_text("a: [1\nb: }")
    (here / "typo.yaml").write_text(chat().replace("traffic:", "trafic:"))
    return here


COMMAND = pytest.mark.parametrize("words", json_commands(), ids=" ".join)


@COMMAND
def test_an_error_is_a_document_and_nothing_else(
    tonnage: Command, wrong_files: Path, words: tuple[str, ...]
) -> None:
    """Whatever is wrong, and wherever the format stands: the exit code is that of the text."""
    assert wrong_files.exists()
    flags = [
        flag
        for flag in WRONG_FLAGS
        if flag[0] == "--nonsense" or flag[0] in option_names(words)
    ]
    cases = [
        *((wrong, *flag) for wrong in ("typo.yaml", "a") for flag in flags),
        *((wrong,) for wrong in WRONG_WORDS if wrong != "-"),
    ]
    failed = 0
    for case in cases:
        text_code, _, text_err = tonnage(*words, *case)
        code, out, err = tonnage(*words, "-f", "json", *case)
        assert code == text_code, (case, err)
        if not text_err or code in (0, 20):
            continue
        failed += 1
        document = error_of(out)
        assert document["exit_code"] == code
        # People who read the log of a pipeline see the same.
        assert err == text_err
        for problem in document["problems"]:
            if problem["code"] != "usage":
                assert f"error[{problem['code']}]" in err
    assert failed


@COMMAND
def test_a_format_of_the_environment_counts(
    tonnage: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    name = "_".join(words).upper()
    monkeypatch.setenv(f"TONNAGE_{name}_FORMAT", "json")
    code, out, _ = tonnage(*words, "--nonsense")
    assert code == USAGE
    [problem] = error_of(out)["problems"]
    assert problem["code"] == "usage"
    assert problem["next_step"] == f"see: tonnage {' '.join(words)} --help"


def test_a_problem_has_its_place(tonnage: Command, wrong_files: Path) -> None:
    lines = (wrong_files / "typo.yaml").read_text().splitlines()
    code, out, err = tonnage("plan", "typo.yaml", "--format=json")
    assert code == USAGE
    [problem] = [
        one for one in error_of(out)["problems"] if "trafic" in one["message"]
    ]
    assert problem["path"] == "typo.yaml"
    assert "trafic" in lines[problem["line"] - 1]
    place = f"typo.yaml:{problem['line']}:{problem['column']}"
    assert f"{place}  error[{problem['code']}]: " in err


@pytest.mark.parametrize(
    "argv",
    [
        ("plna", "-f", "json"),
        ("-C", "nowhere", "plan", "-f", "json"),
        ("plan", "-fjson"),
        ("plan", "-f", "text", "--format", "json"),
    ],
)
def test_the_command_line_is_read_as_far_as_it_goes(
    tonnage: Command, argv: tuple[str, ...]
) -> None:
    code, out, _ = tonnage(*argv)
    assert code == USAGE
    assert error_of(out)["problems"][0]["code"] == "usage"


@pytest.mark.parametrize(
    "argv",
    [
        ("plan", "missing.yaml"),
        ("plan", "missing.yaml", "-f", "json", "-f", "text"),
        ("plan", "missing.yaml", "-f", "markdown"),
        ("plan", "--", "-f", "json"),
    ],
)
def test_other_formats_have_sentences_alone(
    tonnage: Command, argv: tuple[str, ...]
) -> None:
    code, out, err = tonnage(*argv)
    assert code != 0
    assert out == ""
    assert "error[" in err


def test_terraforms_convention_has_one_code(
    tonnage: Command, here: Path
) -> None:
    assert here.exists()
    code, out, _ = tonnage(
        "plan", "missing.yaml", "-f", "json", "--detailed-exitcode"
    )
    assert code == 1
    assert error_of(out)["exit_code"] == 1


def test_a_result_is_not_mixed_with_an_error(
    tonnage: Command, saved: Path
) -> None:
    """A difference stands on standard output before its threshold is told."""
    spec = saved.parent / "chat.yaml"
    spec.write_text(spec.read_text().replace("peak_rps: 1", "peak_rps: 60"))
    code, out, err = tonnage(
        *("diff", "chat.plan.json", "chat.yaml"),
        *("--fail-if", "+1%", "-f", "json"),
    )
    assert code == DENIED
    assert json.loads(out)["schema"].startswith("tonnage.diff/")
    *sentences, last_line = err.splitlines(keepends=True)
    document = error_of(last_line)
    assert document["exit_code"] == DENIED
    assert any("error[threshold]" in sentence for sentence in sentences)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("chta.yaml", "did you mean 'chat.yaml'?"),
        ("chat.yml", "did you mean 'chat.yaml'?"),
        ("chta", "did you mean 'chat.yaml'?"),
        # The same ending alone makes no names alike, and another one another sort of file.
        ("none.yaml", "check the path, or write a spec with: tonnage init"),
        ("noes.yaml", "check the path, or write a spec with: tonnage init"),
    ],
)
def test_a_file_that_is_not_there_is_told_with_one_that_is_close(
    tonnage: Command, here: Path, asked: str, told: str
) -> None:
    (here / "chat.yaml").write_text(chat())
    (here / "notes.md").write_text("# Notes\n")
    code, _, err = tonnage("plan", asked)
    assert code == 6
    assert f"next: {told}" in err
