"""Progress of a run on standard error: live on a terminal, one plain line for each event else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from planner.render import words

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.cli.compose import Options
    from stacks.engine.protocol import Event, Listener, Outcome

MARKS = {
    "create": "+",
    "update": "~",
    "replace": "±",
    "delete": "-",
    "same": "=",
}


def run(
    work: Callable[[Listener], Outcome],
    done: str,
    plan: dict[str, Any],
    options: Options,
) -> int:
    """Run an engine's work, tell its progress, and close with what stands and what to do next."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.status import Status

        console = Console(stderr=True)
        with Status("starting", console=console) as status:
            outcome = work(lambda event: _live(event, console, status))
    else:
        outcome = work(_plain)
    name = plan["stack"]["name"]
    flag = _flags(options)
    if not outcome.steps:
        click.echo(f"{name}: up to date, nothing was changed")
        return 0
    counts = {a: sum(s.action == a for s in outcome.steps) for a in MARKS}
    told = ", ".join(f"{MARKS[a]} {n}" for a, n in counts.items() if n)
    click.echo(f"{done} {name}: {told} in {_clock(outcome.seconds)}")
    for key, value in sorted(outcome.outputs.items()):
        click.echo(f"  {key}  {value}")
    if done == "applied":
        click.echo(
            f"  running cost  {words.dollars(plan['cost']['usd_hour'], cents=True)}/h"
        )
        click.echo(
            f"next: tonnage status {name}{flag}  ·  tonnage destroy {name}{flag}"
        )
    return 0


def line(event: Event) -> str:
    """One event as a plain line: time, mark, type, name, phase."""
    kind = event.step.type.split(":")[-1]
    words_ = {
        "begin": f"{event.step.action} ...",
        "done": "done",
        "failed": "FAILED",
    }
    detail = f"  {event.detail}" if event.detail else ""
    mark = MARKS[event.step.action]
    return (
        f"{_clock(event.seconds)}  {mark}  {kind} {event.step.name}  "
        f"{words_[event.phase]}{detail}"
    )


def _plain(event: Event) -> None:
    click.echo(line(event), err=True)


def _live(event: Event, console: Any, status: Any) -> None:
    if event.phase == "begin":
        status.update(line(event))
    else:
        console.print(
            line(event),
            style="red" if event.phase == "failed" else "",
            highlight=False,
        )


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def _flags(options: Options) -> str:
    flag = ""
    if options.simulate is not None:
        flag = (
            " --simulate"
            if options.simulate == "default"
            else f" --simulate {options.simulate}"
        )
    return flag + (f" --engine {options.engine}" if options.engine else "")
