"""tonnage check: validate specs."""

from __future__ import annotations

import click

from planner.cli.compose import (
    SpecFile,
    open_catalog,
    read_spec,
    spec_folder_reader,
)
from planner.cli.option import write_output
from planner.errors import MissingError, SpecError, TonnageError
from planner.market.region import check_regions
from planner.workload.solver import check


def _errors(spec_path: str) -> list[TonnageError]:
    """Return all that a plan would refuse in a file, and announce one that is valid."""
    try:
        spec_file = read_spec(spec_path)
    except TonnageError as error:
        return [error]
    errors: list[TonnageError] = []
    for check_part in (_check_regions, _check_workload):
        try:
            check_part(spec_file)
        except TonnageError as error:
            errors.append(error)
    if not errors:
        write_output(
            f"{spec_path}: valid, {type(spec_file.spec).__name__} {spec_file.spec.name}\n"
        )
    return errors


def _check_regions(spec_file: SpecFile) -> None:
    # Most specs name no region, and need no catalog to be checked.
    where = spec_file.spec.where
    if where.regions:
        check_regions(where, open_catalog(None, None))


def _check_workload(spec_file: SpecFile) -> None:
    check(spec_file.spec, spec_folder_reader(spec_file.path))


@click.command("check")
@click.argument("specs", nargs=-1, required=True, metavar="SPEC...")
def command(specs: tuple[str, ...]) -> int:
    """Validate specs, offline and without solving them; every problem of every file is listed.

    Models, the files that a spec names, lengths, regions and runtime are checked as plan does.

    Example: tonnage check *.yaml
    """
    # All files are checked before the command fails.
    errors = [error for spec_path in specs for error in _errors(spec_path)]
    if not errors:
        return 0
    problems = [problem for error in errors for problem in error.problems]
    if all(isinstance(error, MissingError) for error in errors):
        raise MissingError(*problems)
    raise SpecError(*problems)
