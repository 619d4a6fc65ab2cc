"""Progress of an engine: on standard error for people, as JSON on standard output for programs."""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click

from planner import figures
from planner.render.clean import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from planner.cli.compose import PlanningOptions
    from planner.plan.account import StackAccount
    from stacks.engine.protocol import (
        EngineOutcome,
        Listener,
        ProgressEvent,
    )
    from stacks.operate.upload import LocalFile, TransferListener

ResultT = TypeVar("ResultT")

DONE_VERBS: Final = {"apply": "applied", "destroy": "destroyed"}
ACTION_MARKS = {
    "create": "+",
    "update": "~",
    "replace": "±",
    "delete": "-",
    "keep": "=",
    "adopt": "=",
    "same": "=",
}


def say_stopping(signal_name: str) -> None:
    """Say that a run ends after what is in flight."""
    click.echo(
        f"{signal_name}: finishing what is in flight; a second signal ends at once",
        err=True,
    )


def listened(
    engine_work: Callable[[Listener], EngineOutcome],
    expected_steps: int,
    output_format: str = "text",
) -> EngineOutcome:
    """Run an engine and show its progress: live on a terminal, else line by line.

    As JSON, each event is a line on standard output. `expected_steps` is how many there are to do.
    """
    if output_format == "json":
        return engine_work(_write_event)
    pace = Pace(expected_steps)
    if not sys.stderr.isatty():
        return engine_work(
            lambda event: click.echo(
                event_line(event) + pace.counted(event), err=True
            )
        )
    from rich.console import Console
    from rich.status import Status

    rich_console = Console(stderr=True)
    with Status("starting", console=rich_console) as status_line:
        return engine_work(
            lambda event: _show_live(event, rich_console, status_line, pace)
        )


class Pace:
    """How far a run is, and how long the rest takes at its pace."""

    def __init__(self, expected_steps: int) -> None:
        self.expected_steps = expected_steps
        self.done_steps = 0

    def counted(self, event: ProgressEvent) -> str:
        """Return how far the run is after an event; nothing for one that ends no step.

        time left = time so far / steps done * steps to do
        """
        if event.phase not in ("done", "failed") or not self.expected_steps:
            return ""
        self.done_steps += 1
        # After a crash, what the dead run had left to do is counted too.
        self.expected_steps = max(self.expected_steps, self.done_steps)
        count_text = f"  ({self.done_steps} of {self.expected_steps}"
        left_steps = self.expected_steps - self.done_steps
        if left_steps <= 0 or event.elapsed_s <= 0:
            return f"{count_text})"
        left_s = event.elapsed_s / self.done_steps * left_steps
        return f"{count_text}, about {_clock_text(left_s)} left)"


def _write_event(event: ProgressEvent) -> None:
    """Write an event as one line of JSON on standard output."""
    write_json_line(
        {
            "event": event.phase,
            "seconds": round(event.elapsed_s, 3),
            "action": event.step.action,
            "type": event.step.type,
            "name": event.step.name,
            "detail": event.detail,
        }
    )


def write_json_line(document: dict[str, Any]) -> None:
    """Write a document as one line on standard output, at once."""
    click.echo(json.dumps(document, sort_keys=True))


def print_outcome(
    outcome: EngineOutcome,
    verb: Literal["apply", "destroy"],
    stack_name: str,
    options: PlanningOptions,
    *,
    account: StackAccount | None,
    told: Sequence[tuple[str, str]],
) -> None:
    """Write what a run did, what is `told` of the stack, and what it costs."""
    flags_text = options.flags
    # A second apply of the same plan has no steps.
    if not outcome.steps:
        click.echo(f"{stack_name}: up to date, nothing was changed")
        return
    action_counts = {
        step_action: sum(
            engine_step.action == step_action for engine_step in outcome.steps
        )
        for step_action in ("create", "update", "replace", "delete")
    }
    counts_text = ", ".join(
        f"{ACTION_MARKS[step_action]} {step_count}"
        for step_action, step_count in action_counts.items()
        if step_count
    )
    click.echo(
        f"{DONE_VERBS[verb]} {stack_name}: {counts_text or 'nothing to do'} "
        f"in {_clock_text(outcome.elapsed_s)}"
    )
    _print_kept(outcome, stack_name, flags_text)
    lines = list(told)
    cost_text = _cost_text(account) if verb == "apply" else ""
    if cost_text:
        lines.append(("running cost", cost_text))
    width = max((len(label) for label, _ in lines), default=0)
    for label, text in lines:
        click.echo(f"  {label:<{width}}  {text}")
    if cost_text:
        click.echo(
            f"next: tonnage status {stack_name}{flags_text}  ·  tonnage destroy "
            f"{stack_name}{flags_text}"
        )


def _cost_text(account: StackAccount | None) -> str:
    """Return what a stack costs an hour, and what of it a person pays beside it."""
    if account is None or account.usd_hour is None:
        return ""
    usd_text = f"{figures.dollars(account.usd_hour, cents=True)}/h"
    if not account.prepaid:
        return usd_text
    return f"{usd_text}, counting on {account.prepaid_text}"


def _print_kept(
    outcome: EngineOutcome, stack_name: str, flags_text: str
) -> None:
    """Say what was left in the cloud for its data, and how it is deleted."""
    kept_names = [step.name for step in outcome.steps if step.action == "keep"]
    if kept_names:
        click.echo(
            f"  kept for their data  {', '.join(kept_names)}\n"
            f"  delete them with  tonnage destroy {stack_name}{flags_text} "
            "--allow delete-data"
        )


def timed(
    what: str, work: Callable[[], Iterable[ResultT]]
) -> Iterator[ResultT]:
    """Yield the results of some work; say on standard error how long all of it took."""
    started_s = time.monotonic()
    yield from work()
    took = figures.duration(time.monotonic() - started_s)
    click.echo(f"{what} {took}", err=True)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say on a terminal what is worked on, until it is done."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.status import Status

    with Status(what, console=Console(stderr=True)):
        yield


@contextmanager
def counting(total: int) -> Iterator[Callable[[str], None]]:
    """Yield a function that says what is done: of `total` things, one in each call.

    On a terminal they stand in one line, else in a line each.
    """
    done_texts: list[str] = []

    def counted(text: str) -> str:
        done_texts.append(text)
        return clean(f"{len(done_texts)} of {total}  {text}")

    if not sys.stderr.isatty():
        yield lambda text: click.echo(counted(text), err=True)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.status import Status

    with Status(f"0 of {total}", console=Console(stderr=True)) as status_line:
        yield lambda text: status_line.update(escape(counted(text)))


@contextmanager
def transferring(verb: str, total_bytes: int) -> Iterator[TransferListener]:
    """Show how far a transfer is: a bar on a terminal, else a line for each file."""
    from stacks.operate.upload import TransferListener

    def write_line(file: LocalFile, is_sent: bool) -> None:  # noqa: FBT001 - called back
        state_text = verb if is_sent else "there already"
        click.echo(
            clean(f"{file.name}  {figures.byte_size(file.size)}  {state_text}"),
            err=True,
        )

    if not sys.stderr.isatty():
        yield TransferListener(lambda _: None, write_line)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(verb, total=total_bytes)

        def advance_over(file: LocalFile, is_sent: bool) -> None:  # noqa: FBT001
            # What is sent was counted while it was read.
            if not is_sent:
                bars.advance(task, file.size)

        yield TransferListener(
            lambda read_bytes: bars.advance(task, read_bytes), advance_over
        )


def event_line(event: ProgressEvent) -> str:
    """Return an event as one line: time, mark, resource type, name, phase."""
    # Pulumi types are package:module:Name.
    resource_type = event.step.type.split(":")[-1]
    phase_texts = {
        "begin": f"{event.step.action} ...",
        "done": "done",
        "failed": "FAILED",
        "retry": "refused, tried again",
        "found": "an earlier run had done it",
        "fallback": "is tried instead",
        "awaits": "waits",
        "advice": "a policy pack advises otherwise",
    }
    detail_text = f"  {event.detail}" if event.detail else ""
    action_mark = ACTION_MARKS[event.step.action]
    return clean(
        f"{_clock_text(event.elapsed_s)}  {action_mark}  {resource_type} {event.step.name}  "
        f"{phase_texts[event.phase]}{detail_text}"
    )


def _show_live(
    event: ProgressEvent, rich_console: Any, status_line: Any, pace: Pace
) -> None:
    count_text = pace.counted(event)
    if event.phase in ("begin", "awaits"):
        status_line.update(event_line(event))
    else:
        rich_console.print(
            event_line(event) + count_text,
            style="red" if event.phase == "failed" else "",
            highlight=False,
        )


def _clock_text(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
