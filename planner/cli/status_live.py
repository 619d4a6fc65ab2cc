"""status --live: what the cloud of a stack says of it, within a deadline."""

from __future__ import annotations

import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from datetime import UTC, datetime
from decimal import Decimal
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

from planner.cli.charges import read_plan
from planner.cli.live import DEADLINE_S
from planner.errors import TonnageError
from planner.plan.account import StackHealth
from planner.plan.live_status import LiveStatus, machine_counts
from planner.plan.status import StackFacts
from planner.units import HOURS_PER_MONTH, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.plan.status import StackStatus


class LiveSubject(NamedTuple):
    """A stack that a cloud is asked about. `started` is empty before its first apply."""

    stack: str
    facts: StackFacts
    started: str = ""


class LiveReport(NamedTuple):
    """What the cloud says, and how the machines are by their own signs."""

    status: LiveStatus | None
    health: StackHealth


def plan_subject(path: str) -> LiveSubject:
    """Return the stack of a plan: its tags are known before its state is."""
    plan = read_plan(path)
    return LiveSubject(plan.stack.name, StackFacts.of(plan))


def stack_subject(status: StackStatus) -> LiveSubject | None:
    """Return a stack as its state has it; None for one whose apply did not begin."""
    if status.facts is None:
        return None
    return LiveSubject(status.stack, status.facts, status.started)


def live_report(
    subject: LiveSubject | None, find_health: Callable[[], StackHealth]
) -> LiveReport:
    """Return what the cloud answers, and the signs of the machines, in 20 seconds in all."""
    end_s = time.monotonic() + DEADLINE_S
    health: Future[StackHealth] = Future()

    def ask_machines() -> None:
        try:
            health.set_result(find_health())
        except (OSError, TonnageError) as error:
            health.set_result(StackHealth(problem=str(error)))

    # A daemon: a bucket that never answers keeps the command from nothing.
    Thread(target=ask_machines, daemon=True).start()
    status = None if subject is None else ask_live(subject, end_s)
    try:
        found = health.result(max(0.0, end_s - time.monotonic()))
    except NotInTime:
        found = StackHealth(problem="no answer in time")
    return LiveReport(status, found)


def ask_live(subject: LiveSubject, end_s: float) -> LiveStatus:
    """Return what the cloud of a stack answers until a monotonic time."""
    from planner.plan.actual.charge import StackTags
    from providers.live.place import LivePlace
    from providers.live.running import ask_stack
    from stacks.spec.stack import POOL_TAG, STACK_TAG

    facts = subject.facts
    now = datetime.now(UTC)
    machine_types = {pool.instance_type for pool in facts.pools}
    answers = ask_stack(
        LivePlace(facts.provider, facts.region, tuple(sorted(machine_types))),
        StackTags(STACK_TAG, subject.stack, POOL_TAG),
        now.date(),
        max(0.0, end_s - time.monotonic()),
    )
    return LiveStatus(
        stack=subject.stack,
        cloud=facts.provider,
        region=facts.region,
        caller=answers.caller,
        running=answers.running,
        machines=machine_counts(facts.pools, answers.running),
        cost=answers.cost,
        planned_usd=_planned_usd(subject, now),
        commitments=answers.commitments,
        commitment_use=answers.commitment_use,
    )


def _planned_usd(subject: LiveSubject, now: datetime) -> Decimal | None:
    """Return what the plan says for the part of this month in which the stack stood, USD.

    usd = total of a month * hours since the first of the month, or the first apply / 730
    """
    if not subject.started or subject.facts.cost_period != "month":
        return None
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    start = max(first, datetime.fromisoformat(subject.started))
    hours = Decimal((now - start).total_seconds()) / SECONDS_PER_HOUR
    usd = subject.facts.total * max(Decimal(0), hours) / HOURS_PER_MONTH
    return usd.quantize(Decimal("0.01"))
