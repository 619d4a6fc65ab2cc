"""tonnage schema: the JSON Schema of a spec."""

from __future__ import annotations

import json

import click

from planner.cli.option import output, write_output


@click.command("schema")
@click.argument("what", type=click.Choice(["spec"]))
@output
def command(what: str, output: str | None) -> int:  # noqa: ARG001 - there is one schema so far
    """Print the JSON Schema (draft 2020-12) of a spec, for editors and pipelines.

    Example: tonnage schema spec -o spec.schema.json
    """
    from planner.spec.schema import spec_schema

    write_output(
        json.dumps(spec_schema(), indent=2, sort_keys=True) + "\n", output
    )
    return 0
