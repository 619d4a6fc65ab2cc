"""tonnage check: validate specs."""

from __future__ import annotations

import click

from planner.cli.compose import SpecFile, open_catalog, read_spec
from planner.cli.option import write_output
from planner.errors import Problem, SpecError, TonnageError
from planner.market.region import check_regions


def _check_regions(spec_file: SpecFile) -> None:
    # Most specs name no region, and need no catalog to be checked.
    where = spec_file.spec.where
    if where.regions:
        check_regions(where, open_catalog(None, None))


@click.command("check")
@click.argument("specs", nargs=-1, required=True, metavar="SPEC...")
def command(specs: tuple[str, ...]) -> int:
    """Validate specs, offline and without solving them; every problem of every file is listed.

    Example: tonnage check *.yaml
    """
    problems: list[Problem] = []
    for spec_path in specs:
        try:
            spec_file = read_spec(spec_path)
            _check_regions(spec_file)
        # All files are checked before the command fails.
        except TonnageError as error:
            problems += error.problems
        else:
            write_output(
                f"{spec_path}: valid, {type(spec_file.spec).__name__} {spec_file.spec.name}\n"
            )
    if problems:
        raise SpecError(*problems)
    return 0
