"""tonnage status: resources and cost of a stack."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from planner.cli import option
from planner.cli.compose import (
    open_engine,
    stack_account,
    standing_stack,
)

if TYPE_CHECKING:
    from stacks.engine.protocol import StackEngine

SHOWN_EVENTS: Final = 3


@click.command("status")
@click.argument("stack", callback=option.check_stack_name)
@option.simulate
@option.engine
@option.backend
@option.format_option("text", "json", "markdown")
@option.color
@click.option("--full", is_flag=True, help="List every resource.")
def command(stack: str, **option_values: Any) -> int:
    """Show STACK: since when it stands, what it has cost and costs now, and what happened.

    On simulated clouds hours are counted. Of real ones the plan says what is known.

    Example: tonnage status chat-8b --simulate
    """
    from planner.render.status import status_page

    options = option.planning_options(option_values)
    stack_status = standing_stack(stack, options)
    engine = open_engine(options)
    account = stack_account(engine, stack_status)
    if option_values["format"] == "json":
        from msgspec import to_builtins

        from planner.plan.canonical import dump_document

        option.write_output(
            dump_document(
                {
                    **to_builtins(stack_status),
                    "account": to_builtins(account),
                }
            )
        )
    else:
        option.print_page(
            status_page(
                stack_status,
                account,
                events=_events(engine, stack),
                full=option_values["full"],
            ),
            option_values["format"],
            option_values["color"],
        )
    return 0


def _events(engine: StackEngine, stack: str) -> list[str]:
    """Return what happened to a stack by itself, the newest last; of real clouds nothing."""
    world = engine.simulated_world()
    if world is None:
        return []
    events = [
        event for event in world.view().memory.events if event.stack == stack
    ]
    return [
        f"{world.rules.clock + timedelta(seconds=event.second):%Y-%m-%d %H:%M}  "
        f"{event.name} {event.kind}  {event.detail}"
        for event in events[-SHOWN_EVENTS:]
    ]
