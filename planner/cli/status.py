"""tonnage status: resources and cost of a stack."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from planner.cli import complete, option
from planner.cli.account import stack_account
from planner.cli.call import service_calls
from planner.cli.compose import open_bucket, open_engine, standing_stack
from planner.cli.progress import waiting
from planner.cost.lifetime import release_time
from planner.errors import UsageError
from planner.spec.stack_name import STACK_NAME, STACK_NAME_HINT

if TYPE_CHECKING:
    from planner.cli.compose import PlanningOptions
    from planner.plan.account import StackAccount, StackHealth
    from planner.plan.live_status import LiveStatus
    from planner.plan.status import StackStatus
    from planner.render.page import Block, Page
    from stacks.engine.protocol import StackEngine

SHOWN_EVENTS: Final = 3


@click.command("status")
@click.argument(
    "stack",
    metavar="STACK|PLAN",
    shell_complete=complete.stacks_or_files,
)
@click.option(
    "--live",
    "is_live",
    is_flag=True,
    help="Ask the cloud what runs, what it has cost this month, and what is committed.",
)
@option.simulate
@option.engine
@option.backend
@option.format_option("text", "json", "markdown")
@option.color
@click.option("--full", is_flag=True, help="List every resource.")
def command(stack: str, **option_values: Any) -> int:
    """Show STACK: since when it stands, what it has cost and costs now, and what happened.

    On simulated clouds hours are counted. Of real ones the machines are counted that say in the
    bucket of the stack that they live, and the hours that they and earlier ones have lived.

    With --live its cloud is asked too, for 20 seconds at most: what runs by its tag, what it has
    cost this month, and what of commitments is used. So a PLAN can be asked about without a state.

    Example: tonnage status chat-8b --simulate
    """
    from planner.render.status import status_page

    options = option.planning_options(option_values)
    if options.is_live and options.simulate is not None:
        raise click.UsageError("--live asks real clouds: leave out --simulate")
    if not STACK_NAME.fullmatch(stack):
        return _plan_status(stack, options, option_values)
    stack_status = standing_stack(stack, options)
    engine = open_engine(options)
    health, live = _asked(stack_status, options)
    account = counted_account(engine, stack_status, health)
    if option_values["format"] == "json":
        from msgspec import to_builtins

        from planner.plan.canonical import dump_document

        option.write_output(
            dump_document(
                {
                    **to_builtins(stack_status),
                    "account": to_builtins(account),
                    "health": to_builtins(health),
                    **_live_part(live),
                    "events": _events(engine, stack),
                }
            )
        )
    else:
        page = status_page(
            stack_status,
            account,
            health,
            events=_events(engine, stack),
            calls=service_calls(stack_status),
            full=option_values["full"],
        )
        option.print_page(
            (*page, *_live_blocks(live)),
            option_values["format"],
            option_values["color"],
        )
    return 0


def stack_page(stack: str, options: PlanningOptions) -> Page:
    """Return the whole page of a stack, without asking its cloud.

    Raises MissingError without one of the name.
    """
    from planner.render.status import status_page

    stack_status = standing_stack(stack, options)
    engine = open_engine(options)
    health = _health(stack_status, options)
    return status_page(
        stack_status,
        counted_account(engine, stack_status, health),
        health,
        events=_events(engine, stack),
        calls=service_calls(stack_status),
        full=True,
    )


def counted_account(
    engine: StackEngine, stack_status: StackStatus, health: StackHealth
) -> StackAccount:
    """Return what a stack costs, by its machines where these are heard of."""
    from stacks.operate.account import counted

    account = stack_account(engine, stack_status)
    facts = stack_status.facts
    if account.basis != "plan" or facts is None or health.problem:
        return account
    # Of machines that boot nothing is heard yet, and they are paid for.
    if (account.age_s or 0) < release_time("young_limit_s"):
        return account
    alive = {group.group: group.alive for group in health.groups}
    return counted(account, facts, alive, health.lived_hours)


def _plan_status(
    path: str, options: PlanningOptions, option_values: dict[str, Any]
) -> int:
    """Show what a cloud says of the stack of a plan."""
    if not options.is_live:
        raise click.UsageError(
            f"{path} is no stack name: use {STACK_NAME_HINT}; a plan takes --live"
        )
    from planner.cli.live import DEADLINE_S
    from planner.cli.status_live import ask_live, plan_subject

    subject = plan_subject(path)
    with waiting(f"asking {subject.facts.provider}"):
        live = ask_live(subject, time.monotonic() + DEADLINE_S)
    if option_values["format"] == "json":
        from planner.plan.canonical import dump_document

        option.write_output(dump_document(_live_part(live)))
    else:
        option.print_page(
            tuple(_live_blocks(live)),
            option_values["format"],
            option_values["color"],
        )
    return 0


def _asked(
    status: StackStatus, options: PlanningOptions
) -> tuple[StackHealth, LiveStatus | None]:
    """Return how the machines are, and what their cloud says where it is asked."""
    if not options.is_live:
        with waiting("asking the machines"):
            return _health(status, options), None
    from planner.cli.status_live import live_report, stack_subject

    with waiting("asking the cloud and the machines"):
        report = live_report(
            stack_subject(status), lambda: _health(status, options)
        )
    return report.health, report.status


def _live_part(live: LiveStatus | None) -> dict[str, Any]:
    from msgspec import to_builtins

    return {} if live is None else {"live": to_builtins(live)}


def _live_blocks(live: LiveStatus | None) -> list[Block]:
    if live is None:
        return []
    from planner.render.live_status import live_status_blocks

    return live_status_blocks(live)


def _health(status: StackStatus, options: PlanningOptions) -> StackHealth:
    """Return how the machines are; of a stack without a bucket nothing is known."""
    from planner.plan.account import StackHealth
    from stacks.operate.health import stack_health

    try:
        bucket = open_bucket(status, options)
    except UsageError:
        return StackHealth()
    # Buckets keep real time, also those of simulated clouds.
    return stack_health(bucket, datetime.now(UTC))


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
