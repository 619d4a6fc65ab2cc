"""tonnage logs: what the machines of a stack have written."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from planner.cli import option
from planner.cli.compose import standing_stack
from planner.errors import Problem, UsageError
from planner.spec.unit import parse_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stacks.operate.logs import LogLine, LogQuery

FOLLOW_S = 10.0
# Lines reach the logs of a cloud some seconds after they were written, and not in order.
LATE = timedelta(minutes=2)


def _parse_since(
    _context: click.Context, parameter: click.Parameter, text: str
) -> timedelta:
    try:
        return timedelta(seconds=float(parse_seconds(text)))
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from error


@click.command("logs")
@option.stack_argument
@click.option("--pool", default="", metavar="NAME", help="Only of this pool.")
@click.option(
    "--since",
    default="1h",
    metavar="TIME",
    callback=_parse_since,
    help="How far back, such as 30m or 2d (1h).",
)
@click.option(
    "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C."
)
@option.format_option("text", "json", is_stream=True)
@option.simulate
@option.engine
@option.backend
def command(
    stack: str,
    pool: str,
    since: timedelta,
    *,
    follow: bool,
    **option_values: Any,
) -> int:
    """Show what the machines of STACK have written: agents, work and containers.

    While an apply moves the stack, these are the new machines, for which it waits.
    JSON is a line for each line.

    Example: tonnage logs chat-8b --pool serve --since 30m
    """
    from stacks.operate.logs import log_query

    options = option.planning_options(option_values)
    status = standing_stack(stack, options).arriving
    query = log_query(status, pool, datetime.now(UTC) - since)
    if options.simulate is not None or status.facts is None:
        raise UsageError(
            Problem(
                code="logs",
                message=f"{stack} is simulated: its machines write nothing",
                next_step="apply it to a real cloud: tonnage apply PLAN",
            )
        )
    provider = status.facts.provider
    for line in _lines(provider, query, follow=follow):
        if option_values["format"] == "json":
            click.echo(json.dumps(_document(line)))
        else:
            click.echo(_text(line))
    return 0


def _lines(
    provider: str, query: LogQuery, *, follow: bool
) -> Iterator[LogLine]:
    from msgspec.structs import replace

    from stacks.operate.logs import read_lines

    seen: set[LogLine] = set()
    while True:
        newest = query.since
        for line in read_lines(provider, query):
            newest = max(newest, line.time)
            if line not in seen:
                yield line
                if follow:
                    seen.add(line)
        if not follow:
            return
        query = replace(query, since=max(query.since, newest - LATE))
        seen = {line for line in seen if line.time >= query.since}
        time.sleep(FOLLOW_S)


def _text(line: LogLine) -> str:
    moment = line.time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return f"{moment}  {line.machine}  {line.source}  {line.text}"


def _document(line: LogLine) -> dict[str, str]:
    return {
        "time": line.time.isoformat(),
        "group": line.group,
        "machine": line.machine,
        "source": line.source,
        "text": line.text,
    }
