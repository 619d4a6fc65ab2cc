"""tonnage batch: requests to a standing batch stack, and their answers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec.structs import asdict

from planner.cli import option, progress
from planner.cli.compose import open_bucket, standing_stack
from planner.errors import Problem, UsageError

if TYPE_CHECKING:
    from stacks.operate.bucket import Bucket

LINES_PER_FILE = 1000
UNFINISHED_EXIT_CODE = 5


# A folder of the bucket has the name of its batch.
JOB_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", re.ASCII)


def _check_job_name(
    _context: click.Context, _parameter: click.Parameter, name_text: str | None
) -> Any:
    """Return the name of a batch; raises BadParameter when it is invalid."""
    if name_text is not None and not JOB_NAME.fullmatch(name_text):
        raise click.BadParameter(
            "use 1 to 40 lowercase letters, digits and inner hyphens"
        )
    return name_text


@click.group("batch")
def command() -> None:
    """Submit requests to a batch stack, see how far they are, and take their answers.

    Example: tonnage batch submit summaries requests.jsonl --simulate
    """


@command.command("submit", short_help="bring requests to a stack")
@option.stack_argument
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option(
    "--job",
    metavar="NAME",
    callback=_check_job_name,
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
    from stacks.runtime.vm.node.batch import PREFIX

    job_name = option_values["job"] or _job_name(files[0])
    bucket, is_endless = _batch_bucket(stack, option_values)
    with bucket.errors():
        jobs = batch.batch_jobs(bucket.folder(PREFIX))
    batch.refuse_submitted(jobs, job_name)
    have_left = not is_endless and batch.has_ended(jobs)
    with TemporaryDirectory(prefix="tonnage-batch-") as folder:
        parts = batch.divide(files, option_values["lines"], Path(folder))
        with (
            progress.transferring(
                "sent", sum(part.size for part in parts)
            ) as listener,
            bucket.errors(),
        ):
            job_store = bucket.folder(batch.job_folder(job_name))
            batch.open_batch(job_store, job_name, parts)
            upload(bucket.folder(batch.input_folder(job_name)), parts, listener)
            batch.close_batch(job_store, len(parts))
    click.echo(f"submitted {job_name} to {stack}: {_files(len(parts))}")
    if have_left:
        click.echo(
            f"its machines have left; bring them back: tonnage start {stack}"
            f"{_flags(option_values)}",
            err=True,
        )
    click.echo(
        f"next: tonnage batch status {stack}{_flags(option_values)}  ·  "
        f"tonnage batch results {stack} {job_name}{_flags(option_values)}"
    )
    return 0


@command.command("status", short_help="how far batches are")
@option.stack_argument
@option.simulate
@option.engine
@option.backend
@option.format_option("text", "json", "markdown")
@option.color
def status(stack: str, **option_values: Any) -> int:
    """Show how far the batches of STACK are.

    Example: tonnage batch status summaries --simulate
    """
    from planner.render.status import batch_page
    from stacks.operate import batch
    from stacks.runtime.vm.node.batch import PREFIX

    bucket, _ = _batch_bucket(stack, option_values)
    with bucket.errors():
        jobs = batch.batch_jobs(bucket.folder(PREFIX))
    if option_values["format"] == "json":
        documents = [{**asdict(job), "state": job.state} for job in jobs]
        option.write_output(json.dumps(documents, indent=2) + "\n")
        return 0
    option.print_page(
        batch_page(stack, jobs), option_values["format"], option_values["color"]
    )
    return 0


@command.command("results", short_help="take the answers of a batch")
@option.stack_argument
@click.argument("job", callback=_check_job_name)
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

    A batch that is not done gives what is there, and exit code 5.

    Example: tonnage batch results summaries requests -o answers --simulate
    """
    from stacks.operate import batch
    from stacks.runtime.vm.node.batch import PREFIX

    bucket, _ = _batch_bucket(stack, option_values)
    folder = option_values["output"] or Path(job)
    with bucket.errors():
        found = batch.find_job(
            batch.batch_jobs(bucket.folder(PREFIX)),
            job,
            f"see: tonnage batch status {stack}{_flags(option_values)}",
        )
        store = bucket.folder(batch.job_folder(job))
        batch.claim_folder(folder, stack, job)
        with progress.waiting("fetching answers"):
            counts = {
                part: batch.collect(store, part, folder / f"{part}.jsonl")
                for part in batch.FETCHED_PARTS
            }
    click.echo(
        f"{folder}: {counts['output']} answers, {counts['errors']} errors"
    )
    if found.is_done:
        return 0
    click.echo(
        f"{job} is not done: {found.answered} of "
        f"{_files(found.files or found.arrived)} answered",
        err=True,
    )
    return UNFINISHED_EXIT_CODE


def _batch_bucket(
    stack: str, option_values: dict[str, Any]
) -> tuple[Bucket, bool]:
    """Return the bucket of a batch stack, and whether its machines wait for more for ever.

    Raises UsageError for a stack that is none.
    """
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
    is_endless = facts is None or facts.cost_period != "run"
    return open_bucket(stack_status, options), is_endless


def _job_name(path: Path) -> str:
    """Return the name of a batch that a file gives it. Raises UsageError."""
    name = path.stem.lower().replace("_", "-").replace(".", "-")
    if not JOB_NAME.fullmatch(name):
        raise UsageError(
            Problem(
                code="batch",
                message=f"{path.name} gives no name to the batch",
                next_step="name it: --job NAME",
            )
        )
    return name


def _files(count: int) -> str:
    return f"{count} {'file' if count == 1 else 'files'}"


def _flags(option_values: dict[str, Any]) -> str:
    return option.planning_options(option_values).flags
