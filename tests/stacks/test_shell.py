"""Scripts from files: what is filled in reaches the shell as it was, whatever it holds."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.shell import (
    ShellTemplate,
    fill_script,
    without_comments,
    without_header,
    write_file,
)
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


def test_a_hostile_value_stays_one_word_of_a_script() -> None:
    hostile = "x'; touch /tmp/owned; $(reboot) `reboot` \"&"
    values = {"checkpoints": hostile, "bucket": "b", "region": "r"}
    command = fill_script("stacks.aws", "commands/save_checkpoints.sh", values)
    told = run(f"aws() {{ printf '%s\\n' \"$@\"; }}\n{command}").split("\n")
    assert told[4] == hostile
    assert told[5:] == ["s3://b/checkpoints", ""]


def test_a_placeholder_that_nothing_fills_is_an_error() -> None:
    with pytest.raises(KeyError, match="group"):
        fill_script("stacks.gcp", "commands/give_back.sh", {"zone": "z"})


def test_an_array_and_a_dollar_are_the_shells() -> None:
    text = 'x=(a b); echo "${x[@]}" user@host $HOME'
    assert ShellTemplate(text).substitute() == text


def test_a_file_is_written_as_it_stands(tmp_path: Path) -> None:
    text = "a $HOME `date` \\ 'b'\n@{c}\n"
    path = tmp_path / "a file"
    run(write_file(str(path), text))
    assert path.read_text() == text
    with pytest.raises(ValueError, match="ends a file"):
        write_file("x", "one\nTONNAGE_FILE\n")


def test_lines_that_are_comments_go_and_the_rest_stays() -> None:
    script = "#!/bin/bash\n# one\n  # two\necho '# three' # four\n"
    assert without_comments(script) == "#!/bin/bash\necho '# three' # four\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_says_how_it_runs_and_what_it_does(path: Path) -> None:
    first, second, *_ = path.read_text().splitlines()
    assert first in ("#!/bin/sh", "#!/bin/bash")
    assert second.startswith("#")
    assert not without_header(path.read_text()).startswith("#!")
