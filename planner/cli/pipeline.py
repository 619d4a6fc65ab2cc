"""Templates of pipelines, written to where a CI system looks for them."""

from __future__ import annotations

import csv
from importlib.resources import files
from pathlib import Path

import click

from planner.cli.option import write_output
from planner.errors import MissingError, Place, Problem, UsageError
from planner.suggest import closest

# Which template is which file of a repository: a row for each.
TARGETS = "targets.csv"


def write_pipeline(system: str, *, force: bool) -> int:
    """Write the templates of a CI system below the current folder, and return the exit code 0.

    All or none are written. Raises MissingError for an unknown system, UsageError where files
    exist and are not to be replaced.
    """
    templates = files("blueprints") / "ci"
    table_text = (templates / TARGETS).read_text(encoding="utf-8")
    rows = list(csv.DictReader(table_text.splitlines()))
    wanted_rows = [row for row in rows if row["system"] == system]
    if not wanted_rows:
        raise _unknown_system(system, sorted({row["system"] for row in rows}))
    existing_paths = [
        row["target"] for row in wanted_rows if Path(row["target"]).exists()
    ]
    if existing_paths and not force:
        raise UsageError(
            *(
                Problem(
                    code="exists",
                    message="the file exists",
                    place=Place(existing_path),
                    next_step="move it away, or add --force",
                )
                for existing_path in existing_paths
            )
        )
    for row in wanted_rows:
        target_path = Path(row["target"])
        target_path.parent.mkdir(parents=True, exist_ok=True)
        template_text = (templates / row["template"]).read_text("utf-8")
        write_output(template_text, str(target_path))
        click.echo(f"wrote {target_path}", err=True)
    click.echo(
        "next: read what each begins with, put specs into specs/, and commit them",
        err=True,
    )
    return 0


def _unknown_system(system: str, known_systems: list[str]) -> MissingError:
    close_name = closest(system, known_systems)
    next_step = (
        f"did you mean '{close_name}'?"
        if close_name
        else f"choose of {', '.join(known_systems)}"
    )
    message = f"there is no pipeline for '{system}'"
    return MissingError(
        Problem(code="pipeline", message=message, next_step=next_step)
    )
