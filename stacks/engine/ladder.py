"""The fallbacks of a plan: which are tried, in which order, and what is remembered of refusals.

A cloud that has no machines of a kind refuses them again a minute later. So a refusal is kept for
a while, and the next run begins with what was not refused.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Final

from planner.errors import CapacityError
from planner.facts import table
from stacks.engine.impact import changes_of
from stacks.engine.keep import held_data
from stacks.engine.protocol import ProgressEvent, ResourceStep
from stacks.engine.state import Refusal
from stacks.engine.state_file import StateFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from planner.plan.status import StackStatus
    from planner.plan.types import Plan
    from planner.solve.solution import FallbackKind
    from stacks.engine.protocol import EngineOutcome, Listener, RunControl
    from stacks.engine.store import StateStore

QUOTA: Final = "quota"
# A stack goes on with these in its region, where its data are; another region has other data.
WITHIN_REGION: Final = ("zone", "type", "purchase")


def walk_down(
    plan: Plan,
    stack_status: StackStatus | None,
    store: StateStore,
    *,
    now: datetime,
    control: RunControl,
    listener: Listener,
    preview: Callable[[Plan], tuple[ResourceStep, ...]],
    attempt: Callable[[Plan, int], EngineOutcome],
) -> EngineOutcome:
    """Apply a plan, or else the first of its fallbacks that the cloud has.

    `attempt` applies a plan as it is on a rung, `preview` says what that would do. Each attempt
    starts from what the last one has left, and removes what it does not need. A fallback for which
    nothing would answer for a while is left out, unless that is allowed; one that leaves data in a
    zone always is. Raises CapacityError when every rung is refused.
    """
    first_rung = (
        standing_rung(plan, stack_status)
        if control.first_rung is None
        else control.first_rung
    )
    refused: list[CapacityError] = []
    has_quota = True
    for rung in _open_rungs(plan, first_rung, store, now, control):
        # Another zone has the same quota.
        if not has_quota and rung and plan.fallbacks[rung - 1].kind == "zone":
            continue
        variant = plan.on_rung(rung)
        if (
            rung
            and stack_status is not None
            and not _is_open(
                variant,
                plan.fallbacks[rung - 1].kind,
                preview(variant),
                stack_status,
                control,
            )
        ):
            continue
        if rung != first_rung:
            listener(_fallback_event(variant, plan, rung))
        try:
            return attempt(variant, rung)
        except CapacityError as refusal:
            refused.append(refusal)
            codes = {problem.code for problem in refusal.problems}
            has_quota = has_quota and QUOTA not in codes
            if plan.fallbacks:
                _remember(store, plan, rung, codes, now)
    raise CapacityError(
        *(problem for refusal in refused for problem in refusal.problems)
    )


def _is_open(
    variant: Plan,
    kind: FallbackKind,
    steps: Sequence[ResourceStep],
    stack_status: StackStatus,
    control: RunControl,
) -> bool:
    """Whether a stack may go on with a fallback: its data go along, and it answers meanwhile."""
    leaves_data = kind in WITHIN_REGION and any(
        step.action in ("replace", "delete") and held_data(step.type)
        for step in steps
    )
    return not leaves_data and (
        "outage" in control.allow
        or not changes_of(variant, steps, stack_status).disturbs
    )


def standing_rung(plan: Plan, stack_status: StackStatus | None) -> int:
    """Return the rung that a stack stands on; 0 where this plan does not stand."""
    if (
        stack_status is None
        or stack_status.plan != plan.digest
        or not stack_status.complete
        or stack_status.facts is None
    ):
        return 0
    return stack_status.facts.rung


def _open_rungs(
    plan: Plan,
    first_rung: int,
    store: StateStore,
    now: datetime,
    control: RunControl,
) -> Iterator[int]:
    """Yield the rungs to try: what stands first, then those that were not refused lately.

    Where all were refused lately, each is tried again.
    """
    most_usd = control.most_usd_hour
    affordable = [
        rung
        for rung in range(len(plan.fallbacks) + 1)
        if most_usd is None or plan.on_rung(rung).most_usd_hour <= most_usd
    ]
    refusals = StateFile(store, plan.stack.name).state.refusals
    untried = [
        rung
        for rung in affordable
        if str(rung) not in refusals
        or refusals[str(rung)].plan != plan.digest
        or datetime.fromisoformat(refusals[str(rung)].until) <= now
    ]
    rungs = untried or affordable
    yield from sorted(rungs, key=lambda rung: (rung != first_rung, rung))


def _remember(
    store: StateStore,
    plan: Plan,
    rung: int,
    codes: set[str],
    now: datetime,
) -> None:
    kept_s = max(_kept_s()[code] for code in codes if code in _kept_s())
    state_file = StateFile(store, plan.stack.name)
    state_file.state.refusals[str(rung)] = Refusal(
        plan=plan.digest,
        until=(now + timedelta(seconds=kept_s)).isoformat(),
    )
    state_file.save()


def _fallback_event(variant: Plan, plan: Plan, rung: int) -> ProgressEvent:
    zone = plan.fallbacks[rung - 1].zone if rung else None
    machines = ", ".join(
        f"{pool.nodes} x {pool.instance_type} in {zone or pool.region}"
        for pool in variant.solution.pools
    )
    return ProgressEvent(
        0.0, ResourceStep("replace", "fleet", machines), "fallback"
    )


@cache
def _kept_s() -> dict[str, int]:
    """Return how long a refusal is remembered, by its kind, seconds."""
    columns = {
        "class": table.nonempty_text,
        "seconds": table.integer_between(1, 10**6),
        **table.SOURCE_COLUMNS,
    }
    return {
        row["class"]: row["seconds"]
        for row in table.load_rows("stacks", "refusals.csv", columns)
    }
