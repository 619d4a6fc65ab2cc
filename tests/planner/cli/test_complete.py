"""What shells offer: through classes of click, and through a bash that somebody types to."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.shell_completion import get_completion_class

from planner.cli.main import COMMANDS, cli
from planner.facts.accelerator import accelerators
from planner.facts.llm import models
from providers.catalog.load import load_catalog
from tests.conftest import BLUEPRINTS, ROOT, present

SHELLS = ("bash", "zsh", "fish")
# What a person who presses a key would wait for.
SLOW = (
    *("boto3", "google", "azure", "pulumi", "requests", "obstore"),
    *("highspy", "rich", "stacks", "providers.catalog"),
    *("planner.perf.serving", "planner.perf.training"),
    *("planner.workload", "planner.estimate"),
)
TYPING_S = 20.0
# Arguments of which nobody but a user or a cloud knows what comes.
FREE = {
    *("duration", "name", "wanted", "machine", "remote_command", "machines"),
    *("quota_id", "resource", "object_id", "job"),
}


def offered(
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    incomplete: str = "",
    shell: str = "bash",
) -> list[str]:
    """The lines that a shell's script reads."""
    typed = f"tonnage {words}".split()
    monkeypatch.setenv("COMP_WORDS", " ".join([*typed, incomplete]).strip())
    # Fish hands over the word itself, other shells its place.
    place = incomplete if shell == "fish" else str(len(typed))
    monkeypatch.setenv("COMP_CWORD", place)
    shell_class = present(get_completion_class(shell))
    lines = shell_class(cli, {}, "tonnage", "_TONNAGE_COMPLETE").complete()
    return lines.splitlines()


def words_of(lines: list[str], shell: str = "bash") -> set[str]:
    """The words that are offered; zsh has kind, word and help in a line each."""
    if shell == "zsh":
        return set(lines[1::3])
    return {line.split(",", 1)[1].split("\t")[0] for line in lines}


def of_catalog(attribute: str) -> set[str]:
    return {str(getattr(one, attribute)) for one in load_catalog().offers}


NAMES = {
    "models": lambda: set(models()),
    "offers": lambda: set(accelerators()),
    "offers --region": lambda: of_catalog("region"),
    "init --blueprint": lambda: {path.stem for path in BLUEPRINTS},
    "plan -f": lambda: {"text", "json", "markdown", "html", "sarif"},
    "": lambda: set(COMMANDS),
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("words", NAMES)
def test_names_are_those_of_the_tables(
    monkeypatch: pytest.MonkeyPatch, words: str, shell: str
) -> None:
    found = words_of(offered(monkeypatch, words, shell=shell), shell)
    assert found >= NAMES[words]()


@pytest.mark.parametrize("words", NAMES)
def test_only_what_begins_as_typed_is_offered(
    monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    everything = words_of(offered(monkeypatch, words))
    for beginning in {name[:3] for name in everything}:
        assert words_of(offered(monkeypatch, words, beginning)) == {
            name for name in everything if name.startswith(beginning)
        }


def test_a_cloud_that_is_named_limits_regions_and_types(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for cloud in ("aws", "azure", "gcp"):
        here = [o for o in load_catalog().offers if o.provider == cloud]
        for words in (
            f"offers --cloud {cloud} --region",
            f"quota list {cloud}",
        ):
            found = words_of(offered(monkeypatch, words))
            assert found >= {offer.region for offer in here}
            assert not found & {
                offer.region
                for offer in load_catalog().offers
                if offer.provider != cloud
            }
        types = words_of(offered(monkeypatch, f"offers --cloud {cloud} --type"))
        assert types >= {offer.instance.instance_type for offer in here}


@pytest.mark.parametrize("shell", SHELLS)
def test_files_are_left_to_the_shell(
    monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    for words in ("plan", "apply", "show", "plan --prices", "diff a.yaml"):
        [kind, *_] = offered(monkeypatch, words, "ch", shell=shell)
        assert kind.split(",")[0] == "file", words


def test_every_argument_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a choice, a path, names of ours, or it is one that nobody can know."""
    context = click.Context(cli)
    for name in COMMANDS:
        command = present(cli.get_command(context, name))
        parts = (
            list(command.commands.values())
            if isinstance(command, click.Group)
            else [command]
        )
        for part in parts:
            for parameter in part.params:
                is_known = (
                    parameter._custom_shell_complete is not None
                    or not isinstance(parameter.type, type(click.STRING))
                )
                if isinstance(parameter, click.Argument):
                    assert is_known or parameter.name in FREE, (name, parameter)
                elif "FILE" in (parameter.metavar or ""):
                    assert is_known, (name, parameter.name)


def test_stacks_are_those_of_the_folder(
    monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    assert offered(monkeypatch, "destroy") == []
    for place, name in (
        ("simulated/stacks", "chat"),
        ("pulumi/.pulumi/stacks/tonnage", "batch"),
    ):
        folder = here / ".tonnage" / place
        folder.mkdir(parents=True)
        (folder / f"{name}.json").write_text("{}")
    for words in ("status", "destroy", "plan --stack"):
        assert words_of(offered(monkeypatch, words)) == {"batch", "chat"}
    monkeypatch.chdir("/")
    assert words_of(offered(monkeypatch, f"-C {here} status")) == {
        "batch",
        "chat",
    }


@pytest.fixture
def program(here: Path) -> Path:
    """The program as a command of a folder."""
    folder = here / "bin"
    folder.mkdir()
    script = folder / "tonnage"
    script.write_text(
        f"#!{sys.executable}\nfrom planner.cli.main import main\nmain()\n"
    )
    script.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    "words", ["", "plan", "apply", "offers --region", "models", "destroy"]
)
def test_a_key_waits_for_nothing_but_names(program: Path, words: str) -> None:
    """No catalog, solver or client of a cloud: `make bench` tells how long it takes."""
    typed = f"tonnage {words}".split()
    environment = os.environ | {
        "_TONNAGE_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(typed),
        "COMP_CWORD": str(len(typed)),
        "PYTHONPATH": str(ROOT),
        "PYTHONPROFILEIMPORTTIME": "1",
    }
    answered = subprocess.run(
        [program / "tonnage"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert answered.stdout
    loaded = {
        line.rsplit("|", 1)[1].strip()
        for line in answered.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert "planner.cli.main" in loaded
    assert not [
        name
        for name in loaded
        for slow in SLOW
        if name == slow or name.startswith(f"{slow}.")
    ]


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_completes_what_is_typed(program: Path, here: Path) -> None:
    (here / "chat.yaml").write_text("")
    environment = {
        "PATH": f"{program}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "TERM": "dumb",
        "PS1": "",
    }
    script = subprocess.run(
        [program / "tonnage", "completion", "bash"],
        env=os.environ | environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    (here / "completion.sh").write_text(script)
    lines = (
        "source completion.sh",
        # A tab after each; what stands in the line then is echoed.
        "echo tonnage models llama-3.1-40\t",
        "tonnage models mixtral-8x22\t> one",
        "tonnage check cha\t> two",
        "tonnage offers --reg\tsouthamerica-\t --limit 1 > three",
        "exit",
    )
    leader, follower = pty.openpty()
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment,
        start_new_session=True,
    )
    os.close(follower)
    shown = ""
    for line in lines:
        os.write(leader, f"{line}\n".encode())
    ends = time.monotonic() + TYPING_S
    while shell.poll() is None and time.monotonic() < ends:
        if select.select([leader], [], [], 0.1)[0]:
            try:
                shown += os.read(leader, 4096).decode()
            except OSError:
                break
    shell.kill()
    shell.wait()
    os.close(leader)
    assert "mixtral-8x22b" in (here / "one").read_text(), shown
    assert "chat.yaml" in shown
    assert "southamerica-west1" in (here / "three").read_text(), shown
