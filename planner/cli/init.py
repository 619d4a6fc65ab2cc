"""tonnage init: write a commented spec from a blueprint."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from planner.cli import complete, option
from planner.cli.interview import ask_for_spec
from planner.cli.option import write_output
from planner.cli.pipeline import write_pipeline
from planner.cli.policy import POLICY_NAME
from planner.cli.schema import schema_text
from planner.errors import MissingError, Place, Problem, UsageError
from planner.suggest import closest

if TYPE_CHECKING:
    from planner.render.page import PageTable

DEFAULT_BLUEPRINT = "chat-8b"
# In the name of each schema of ours.
SCHEMA_MARK = "urn:tonnage:schema:"


@click.command("init")
@click.option("--list", "listing", is_flag=True, help="List the blueprints.")
@click.option(
    "--blueprint",
    shell_complete=complete.blueprint_names,
    metavar="NAME",
    default=DEFAULT_BLUEPRINT,
    help=f"Which one ({DEFAULT_BLUEPRINT}).",
)
@click.option(
    "-o",
    "--output",
    shell_complete=complete.file_names,
    metavar="FILE",
    help="Where to write it (NAME.yaml); - prints.",
)
@click.option(
    "--policy",
    "is_policy",
    is_flag=True,
    help="Write a policy.yaml with rules to choose from instead.",
)
@click.option(
    "--ci",
    shell_complete=complete.pipeline_systems,
    metavar="SYSTEM",
    help="Write pipelines instead: for github, gitlab, jenkins and others.",
)
@click.option("--force", is_flag=True, help="Write over a file that exists.")
@option.no_input
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    listing: bool,
    blueprint: str,
    output: str | None,
    is_policy: bool,
    ci: str | None,
    force: bool,
    no_input: bool,
) -> int:
    """Write a spec: of a blueprint that plans as it is, or of answers to some questions.

    It asks on a terminal, unless a flag says what to write: kind of work, model, limits, traffic
    and clouds. The schema is written beside the spec, so that editors know its keys.

    Example: tonnage init --blueprint chat-70b
    """
    if ci is not None:
        if is_policy or output is not None:
            raise click.UsageError("--ci goes with neither --policy nor -o")
        return write_pipeline(ci, force=force)
    if is_policy:
        policy_file = files("blueprints") / "policies" / "guardrails.yaml"
        return _write_new(
            policy_file.read_text(encoding="utf-8"),
            output or POLICY_NAME,
            "choose from its rules, then tonnage check SPEC --policies",
            schema="policy",
            force=force,
        )
    # Blueprints are package data, so an installed program has them.
    blueprint_texts = {
        blueprint_file.name.removesuffix(".yaml"): blueprint_file.read_text(
            encoding="utf-8"
        )
        for blueprint_file in files("blueprints").iterdir()
        if blueprint_file.name.endswith(".yaml")
    }
    if listing:
        option.print_page((_listing(blueprint_texts),), "text")
        return 0
    is_chosen = (
        context.get_parameter_source("blueprint") != ParameterSource.DEFAULT
    )
    if not is_chosen and option.can_ask({"no_input": no_input}):
        text, target_path = ask_for_spec(output, force=force)
        return _write_spec(text, target_path, force=force)
    if blueprint not in blueprint_texts:
        raise _unknown_blueprint(blueprint, sorted(blueprint_texts))
    target_path = output or f"{blueprint}.yaml"
    return _write_spec(blueprint_texts[blueprint], target_path, force=force)


def _write_spec(text: str, target_path: str, *, force: bool) -> int:
    next_step = f"tonnage plan {target_path}"
    return _write_new(text, target_path, next_step, schema="spec", force=force)


def _write_new(
    text: str, target_path: str, next_step: str, *, schema: str, force: bool
) -> int:
    """Write a file that there is not yet, its schema, and say what comes next."""
    if target_path != "-" and Path(target_path).exists() and not force:
        problem = Problem(
            code="exists",
            message="the file exists",
            place=Place(target_path),
            next_step="name another with -o, or add --force",
        )
        raise UsageError(problem)
    write_output(text, target_path)
    # With - standard output must contain the file only.
    if target_path != "-":
        schema_name = _write_schema(schema, Path(target_path).parent)
        click.echo(
            f"wrote {target_path}{schema_name}     next: {next_step}",
            err=True,
        )
    return 0


def _write_schema(document: str, folder: Path) -> str:
    """Write the schema that the first line of a file names, and return how that is told.

    One of another version is replaced; a file that is none of ours stays.
    """
    text = schema_text(document)
    path = folder / f"{document}.schema.json"
    if path.exists():
        written = path.read_bytes().decode("utf-8", "replace")
        if written == text or SCHEMA_MARK not in written:
            return ""
    write_output(text, str(path))
    return f" and {path.name}"


def _listing(blueprint_texts: dict[str, str]) -> PageTable:
    """Return what each blueprint is for."""
    from planner.render.page import LINE_WIDTH, PageTable

    rows = tuple(
        (name, _blueprint_summary(text))
        for name, text in sorted(blueprint_texts.items())
    )
    return PageTable(("", ""), rows, width=LINE_WIDTH)


def _blueprint_summary(blueprint_text: str) -> str:
    """Return the first comment of a blueprint that is not an editor directive."""
    comment_lines = (
        comment_line[2:]
        for comment_line in blueprint_text.splitlines()
        if comment_line.startswith("# ")
    )
    return next(
        (
            comment_line
            for comment_line in comment_lines
            if not comment_line.startswith("yaml-language-server")
        ),
        "",
    )


def _unknown_blueprint(
    blueprint_name: str, blueprint_names: list[str]
) -> MissingError:
    close_name = closest(blueprint_name, blueprint_names)
    next_step = (
        f"did you mean '{close_name}'?"
        if close_name
        else "run: tonnage init --list"
    )
    message = f"no blueprint is named '{blueprint_name}'"
    return MissingError(
        Problem(code="blueprint", message=message, next_step=next_step)
    )
