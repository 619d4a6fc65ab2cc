"""tonnage simulate: let time pass in the simulated clouds, and see what it brings and costs."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import click

from planner import figures
from planner.cli import option
from planner.cli.compose import open_catalog, open_world, simulated_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.cli.option import OptionValues
    from planner.market.offer import Catalog
    from providers.simulated.shared import SharedWorld


MOST_SECONDS: Final = 3650 * 86_400


@click.group("simulate")
def command() -> None:
    """Let time pass in the simulated clouds of this folder, and see what happened and its cost.

    Example: tonnage simulate advance 3d
    """


def world_flags(
    subcommand: Callable[..., Any],
) -> Callable[..., Any]:
    """Add the options that say which simulated clouds are meant."""
    for decorator in (option.engine, option.simulate):
        subcommand = decorator(subcommand)
    return subcommand


@command.command("advance")
@click.argument("duration", metavar="DURATION")
@world_flags
@option.format_option("text", "json")
def advance(duration: str, **option_values: Any) -> int:
    """Let DURATION pass, such as 90m or 3d: schedules, deadlines and losses take their effect.

    Example: tonnage simulate advance 3d
    """
    from msgspec import to_builtins

    from providers.simulated.clock import advance as pass_time

    world = _world(option_values)
    events = pass_time(world, _seconds(duration))
    if option_values["format"] == "json":
        option.write_output(json.dumps(to_builtins(events), indent=2) + "\n")
        return 0
    for event in events:
        click.echo(_event_line(world, event))
    click.echo(f"it is {world.now():%Y-%m-%d %H:%M} UTC in the simulated world")
    return 0


@command.command("events")
@world_flags
@option.format_option("text", "json")
def events(**option_values: Any) -> int:
    """List what happened by itself, the newest last.

    Example: tonnage simulate events
    """
    from msgspec import to_builtins

    world = _world(option_values)
    world_events = world.view().memory.events
    if option_values["format"] == "json":
        option.write_output(
            json.dumps(to_builtins(world_events), indent=2) + "\n"
        )
        return 0
    for event in world_events:
        click.echo(_event_line(world, event))
    return 0


@command.command("status")
@world_flags
@option.format_option("text", "json")
def status(**option_values: Any) -> int:
    """Say what time it is there, what there is, and what it costs an hour.

    Machines cost what they do on demand or on spot: what a commitment pays for, `status` knows.

    Example: tonnage simulate status
    """
    from planner.cost.bill_line import CENT
    from providers.simulated.bill import usd_hour_now

    world = _world(option_values)
    memory = world.view().memory
    nodes = sum(history.nodes for history in memory.history.values())
    usd_hour = usd_hour_now(memory, _catalog(option_values))
    if option_values["format"] == "json":
        facts = {
            "now": world.now().isoformat(),
            "objects": len(memory.objects),
            "nodes": nodes,
            "usd_hour": str(usd_hour.quantize(CENT)),
        }
        option.write_output(json.dumps(facts, indent=2) + "\n")
        return 0
    click.echo(f"{world.now():%Y-%m-%d %H:%M} UTC")
    click.echo(
        f"{len(memory.objects)} objects, {nodes} machines, "
        f"{figures.dollars(usd_hour, cents=True)} an hour"
    )
    return 0


@command.command("bill")
@world_flags
@click.option(
    "--last",
    metavar="DURATION",
    help="Only of this time until now, such as 30d; default: since the world began.",
)
@option.format_option("text", "json")
def bill(last: str | None, **option_values: Any) -> int:
    """Say what everything in the simulated clouds has cost, by the second.

    What is paid by use, such as traffic and logs, is not in it: nobody uses the machines. These
    cost what they do on demand or on spot: what a commitment pays for, `status` knows.

    Example: tonnage simulate bill --last 30d
    """
    from planner.cost.bill_line import CENT
    from planner.render.page import PageTable, total_row_tones
    from planner.units import SECONDS_PER_HOUR
    from providers.simulated.bill import metered_lines

    world = _world(option_values)
    memory = world.view().memory
    begin = 0.0
    if last is not None:
        begin = max(0.0, memory.seconds - _seconds(last))
    lines = metered_lines(
        memory, _catalog(option_values), begin, memory.seconds
    )
    total = sum((line.usd for line in lines), Decimal(0))
    if option_values["format"] == "json":
        facts = {
            "hours": round((memory.seconds - begin) / SECONDS_PER_HOUR, 3),
            "lines": [
                {
                    "kind": line.kind,
                    "hours": round(line.hours, 3),
                    "usd": str(line.usd.quantize(CENT)),
                }
                for line in lines
            ],
            "usd": str(total.quantize(CENT)),
        }
        option.write_output(json.dumps(facts, indent=2) + "\n")
        return 0
    rows = [
        (
            line.kind.replace("_", " "),
            f"{line.hours:,.1f}",
            figures.dollars(line.usd, cents=True),
        )
        for line in lines
    ]
    rows.append(("total", "", figures.dollars(total, cents=True)))
    table = PageTable(
        ("what was paid for", ">hours", ">USD"),
        tuple(rows),
        total_row_tones(len(rows)),
    )
    option.print_page((table,), "text")
    return 0


def _seconds(duration: str) -> float:
    """Return a time span in seconds. Raises BadParameter for none, and for more than ten years."""
    from planner.spec.unit import parse_seconds

    try:
        seconds = float(parse_seconds(duration))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if seconds > MOST_SECONDS:
        raise click.BadParameter("it is more than ten years")
    return seconds


def _world(option_values: OptionValues) -> SharedWorld:
    from providers.simulated.shared import SharedWorld
    from providers.simulated.world import default_world

    rules = open_world(option_values["simulate"]) or default_world()
    return SharedWorld(rules, simulated_folder(option_values["engine"]))


def _catalog(option_values: OptionValues) -> Catalog:
    return open_catalog(None, open_world(option_values["simulate"]))


def _event_line(world: SharedWorld, event: Any) -> str:
    moment = world.rules.clock + timedelta(seconds=event.second)
    place = f"{event.stack} {event.name}"
    return f"{moment:%Y-%m-%d %H:%M}  {event.kind:8} {place}  {event.detail}".rstrip()
