"""tonnage models: what can be sized."""

from __future__ import annotations

from typing import Any

import click

from planner.cli import option


@click.command("models")
@click.argument("pattern", required=False, default="*")
@option.formats("text", "json", "csv", "markdown")
@option.color
def command(pattern: str, **values: Any) -> int:
    """List the models that can be sized, and the known ones that cannot be yet.

    Example: tonnage models 'llama*'
    """
    from fnmatch import fnmatchcase

    from planner.facts.llm import models, unmodelled
    from planner.render.listing import model_rows, show

    found = [
        m for name, m in models().items() if fnmatchcase(name, pattern.lower())
    ]
    not_yet = {
        n: w for n, w in unmodelled().items() if fnmatchcase(n, pattern.lower())
    }
    option.write(
        show(
            model_rows(found, not_yet),
            values["format"],
            color=option.colored(values["color"]),
        )
    )
    return 0
