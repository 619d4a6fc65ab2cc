"""tonnage destroy: delete all resources of a stack."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import click

from planner import figures
from planner.cli import option, progress
from planner.cli.compose import open_bucket, open_engine, standing_stack
from planner.cli.run import run_engine
from planner.errors import Problem, TonnageError, UsageError
from planner.render.page import LINE_WIDTH
from planner.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from planner.cli.compose import PlanningOptions
    from planner.plan.status import ResourceRef, StackStatus
    from stacks.engine.protocol import Permission


@click.command("destroy")
@option.stack_argument
@option.simulate
@option.engine
@option.backend
@option.allow
@option.format_option("text", "json", is_stream=True)
@option.no_input
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def command(stack: str, **option_values: Any) -> int:
    """Delete everything of STACK but what holds data, dependents first; asks before it does.

    Buckets, disks and file systems stay, and the stack with them, until --allow delete-data.

    Example: tonnage destroy chat-8b --simulate --yes
    """
    from stacks.engine.guard import refuse_production

    options = option.planning_options(option_values)
    # A misspelled name is reported before any question.
    stack_status = standing_stack(stack, options)
    deletes_data = "delete-data" in option_values["allow"]
    # Whoever is asked sees what it is; a pipeline has to say it.
    if option_values["yes"] or not option.can_ask(option_values):
        refuse_production(
            stack,
            stack_status.facts,
            option_values["allow"],
            "it would be gone",
        )
    for line in _deletion_lines(stack_status, deletes_data=deletes_data):
        click.echo(line, err=True)
    if deletes_data and stack_status.outputs.get("bucket"):
        click.echo(f"  {_contents_text(stack_status, options)}", err=True)
    if not option_values["yes"]:
        if option_values["no_input"]:
            problem = Problem(
                code="confirm",
                message="destroy asks, and --no-input forbids asking",
                next_step="add --yes",
            )
            raise UsageError(problem)
        if not click.confirm(f"Delete {stack}?", default=False, err=True):
            click.echo("declined: nothing was done", err=True)
            return 0
    return delete_stack(
        stack_status, options, option_values["allow"], option_values["format"]
    )


def delete_stack(
    stack_status: StackStatus,
    options: PlanningOptions,
    allow: frozenset[Permission],
    output_format: str,
) -> int:
    """Delete a stack as far as is allowed, forget it, and return the exit code 0."""
    from stacks.engine.protocol import RunControl

    stack = stack_status.stack
    engine = open_engine(options)
    exit_code = run_engine(
        engine,
        lambda listener, stop: engine.destroy(
            stack, listener, RunControl(stop=stop, allow=allow)
        ),
        "destroy",
        stack,
        options,
        expected_steps=len(stack_status.resources),
        output_format=output_format,
    )
    engine.store.forget(stack)
    # A cloud deletes what is in its buckets with them; of a simulated one it is in a folder.
    if (
        "delete-data" in allow
        and stack_status.outputs.get("bucket")
        and options.simulate is not None
    ):
        open_bucket(stack_status, options).forget()
    return exit_code


def _contents_text(stack_status: StackStatus, options: PlanningOptions) -> str:
    """Say how much is in the bucket of a stack, or why that is not known."""
    bucket = open_bucket(stack_status, options)
    try:
        with progress.waiting("counting what is in the bucket"):
            contents = bucket.contents()
    except TonnageError as error:
        return f"{bucket.name}: not known how much is in it: {error.problems[0].message}"
    more_text = "" if contents.is_whole else "at least "
    return (
        f"{bucket.name}: {more_text}{figures.byte_size(contents.size_bytes)} "
        f"in {contents.objects:,} objects"
    )


def _held_text(resource: ResourceRef) -> str:
    """Say what a resource holds data in, and how much at most where that is settled."""
    from stacks.engine.keep import held_data

    kind = held_data(resource.type)
    if not resource.size_gib:
        return kind
    return f"{kind} of {figures.byte_size(resource.size_gib * BYTES_PER_GIB)}"


def _deletion_lines(
    stack_status: StackStatus, *, deletes_data: bool
) -> list[str]:
    """Say how much is deleted, and of what holds data each."""
    from stacks.engine.guard import production_label
    from stacks.engine.keep import held_data

    data_texts = [
        f"{resource.name} ({_held_text(resource)})"
        for resource in (*stack_status.resources, *stack_status.retained)
        if held_data(resource.type)
    ]
    exception = "" if deletes_data or not data_texts else ", but for data"
    resource_count = len(stack_status.resources)
    label = (
        production_label(stack_status.facts.labels)
        if stack_status.facts
        else ""
    )
    lines = [
        f"{stack_status.stack}: {resource_count} resources will be deleted{exception}",
        *([f"  in production: {label}"] if label else []),
        *textwrap.wrap(
            ", ".join(
                sorted(
                    resource.name
                    for resource in stack_status.resources
                    if deletes_data or not held_data(resource.type)
                )
            ),
            LINE_WIDTH,
            initial_indent="  ",
            subsequent_indent="  ",
        ),
    ]
    if data_texts:
        verb = "deleted with their data" if deletes_data else "kept"
        lines.append(f"  {verb}: {', '.join(data_texts)}")
    return lines
