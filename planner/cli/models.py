"""tonnage models: models that can be sized."""

from __future__ import annotations

from typing import Any

import click

from planner.cli import option


@click.command("models")
@click.argument("pattern", required=False, default="*")
@option.format_option("text", "json", "csv", "markdown")
@option.color
def command(pattern: str, **option_values: Any) -> int:
    """List the models that can be sized, and the known ones that cannot be yet.

    Example: tonnage models 'llama*'
    """
    from fnmatch import fnmatchcase

    from planner.facts.llm import models, unsized_models
    from planner.render.listing import model_rows, render_rows

    matching_models = [
        model_facts
        for model_name, model_facts in models().items()
        if fnmatchcase(model_name, pattern.lower())
    ]
    unsized_reasons = {
        unsized_name: reason_text
        for unsized_name, reason_text in unsized_models().items()
        if fnmatchcase(unsized_name, pattern.lower())
    }
    option.write_output(
        render_rows(
            model_rows(matching_models, unsized_reasons),
            option_values["format"],
            color=option.wants_color(option_values["color"]),
        )
    )
    return 0
