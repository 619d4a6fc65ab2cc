"""tonnage schema: JSON Schema of a spec, a plan, a difference, a world or a file of one's own."""

from __future__ import annotations

import json

import click

from planner.cli.option import output, write_output


@click.command("schema")
@click.argument(
    "document",
    type=click.Choice(
        [
            "spec",
            "plan",
            "diff",
            "world",
            "prices",
            "owned",
            "budgets",
            "on_premises",
            "policy",
        ]
    ),
)
@output
def command(document: str, output: str | None) -> int:
    """Print the JSON Schema (draft 2020-12) of a kind of file, for editors.

    Example: tonnage schema spec -o spec.schema.json
    """
    if document == "plan":
        from planner.plan.canonical import plan_schema

        schema = plan_schema()
    elif document == "diff":
        from planner.plan.diff_document import diff_schema

        schema = diff_schema()
    elif document == "world":
        from providers.simulated.world_file import world_schema

        schema = world_schema()
    elif document == "spec":
        from planner.spec.schema import spec_schema

        schema = spec_schema()
    else:
        from planner.plan.own_file import file_schema

        schema = file_schema(document)
    write_output(json.dumps(schema, indent=2, sort_keys=True) + "\n", output)
    return 0
