"""tonnage import: let a stack take over an object that there is already."""

from __future__ import annotations

from typing import Any

import click

from planner.cli import complete, option
from planner.cli.compose import open_engine, read_file
from planner.errors import MissingError, Problem
from planner.suggest import closest
from providers.files import MAX_DOCUMENT_BYTES


@click.command("import")
@click.argument("plan", shell_complete=complete.file_names)
@click.argument("resource")
@click.argument("object_id", metavar="ID")
@option.simulate
@option.engine
@option.backend
def command(
    plan: str, resource: str, object_id: str, **option_values: Any
) -> int:
    """Let the next apply of PLAN take the object ID as its RESOURCE, instead of making one.

    The object has to exist, and has to have the name that the plan gives it.

    Example: tonnage import chat.plan.json models my-bucket
    """
    from planner.plan.canonical import parse_plan
    from stacks.graph import parse_graph

    options = option.planning_options(option_values)
    document = parse_plan(read_file(plan, MAX_DOCUMENT_BYTES), plan)
    resources = {
        planned.name: planned
        for planned in parse_graph(document.graph).resources
    }
    if resource not in resources:
        close_name = closest(resource, resources)
        raise MissingError(
            Problem(
                code="resource",
                message=f"the plan has no resource {resource}",
                next_step=f"did you mean {close_name}?"
                if close_name
                else "see them: tonnage show PLAN --full",
            )
        )
    open_engine(options).take_over(document, resource, object_id)
    click.echo(
        f"{object_id} becomes {resource} of {document.stack.name} with the next apply\n"
        f"next: tonnage plan SPEC --stack {document.stack.name}{options.flags}"
    )
    return 0
