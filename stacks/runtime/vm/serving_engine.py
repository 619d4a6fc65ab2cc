"""How each serving engine is launched: its program, and the names of its arguments.

What is known of an engine is rows of `stacks/data/serving_engines.csv`. A setting without a row is
one that the engine has no argument for.
"""

from __future__ import annotations

import shlex
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.facts import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from planner.facts.accelerator import Accelerator

KINDS: Final = ("program", "environment", "option", "file")
SERVER: Final = "server"
FILE: Final = "file"
KEY: Final = "key"
# Arguments that every launch has, where the engine has them.
FIXED: Final = ("address", "metrics", "backend", FILE)


class EngineLaunch(Struct, frozen=True, kw_only=True):
    """The launch of one engine.

    server       first words of its program, with {folder} for that of the weights
    key_prelude  commands of the shell before it where clients have a key
    environment  variables
    options      words of each setting by its name, with {value}
    file_writer  command of the shell that writes the file of its settings, with {lines}; empty
                 for an engine that has arguments for all of them
    file_lines   lines of that file, with the names of settings
    """

    server: str
    key_prelude: tuple[str, ...]
    environment: dict[str, str]
    options: dict[str, str]
    file_writer: str
    file_lines: tuple[str, ...]

    def program(self, folder: str) -> list[str]:
        """Return the program with its first words."""
        return [word.format(folder=folder) for word in self.server.split()]

    def words(self, settings: Iterable[tuple[str, object]]) -> list[str]:
        """Return the arguments of settings, in their order."""
        return [
            word.format(value=value)
            for name, value in settings
            for word in self.options.get(name, "").split()
        ]

    def prelude(
        self, settings: Mapping[str, object], *, has_key: bool
    ) -> tuple[str, ...]:
        """Return the commands of the shell before the program."""
        lines = [
            shlex.quote(line.format(**settings)) for line in self.file_lines
        ]
        return (
            *(
                [self.file_writer.format(lines=" ".join(lines))]
                if lines
                else []
            ),
            *(self.key_prelude if has_key else ()),
        )


@cache
def engine_launches() -> dict[str, EngineLaunch]:
    """Return how engines are launched, by their names."""
    columns: table.Columns = {
        "engine": table.nonempty_text,
        "kind": table.one_of(*KINDS),
        "name": table.nonempty_text,
        "text": table.nonempty_text,
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    texts: dict[str, dict[str, dict[str, str]]] = {}
    for row in table.load_rows("stacks", "serving_engines.csv", columns):
        kinds = texts.setdefault(row["engine"], {kind: {} for kind in KINDS})
        kinds[row["kind"]][row["name"]] = row["text"]
    return {
        engine: EngineLaunch(
            server=kinds["program"][SERVER],
            key_prelude=tuple(
                text
                for name, text in kinds["program"].items()
                if name not in (SERVER, FILE)
            ),
            environment=kinds["environment"],
            options=kinds["option"],
            file_writer=kinds["program"].get(FILE, ""),
            file_lines=tuple(kinds["file"].values()),
        )
        for engine, kinds in texts.items()
    }


def expert_kernels(
    engine: str, precision: str, accelerator: Accelerator
) -> str:
    """Return the kernels that an engine is told to take for experts, empty without a row.

    Weights in fp8 count as scaled in blocks, as DeepSeek and Qwen publish theirs.
    """
    capability_column = table.real_between(1, 100)
    columns: table.Columns = {
        "engine": table.nonempty_text,
        "precision": table.nonempty_text,
        "from_capability": capability_column,
        "to_capability": capability_column,
        "kernels": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return next(
        (
            str(row["kernels"])
            for row in table.load_rows("stacks", "expert_kernels.csv", columns)
            if (row["engine"], row["precision"]) == (engine, precision)
            and accelerator.has_capability(
                row["from_capability"], row["to_capability"]
            )
        ),
        "",
    )
