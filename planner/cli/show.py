"""tonnage show: a saved plan, rendered again."""

from __future__ import annotations

import click

from planner.cli import option
from planner.cli.compose import read_file


@click.command("show")
@click.argument("plan")
@option.formats("text", "json", "markdown")
@option.output
@option.color
@click.option("--full", is_flag=True, help="List every resource.")
def command(plan: str, form: str, output: str | None, color: str, full: bool) -> int:  # noqa: FBT001
    """Render a saved PLAN again, without planning again.

    Example: tonnage show chat.plan.json --full
    """
    from planner.plan.canonical import dump, parse
    from planner.render import markdown, text
    from planner.render.plan import page

    document = parse(read_file(plan), plan)
    if form == "json":
        option.write(dump(document), output)
    elif output:
        shown = page(document, full=full)
        body = markdown.render(shown) if form == "markdown" else text.render(shown)
        option.write(body, output)
    else:
        option.show(page(document, full=full), form, color)
    return 0
