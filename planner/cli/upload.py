"""tonnage upload: bring weights, or the job of a training, to the bucket of a stack."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from planner import figures
from planner.cli import option, progress
from planner.cli.compose import open_bucket, standing_stack


@click.command("upload")
@option.stack_argument
@click.argument(
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option(
    "--service",
    default="",
    metavar="NAME",
    help="Bring the model of a service beside that of the spec (serving.beside).",
)
@option.simulate
@option.engine
@option.backend
def command(
    stack: str, folder: Path, service: str, **option_values: Any
) -> int:
    """Bring FOLDER to the bucket of STACK: weights of its model, or the job of a training.

    What has arrived already is not sent again, so an upload that was interrupted goes on. While
    an apply moves the stack, this is the bucket of the new machines, for which it waits.

    Example: tonnage upload chat-8b ./llama-3.1-8b --simulate
    """
    from stacks.operate.standing import upload_of
    from stacks.operate.upload import local_files, upload

    options = option.planning_options(option_values)
    status = standing_stack(stack, options).arriving
    rule = upload_of(status, service)
    bucket = open_bucket(status, options)
    with bucket.errors():
        files = local_files(folder, rule.required)
    store = bucket.folder(rule.prefix)
    started_s = time.monotonic()
    with (
        progress.transferring(
            "sent", sum(file.size for file in files)
        ) as listener,
        bucket.errors(),
    ):
        outcome = upload(store, files, listener)
    click.echo(
        f"uploaded {outcome.sent_files} of {outcome.all_files} files, "
        f"{figures.byte_size(outcome.sent_bytes)} of "
        f"{figures.byte_size(outcome.all_bytes)}, to {bucket.name}/{rule.prefix} in "
        f"{figures.duration(time.monotonic() - started_s)}"
    )
    return 0
