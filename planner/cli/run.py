"""Carries out an apply or a destroy: progress, history, and what remains after a refusal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import click
from msgspec.structs import replace

from planner import figures
from planner.cli import progress
from planner.cli.call import service_calls
from planner.errors import (
    LockedError,
    Problem,
    StaleError,
    TonnageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from planner.cli.compose import PlanningOptions
    from planner.plan.account import PastRun, StackAccount
    from planner.plan.types import Plan
    from stacks.engine.protocol import (
        EngineOutcome,
        Listener,
        ProgressEvent,
        StackEngine,
    )
    from stacks.engine.stop import StopRequest

# The format of a run that is a part of something else.
NO_SUMMARY: Final = "none"


def run_engine(
    engine: StackEngine,
    engine_work: Callable[[Listener, StopRequest], EngineOutcome],
    verb: Literal["apply", "destroy"],
    stack_name: str,
    options: PlanningOptions,
    *,
    expected_steps: int,
    output_format: str,
    plan: Plan | None = None,
) -> int:
    """Run an engine, show its progress and summary, and return the exit code 0.

    The first signal lets it finish what is in flight; the error of the engine then says how to go
    on. So does the end of whoever reads its progress. What is done is written down beside the
    state when it begins and when it ends. `plan` is what is applied; none for a destroy. With the
    format NO_SUMMARY its progress is all that is shown.
    """
    from planner.plan.account import PastRun
    from stacks.engine.history import run_name
    from stacks.engine.lock import host_name, user_name
    from stacks.engine.stop import StopRequest, stop_on_signals

    stop = StopRequest()
    began = _now()
    write_down = partial(_write_down, engine, stack_name, run_name(began))
    past_run = partial(
        PastRun,
        began=began,
        by=f"{user_name()}@{host_name()}",
        verb=verb,
        plan=plan.digest if plan else "",
        ended="",
    )

    def say_begun() -> None:
        write_down(past_run(outcome="no end", changes=0))

    try:
        with stop_on_signals(stop, progress.say_stopping):
            outcome = progress.listened(
                lambda listener: engine_work(
                    _heard(listener, stop, say_begun), stop
                ),
                expected_steps,
                output_format,
            )
    except (LockedError, StaleError):
        # Nothing was done, so nothing is written down.
        raise
    except TonnageError as error:
        code = error.problems[0].code if error.problems else "failed"
        write_down(past_run(ended=_now(), outcome=code, changes=0))
        raise _with_remains(error, engine, stack_name, options) from error
    account = _account(engine, stack_name)
    usd_hour = None if account is None else account.usd_hour
    if outcome.steps:
        done_run = past_run(outcome="done", changes=len(outcome.steps))
        write_down(replace(done_run, ended=_now(), usd_hour=usd_hour))
    if output_format == "json":
        progress.write_json_line(_end_event(stack_name, outcome, usd_hour))
        return 0
    if output_format == NO_SUMMARY:
        return 0
    told = _told(engine, plan, outcome, options) if plan is not None else []
    progress.print_outcome(
        outcome, verb, stack_name, options, account=account, told=told
    )
    return 0


def _told(
    engine: StackEngine,
    plan: Plan,
    outcome: EngineOutcome,
    options: PlanningOptions,
) -> list[tuple[str, str]]:
    """Return what people want to know of a stack that was applied, each with a label."""
    from planner.cli.account import engine_now, stack_account
    from planner.render.status import shown_outputs, wake_rows
    from stacks.spec.grant import hand_grants

    status = engine.stack_status(plan.stack.name)
    if status is None:
        return []
    told = [
        *shown_outputs(status),
        *(
            ("" if number else "call it", line)
            for number, line in enumerate(service_calls(status))
        ),
        *wake_rows(status),
        ("connect", f"tonnage connect {plan.stack.name}{options.flags}"),
        *(
            ("to grant" if not number else "", command)
            for number, command in enumerate(hand_grants(plan, outcome.outputs))
        ),
    ]
    left_s = stack_account(engine, status).left_s
    if left_s is not None:
        ends = engine_now(engine) + timedelta(seconds=left_s)
        told.append(("ends", f"{ends:%Y-%m-%d %H:%M} UTC, by its TTL"))
    return told


def _heard(
    listener: Listener, stop: StopRequest, say_begun: Callable[[], None]
) -> Listener:
    """Return a listener that says when a run begins, and asks it to end when nobody listens."""
    has_begun = False

    def listen(event: ProgressEvent) -> None:
        nonlocal has_begun
        if not has_begun:
            has_begun = True
            say_begun()
        if stop.is_unheard:
            return
        try:
            listener(event)
        except OSError:
            # A pipe was closed, or a disk is full: what is in flight ends, and is saved.
            stop.is_unheard = True
            stop.make()

    return listen


def _end_event(
    stack_name: str, outcome: EngineOutcome, usd_hour: Decimal | None
) -> dict[str, Any]:
    """Return the last event of a run that ended well."""
    return {
        "event": "end",
        "stack": stack_name,
        "changes": len(outcome.steps),
        "outputs": outcome.outputs,
        "usd_hour": None if usd_hour is None else str(usd_hour),
    }


def _write_down(
    engine: StackEngine, stack_name: str, name: str, run: PastRun
) -> None:
    """Enter a run into the history of its stack. One that cannot be written stops nothing."""
    from stacks.engine.history import add_run

    try:
        add_run(engine.store, stack_name, name, run)
    except (OSError, TonnageError) as error:
        click.echo(f"the run was not written down: {error}", err=True)


def _with_remains(
    error: TonnageError,
    engine: StackEngine,
    stack_name: str,
    options: PlanningOptions,
) -> TonnageError:
    """Return an error that also says what stands now, what it costs, and how it is removed."""
    try:
        status = engine.stack_status(stack_name)
    except TonnageError:
        # Whatever ended the run may keep its state from being read, too.
        return error
    if status is None or not status.resources:
        return error
    account = _account(engine, stack_name)
    cost_text = (
        ""
        if account is None or account.usd_hour is None
        else f", {figures.dollars(account.usd_hour, cents=True)} an hour"
    )
    return type(error)(
        *error.problems,
        Problem(
            code="remains",
            message=f"{len(status.resources)} resources of {stack_name} stand{cost_text}",
            next_step="run the same command again, or remove them: "
            f"tonnage destroy {stack_name}{options.flags}",
        ),
    )


def _account(engine: StackEngine, stack_name: str) -> StackAccount | None:
    """Return what a stack costs; none where it does not exist."""
    from planner.cli.account import stack_account

    status = engine.stack_status(stack_name)
    return None if status is None else stack_account(engine, status)


def _now() -> str:
    return datetime.now(UTC).isoformat()
