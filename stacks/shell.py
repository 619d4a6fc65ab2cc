"""Shell scripts as files: read from their package, filled, and every value quoted.

A placeholder is written @{name}, so that $ stays the shell's and a script is checked as it stands.
"""

from __future__ import annotations

import re
import shlex
from functools import cache
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HEADER: Final = re.compile(r"\A#!.*\n(?:#.*\n)*")
# The first line says which shell runs it.
COMMENT_LINE: Final = re.compile(r"^ *#(?!!).*\n", re.MULTILINE)
PLACEHOLDER: Final = r"""
    @\{(?P<braced>[a-z_]+)\}
    | (?P<escaped>(?!)) | (?P<named>(?!)) | (?P<invalid>(?!))
"""
HERE_DOCUMENT_END: Final = "TONNAGE_FILE"


class ShellTemplate(Template):
    """A template of string.Template whose placeholders are @{name} and nothing else."""

    delimiter = "@"
    # Template itself compiles this text, of which its stub says that it is compiled.
    pattern = PLACEHOLDER  # type: ignore[assignment]


@cache
def read_script(package: str, path: str) -> str:
    """Return the text of a file of a package."""
    return files(package).joinpath(path).read_text(encoding="utf-8")


def fill_script(
    package: str,
    path: str,
    values: Mapping[str, str | int | Sequence[str]],
    code: Mapping[str, str] | None = None,
) -> str:
    """Fill the placeholders of a script of a package.

    A value is quoted as one word, a sequence of values as as many words. What is given as `code`
    is shell itself and stands as it is. Raises KeyError for a placeholder that nothing fills.
    """
    quoted_values = {
        name: shlex.quote(str(value))
        if isinstance(value, str | int)
        else shlex.join(value)
        for name, value in values.items()
    }
    return ShellTemplate(read_script(package, path)).substitute(
        {**quoted_values, **(code or {})}
    )


def without_header(script: str) -> str:
    """Return a script without its first comment, to stand inside another one."""
    return HEADER.sub("", script).rstrip("\n")


def without_comments(script: str) -> str:
    """Return a script without the lines that are comments: user data has little room."""
    return COMMENT_LINE.sub("", script)


def write_file(path: str, text: str) -> str:
    """Return the shell that writes a text to a file as it stands, with nothing expanded.

    Raises ValueError when a line of the text would end the file early.
    """
    if HERE_DOCUMENT_END in text.splitlines():
        message = f"{path}: {HERE_DOCUMENT_END} is the line that ends a file"
        raise ValueError(message)
    ended_text = text if text.endswith("\n") else f"{text}\n"
    return (
        f"cat > {shlex.quote(path)} <<'{HERE_DOCUMENT_END}'\n"
        f"{ended_text}{HERE_DOCUMENT_END}\n"
    )
