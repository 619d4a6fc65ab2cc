"""tonnage batch: requests to a standing batch stack, and their answers."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from planner.cli import option, progress
from planner.cli.compose import open_bucket, standing_stack
from planner.errors import Problem, UsageError

if TYPE_CHECKING:
    from stacks.operate.bucket import Bucket

LINES_PER_FILE = 1000


@click.group("batch")
def command() -> None:
    """Submit requests to a batch stack, see how far they are, and take their answers.

    Example: tonnage batch submit summaries requests.jsonl --simulate
    """


@command.command("submit", short_help="bring requests to a stack")
@click.argument("stack", callback=option.check_stack_name)
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option(
    "--job",
    metavar="NAME",
    callback=option.check_stack_name,
    help="Name of the batch; default the name of the first file.",
)
@click.option(
    "--lines",
    type=click.IntRange(1),
    default=LINES_PER_FILE,
    metavar="N",
    help=f"Requests in each file that a machine takes ({LINES_PER_FILE}).",
)
@option.simulate
@option.engine
@option.backend
def submit(stack: str, files: tuple[Path, ...], **option_values: Any) -> int:
    """Bring the requests of FILES, JSON lines, to STACK.

    A line is that of OpenAI's batch files. What has arrived already is not sent again.

    Example: tonnage batch submit summaries requests.jsonl --simulate
    """
    from stacks.operate import batch
    from stacks.operate.upload import upload

    job_name = option_values["job"] or _job_name(files[0])
    bucket = _batch_bucket(stack, option_values)
    with bucket.errors():
        batch.refuse_submitted(
            batch.batch_jobs(bucket.folder(batch.ROOT)), job_name
        )
    with TemporaryDirectory(prefix="tonnage-batch-") as folder:
        parts = batch.divide(files, option_values["lines"], Path(folder))
        with (
            progress.transferring(
                "sent", sum(part.size for part in parts)
            ) as listener,
            bucket.errors(),
        ):
            upload(bucket.folder(batch.input_folder(job_name)), parts, listener)
            batch.close_batch(
                bucket.folder(f"{batch.ROOT}{job_name}/"), len(parts)
            )
    click.echo(f"submitted {job_name} to {stack}: {len(parts)} files")
    click.echo(
        f"next: tonnage batch status {stack}{_flags(option_values)}  ·  "
        f"tonnage batch results {stack} {job_name}{_flags(option_values)}"
    )
    return 0


@command.command("status", short_help="how far batches are")
@click.argument("stack", callback=option.check_stack_name)
@option.simulate
@option.engine
@option.backend
@option.format_option("text", "json", "markdown")
@option.color
def status(stack: str, **option_values: Any) -> int:
    """Show how far the batches of STACK are.

    Example: tonnage batch status summaries --simulate
    """
    from msgspec import to_builtins

    from planner.render.status import batch_page
    from stacks.operate import batch

    bucket = _batch_bucket(stack, option_values)
    with bucket.errors():
        jobs = batch.batch_jobs(bucket.folder(batch.ROOT))
    if option_values["format"] == "json":
        option.write_output(json.dumps(to_builtins(jobs), indent=2) + "\n")
        return 0
    option.print_page(
        batch_page(stack, jobs), option_values["format"], option_values["color"]
    )
    return 0


@command.command("results", short_help="take the answers of a batch")
@click.argument("stack", callback=option.check_stack_name)
@click.argument("job", callback=option.check_stack_name)
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write to FOLDER; default the name of the batch.",
)
@option.simulate
@option.engine
@option.backend
def results(stack: str, job: str, **option_values: Any) -> int:
    """Write the answers of JOB to output.jsonl, and what was refused to errors.jsonl.

    Example: tonnage batch results summaries requests -o answers --simulate
    """
    from stacks.operate import batch

    bucket = _batch_bucket(stack, option_values)
    folder = option_values["output"] or Path(job)
    with bucket.errors():
        found = batch.find_job(batch.batch_jobs(bucket.folder(batch.ROOT)), job)
        store = bucket.folder(f"{batch.ROOT}{job}/")
        folder.mkdir(parents=True, exist_ok=True)
        with progress.waiting("fetching answers"):
            counts = {
                part: batch.collect(store, part, folder / f"{part}.jsonl")
                for part in ("output", "errors")
            }
    click.echo(
        f"{folder}: {counts['output']} answers, {counts['errors']} errors"
    )
    if not found.is_done:
        click.echo(
            f"{job} is not done: {found.answered} of {found.files or found.arrived} "
            "files have their answers",
            err=True,
        )
    return 0


def _batch_bucket(stack: str, option_values: dict[str, Any]) -> Bucket:
    """Return the bucket of a batch stack. Raises UsageError for a stack that is none."""
    options = option.planning_options(option_values)
    stack_status = standing_stack(stack, options)
    facts = stack_status.facts
    if facts is not None and facts.workload.kind != "batch":
        raise UsageError(
            Problem(
                code="batch",
                message=f"{stack} is no batch: its kind is {facts.workload.kind}",
                next_step="apply a spec of kind: Batch",
            )
        )
    return open_bucket(stack_status, options)


def _job_name(path: Path) -> str:
    """Return the name of a batch that a file gives it. Raises UsageError."""
    name = path.stem.lower().replace("_", "-").replace(".", "-")
    if not option.STACK_NAME.fullmatch(name):
        raise UsageError(
            Problem(
                code="batch",
                message=f"{path.name} gives no name to the batch",
                next_step="name it: --job NAME",
            )
        )
    return name


def _flags(option_values: dict[str, Any]) -> str:
    return progress.engine_flags(option.planning_options(option_values))
