"""What start, stop and scale share: they say what it costs, ask, and set sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from planner import figures
from planner.errors import Problem, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.cli.compose import PlanningOptions
    from planner.plan.status import StackStatus
    from stacks.operate.size import GroupSize


def resize(
    status: StackStatus,
    sizes: Sequence[GroupSize],
    options: PlanningOptions,
    option_values: dict[str, Any],
) -> int:
    """Say what groups will have and cost, ask, and let them have it; return the exit code 0."""
    from stacks.operate.size import set_size

    for size in sizes:
        machines = "machine" if size.nodes == 1 else "machines"
        # What one beyond a commitment costs, no plan of the stack has said.
        bound = ">= " if size.is_beyond_commitment else ""
        click.echo(
            f"{status.stack} {size.name}: {size.nodes} {machines}, "
            f"{bound}{figures.dollars(size.nodes * size.usd_hour, cents=True)}/h",
            err=True,
        )
    facts = status.facts
    if (
        facts is not None
        and facts.standing_usd_month is not None
        and not any(size.nodes for size in sizes)
    ):
        click.echo(
            "what does not go with the machines stays: "
            f"{figures.dollars(facts.standing_usd_month)} a month",
            err=True,
        )
    if options.simulate is not None or status.facts is None:
        raise UsageError(
            Problem(
                code="size",
                message=f"{status.stack} is simulated: its machines always run",
                next_step="apply it to a real cloud: tonnage apply PLAN",
            )
        )
    if not option_values["yes"]:
        if option_values["no_input"]:
            raise UsageError(
                Problem(
                    code="confirm",
                    message="it asks, and --no-input forbids asking",
                    next_step="add --yes",
                )
            )
        if not click.confirm("Do it?", default=False, err=True):
            click.echo("declined: nothing was done", err=True)
            return 0
    for size in sizes:
        set_size(status.facts.provider, size)
        click.echo(f"{size.group}: {size.nodes}")
    return 0
