"""tonnage schema: JSON Schema of a spec, a plan or a world."""

from __future__ import annotations

import json

import click

from planner.cli.option import output, write_output


@click.command("schema")
@click.argument("document", type=click.Choice(["spec", "plan", "world"]))
@output
def command(document: str, output: str | None) -> int:
    """Print the JSON Schema (draft 2020-12) of a spec, a plan or a world file, for editors.

    Example: tonnage schema spec -o spec.schema.json
    """
    if document == "plan":
        from planner.plan.canonical import plan_schema

        schema = plan_schema()
    elif document == "world":
        from providers.simulated.world_file import world_schema

        schema = world_schema()
    else:
        from planner.spec.schema import spec_schema

        schema = spec_schema()
    write_output(json.dumps(schema, indent=2, sort_keys=True) + "\n", output)
    return 0
