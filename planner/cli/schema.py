"""tonnage schema: JSON Schema of a spec, of what commands write, or of a file of one's own."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Final

import click

from planner.cli.option import output, write_output

if TYPE_CHECKING:
    from planner.spec.field import JsonSchema

# Where the schema of a document is made: only that module is imported.
DOCUMENTS: Final = {
    "spec": "planner.spec.schema:spec_schema",
    "plan": "planner.plan.canonical:plan_schema",
    "portfolio": "planner.plan.portfolio_document:portfolio_schema",
    "diff": "planner.plan.diff_document:diff_schema",
    "error": "planner.plan.error_document:error_schema",
    "world": "providers.simulated.world_file:world_schema",
}
OWN_FILES: Final = ("prices", "owned", "budgets", "on_premises", "policy")


@click.command("schema")
@click.argument("document", type=click.Choice([*DOCUMENTS, *OWN_FILES]))
@output
def command(document: str, output: str | None) -> int:
    """Print the JSON Schema (draft 2020-12) of a kind of file, for editors.

    Example: tonnage schema spec -o spec.schema.json
    """
    write_output(schema_text(document), output)
    return 0


def schema_text(document: str) -> str:
    """Return the schema of a kind of file as JSON."""
    return json.dumps(_schema(document), indent=2, sort_keys=True) + "\n"


def _schema(document: str) -> JsonSchema:
    if document in OWN_FILES:
        from planner.plan.own_file import file_schema

        return file_schema(document)
    module_name, function_name = DOCUMENTS[document].split(":")
    schema: JsonSchema = getattr(import_module(module_name), function_name)()
    return schema
