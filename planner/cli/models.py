"""tonnage models: what can be sized."""

from __future__ import annotations

from typing import Any

import click

from planner.cli import option


@click.command("models")
@click.argument("pattern", required=False, default="*")
@option.formats("text", "json", "csv", "markdown")
@option.color
def command(pattern: str, **option_values: Any) -> int:
    """List the models that can be sized, and the known ones that cannot be yet.

    Example: tonnage models 'llama*'
    """
    from fnmatch import fnmatchcase

    from planner.facts.llm import models, unmodelled
    from planner.render.listing import model_rows, show

    matching_models = [
        model_facts
        for model_name, model_facts in models().items()
        if fnmatchcase(model_name, pattern.lower())
    ]
    unsized_reasons = {
        unsized_name: reason_text
        for unsized_name, reason_text in unmodelled().items()
        if fnmatchcase(unsized_name, pattern.lower())
    }
    option.write(
        show(
            model_rows(matching_models, unsized_reasons),
            option_values["format"],
            color=option.colored(option_values["color"]),
        )
    )
    return 0
