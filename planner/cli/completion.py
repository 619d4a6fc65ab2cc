"""tonnage completion: the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from planner.cli.option import write_output


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> int:
    """Print the completion script for bash, zsh or fish.

    Example: tonnage completion bash > ~/.local/share/bash-completion/completions/tonnage
    """
    from planner.cli.main import cli

    completion_class = get_completion_class(shell)
    assert completion_class is not None  # noqa: S101 - click ships all three
    write_output(
        completion_class(cli, {}, "tonnage", "_TONNAGE_COMPLETE").source()
        + "\n"
    )
    return 0
