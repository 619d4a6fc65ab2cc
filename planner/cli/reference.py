"""Writes the reference pages of the docs from the definitions.

Run `python -m planner.cli.reference` in the root of the project, or `make docs`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from planner.cli.main import COMMANDS, cli
from planner.spec.shape import KINDS

if TYPE_CHECKING:
    from planner.spec.field import Field


VARIABLES: Final = (
    "Made from the program by `make docs`. Every flag has a variable: `--format` of `plan` is "
    "`TONNAGE_PLAN_FORMAT`."
)
UNITS: Final = (
    "Made from the schema by `make docs`; `tonnage schema spec` prints the schema itself. Units "
    "are written as people write them: `70B`, `8k`, `800ms`, `14d`, `4TiB`, `99.9%`, "
    "`60000/month`."
)


def commands() -> str:
    """The page of all commands with their flags."""
    context = click.Context(cli, info_name="tonnage")
    parts = ["# Commands", "", VARIABLES, ""]
    for name in COMMANDS:
        command = cli.get_command(context, name)
        if command is None:
            continue
        takes = [
            _argument(p)
            for p in command.params
            if isinstance(p, click.Argument)
        ]
        help_ = "\n\n".join(
            " ".join(p.split()) for p in (command.help or "").split("\n\n")
        )
        usage = " ".join(["tonnage", name, *takes, "[FLAGS]"])
        parts += [f"## {name}", "", f"`{usage}`", "", help_, ""]
        flags = [p for p in command.params if isinstance(p, click.Option)]
        if flags:
            parts += ["| flag | meaning |", "|---|---|"]
        parts += [f"| `{_flag(p)}` | {p.help} |" for p in flags]
        parts.append("")
    return "\n".join(parts)


def _argument(argument: click.Argument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    return name if argument.required else f"[{name}]"


def _flag(option: click.Option) -> str:
    if option.is_flag:
        return ", ".join(option.opts)
    choices = getattr(option.type, "choices", ())
    value = option.metavar or ", ".join(str(c) for c in choices) or "N"
    return f"{', '.join(option.opts)} {value}"


def spec() -> str:
    """The page of all keys of a spec."""
    parts = ["# The spec", "", UNITS, ""]
    for name, block in KINDS.items():
        parts += [
            f"## {name}",
            "",
            block.doc,
            "",
            "| key | takes | meaning |",
            "|---|---|---|",
        ]
        parts += [row for field in block.fields for row in _rows(field, "")]
        parts.append("")
    return "\n".join(parts)


def _rows(field: Field, prefix: str) -> list[str]:
    """A row for a field, and for the fields of its block."""
    name = f"{prefix}{field.name}"
    kind: Any = getattr(field.kind, "block", field.kind)
    needed = " **required**" if field.required else ""
    rows = [f"| `{name}` | {_takes(field)} | {field.doc}{needed} |"]
    for inner in getattr(kind, "fields", ()):
        rows += _rows(inner, f"{name}.")
    return rows


def _takes(field: Field) -> str:
    """What a field takes, in a few words."""
    schema = field.kind.schema()
    for part in (schema, *schema.get("anyOf", [])):
        if "enum" in part:
            return ", ".join(f"`{word}`" for word in part["enum"])
        if "examples" in part:
            return f"such as `{part['examples'][0]}`"
        if part.get("type") == "array":
            return "a list"
    return "keys" if schema.get("type") == "object" else "text"


if __name__ == "__main__":
    folder = Path("docs")
    (folder / "commands.md").write_text(commands(), encoding="utf-8")
    (folder / "spec.md").write_text(spec(), encoding="utf-8")
