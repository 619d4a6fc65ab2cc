"""tonnage show: a saved plan, rendered again."""

from __future__ import annotations

from typing import Any

import click

from planner.cli import option
from planner.cli.compose import read_file
from planner.errors import Place, Problem, UsageError


@click.command("show")
@click.argument("plan")
@option.formats("text", "json", "markdown")
@option.output
@option.color
@click.option("--full", is_flag=True, help="List every resource.")
@click.option(
    "--slurm", is_flag=True, help="Only the batch script of a training job."
)
def command(plan: str, **values: Any) -> int:
    """Render a saved PLAN again, without planning again.

    Example: tonnage show chat.plan.json --full
    """
    from planner.plan.canonical import dump, parse
    from planner.render import markdown, text
    from planner.render.plan import page

    document = parse(read_file(plan), plan)
    form, output = values["format"], values["output"]
    if values["slurm"]:
        option.write(_slurm(document, plan), output)
        return 0
    if form == "json":
        option.write(dump(document), output)
        return 0
    shown = page(document, full=values["full"])
    if output:
        body = (
            markdown.render(shown) if form == "markdown" else text.render(shown)
        )
        option.write(body, output)
    else:
        option.show(shown, form, values["color"])
    return 0


def _slurm(document: dict[str, Any], plan: str) -> str:
    """The batch script; raises UsageError when the plan trains nothing."""
    found = document["launch"]
    if found is None:
        raise UsageError(
            Problem(
                code="plan",
                message="only plans of training jobs have a batch script",
                place=Place(plan),
                next_step="plan a spec of kind: Training",
            )
        )
    script: str = found["slurm"]
    return script
