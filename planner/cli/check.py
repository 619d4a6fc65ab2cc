"""tonnage check: is a spec valid."""

from __future__ import annotations

import click

from planner.cli.compose import read_spec
from planner.cli.option import write
from planner.errors import Problem, SpecError, TonnageError


@click.command("check")
@click.argument("specs", nargs=-1, required=True, metavar="SPEC...")
def command(specs: tuple[str, ...]) -> int:
    """Validate specs, offline and without solving them; every problem of every file is listed.

    Example: tonnage check *.yaml
    """
    problems: list[Problem] = []
    for path in specs:
        try:
            source = read_spec(path)
        except TonnageError as error:
            problems += error.problems
        else:
            write(
                f"{path}: valid, {type(source.spec).__name__} {source.spec.name}\n"
            )
    if problems:
        raise SpecError(*problems)
    return 0
