"""tonnage models: models that can be sized."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click

from planner.cli import complete, option
from planner.suggest import prefix_pattern

if TYPE_CHECKING:
    from planner.facts.llm import Llm


@click.command("models")
@click.argument(
    "pattern", required=False, default="*", shell_complete=complete.model_names
)
@option.full_rows
@option.format_option("text", "json", "csv", "markdown")
@option.color
def command(pattern: str, **option_values: Any) -> int:
    """List the models that can be sized, and the known ones that cannot be yet.

    PATTERN is the beginning of a name, a pattern, or any name of a model, as Hugging Face has it.

    Example: tonnage models 'llama*'
    """
    from planner.facts.llm import unsized_models
    from planner.render.listing import model_rows
    from planner.render.model_list import models_page

    glob = prefix_pattern(pattern.lower())
    unsized_reasons = {
        unsized_name: reason_text
        for unsized_name, reason_text in unsized_models().items()
        if fnmatchcase(unsized_name, glob)
    }
    found_models = _matching(pattern, glob, has_others=bool(unsized_reasons))
    if option_values["format"] == "text" and not option_values["full"]:
        option.print_page(
            models_page(found_models, unsized_reasons),
            "text",
            option_values["color"],
        )
    else:
        option.write_rows(
            model_rows(found_models, unsized_reasons), option_values
        )
    return 0


def _matching(pattern: str, glob: str, *, has_others: bool) -> list[Llm]:
    """Return the models of a pattern; raises MissingError where nothing has the name."""
    from planner.facts.llm import find_model, models

    found_models = [
        model_facts
        for model_name, model_facts in models().items()
        if fnmatchcase(model_name, glob)
    ]
    if found_models or has_others:
        return found_models
    # It may be an alias, and the error names what is close.
    return [find_model(pattern)]
