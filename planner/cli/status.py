"""tonnage status: what a stack has and costs now."""

from __future__ import annotations

from typing import Any

import click

from planner.cli import option
from planner.cli.compose import open_engine
from planner.errors import MissingError, Problem


@click.command("status")
@click.argument("stack", required=False, callback=option.stack_name)
@option.simulate
@option.engine
@option.backend
@option.formats("text", "json", "markdown")
@option.color
@click.option("--full", is_flag=True, help="List every resource.")
def command(stack: str | None, **values: Any) -> int:
    """Show STACK as its state has it, or name all stacks.

    Example: tonnage status chat-8b --simulate
    """
    from planner.render.status import listing, page

    engine = open_engine(option.options(values))
    if stack is None:
        names = engine.stacks()
        option.show(listing(names), values["format"], values["color"])
        return 0
    standing = engine.standing(stack)
    if standing is None:
        step = "see all stacks: tonnage status"
        problem = Problem(
            code="stack", message=f"no stack is named {stack}", next_step=step
        )
        raise MissingError(problem)
    document = {
        "schema": "tonnage.status/1",
        "stack": standing.name,
        "plan": standing.plan,
        "state_sha256": standing.sha256,
        "complete": standing.complete,
        "resources": [{"type": t, "name": n} for t, n in standing.resources],
        "outputs": standing.outputs,
        "facts": standing.facts,
    }
    if values["format"] == "json":
        from planner.plan.canonical import dump

        option.write(dump(document))
    else:
        option.show(
            page(document, full=values["full"]),
            values["format"],
            values["color"],
        )
    return 0
