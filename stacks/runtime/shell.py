"""Shell scripts as files: read from their package, filled, and every value quoted.

A placeholder is written @{name}, so that $ stays the shell's and a script is checked as it stands.
"""

from __future__ import annotations

import shlex
from functools import cache
from string import Template
from typing import TYPE_CHECKING, Final

from planner.facts.table import package_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PLACEHOLDER: Final = r"""
    @\{(?P<braced>[a-z_]+)\}
    | (?P<escaped>(?!)) | (?P<named>(?!)) | (?P<invalid>(?!))
"""


class ShellTemplate(Template):
    """A template of string.Template whose placeholders are @{name} and nothing else."""

    delimiter = "@"
    # Template itself compiles this text, of which its stub says that it is compiled.
    pattern = PLACEHOLDER  # type: ignore[assignment]


@cache
def read_script(package: str, path: str) -> str:
    """Return the text of a file of a package."""
    return package_text(package, path)


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
