"""tonnage init: a commented spec to start from."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from planner.cli.option import write
from planner.errors import MissingError, Place, Problem, UsageError

DEFAULT = "chat-8b"


@click.command("init")
@click.option("--list", "listing", is_flag=True, help="List the blueprints.")
@click.option(
    "--blueprint",
    metavar="NAME",
    default=DEFAULT,
    help=f"Which one ({DEFAULT}).",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Where to write it (NAME.yaml); - prints.",
)
@click.option("--force", is_flag=True, help="Write over a file that exists.")
def command(
    *, listing: bool, blueprint: str, output: str | None, force: bool
) -> int:
    """Write a blueprint: a spec that plans as it is, with comments that explain it.

    Example: tonnage init --blueprint chat-70b
    """
    known = {
        p.name.removesuffix(".yaml"): p.read_text(encoding="utf-8")
        for p in files("blueprints").iterdir()
        if p.name.endswith(".yaml")
    }
    if listing:
        width = max(len(name) for name in known)
        for name in sorted(known):
            write(f"{name.ljust(width)}  {_about(known[name])}\n")
        return 0
    if blueprint not in known:
        raise _unknown(blueprint, sorted(known))
    target = output or f"{blueprint}.yaml"
    if target != "-" and Path(target).exists() and not force:
        problem = Problem(
            code="exists",
            message="the file exists",
            place=Place(target),
            next_step="name another with -o, or add --force",
        )
        raise UsageError(problem)
    write(known[blueprint], target)
    if target != "-":
        click.echo(f"wrote {target}     next: tonnage plan {target}", err=True)
    return 0


def _about(text: str) -> str:
    """The first comment of a blueprint that is not for the editor."""
    lines = (line[2:] for line in text.splitlines() if line.startswith("# "))
    return next(
        (line for line in lines if not line.startswith("yaml-language-server")),
        "",
    )


def _unknown(name: str, known: list[str]) -> MissingError:
    import difflib

    close = difflib.get_close_matches(name, known, 1)
    step = (
        f"did you mean '{close[0]}'?" if close else "run: tonnage init --list"
    )
    message = f"no blueprint is named '{name}'"
    return MissingError(
        Problem(code="blueprint", message=message, next_step=step)
    )
