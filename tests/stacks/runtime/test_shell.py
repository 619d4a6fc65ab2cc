"""Scripts from files: what is filled in reaches the shell as it was, whatever it holds."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.runtime.shell import ShellTemplate, fill_script
from tests.conftest import ROOT

SCRIPTS = sorted((ROOT / "stacks").rglob("*.sh"))
WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=20)


def run(script: str) -> str:
    done = subprocess.run(
        ["bash", "-c", script], check=True, capture_output=True
    )
    return done.stdout.decode()


@given(WORDS, st.lists(WORDS, min_size=1, max_size=3))
def test_values_arrive_as_the_words_that_they_were(
    value: str, words: list[str]
) -> None:
    filled = ShellTemplate("printf '%s\\n' @{one} @{many}").substitute(
        one=shlex.quote(value), many=shlex.join(words)
    )
    assert run(filled).split("\n") == [value, *words, ""]


def slurm_script(arguments: list[str]) -> str:
    values: dict[str, str | int | list[str]] = {
        "name": "n",
        "nodes": 1,
        "ranks_per_node": 1,
        "master_port": 1,
        "grace_s": 1,
        "arguments": arguments,
    }
    return fill_script(
        "stacks.runtime.vm", "scripts/slurm.sh", values, {"exports": ""}
    )


def test_a_job_that_fails_at_once_is_told_apart() -> None:
    # The shell has time to forget the job before it is waited for.
    stubs = (
        "scontrol() { :; }; srun() { return 7; }\n"
        'trap() { sleep 0.2; builtin trap "$@"; }\n'
    )
    done = subprocess.run(
        ["bash", "-c", stubs + slurm_script(["x"])], check=False
    )
    assert done.returncode == 7


def test_a_hostile_value_stays_one_word_of_a_script() -> None:
    hostile = "x'; touch /tmp/owned; $(reboot) `reboot` \"&"
    script = slurm_script([hostile, "next"])
    stubs = "scontrol() { :; }; srun() { printf '%s\\n' \"$@\"; }\n"
    assert run(stubs + script).split("\n")[-3:] == [hostile, "next", ""]


def test_a_placeholder_that_nothing_fills_is_an_error() -> None:
    with pytest.raises(KeyError, match="name"):
        fill_script("stacks.runtime.vm", "scripts/slurm.sh", {"nodes": 1})


def test_an_array_and_a_dollar_are_the_shells() -> None:
    text = 'x=(a b); echo "${x[@]}" user@host $HOME'
    assert ShellTemplate(text).substitute() == text


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_says_how_it_runs_and_what_it_does(path: Path) -> None:
    first, second, *_ = path.read_text().splitlines()
    assert first in ("#!/bin/sh", "#!/bin/bash")
    assert second.startswith("#")
