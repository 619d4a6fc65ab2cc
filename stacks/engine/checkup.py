"""What stands between a plan and its apply: logins, rights, quotas, engine, locks, the clock."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from planner.errors import TonnageError
from planner.plan.symptom import Symptom
from providers.live.reach import clock_skew_s, login_text, open_region
from stacks.engine.account import UNANSWERED, account_refusals
from stacks.engine.failure import NEXT_STEPS, classify_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from planner.market.offer import Instance
    from planner.plan.pool import Pool
    from planner.plan.symptom import SymptomState
    from planner.plan.types import Plan
    from providers.live.question import AccountModule
    from stacks.engine.failure import RefusedCall
    from stacks.engine.protocol import StackEngine

# Clouds refuse requests whose time is further away than that: AWS after five minutes.
MOST_SKEW_S: Final = 240.0
# Prices older than that are asked about anew.
OLD_CATALOG_DAYS: Final = 90


def cloud_symptoms(
    cloud: str,
    plan: Plan | None,
    standing: Sequence[Pool],
    instances: Mapping[str, Instance],
) -> Iterator[Symptom]:
    """Yield what a cloud would refuse of a plan; without one, or of another cloud, the login."""
    is_needed = plan is not None and plan.graph.provider == cloud
    region = plan.graph.region if plan is not None and is_needed else ""
    try:
        account: AccountModule = import_module(f"providers.{cloud}.account")
        caller = account.signed_in(region or open_region(cloud))
    except PermissionError as error:
        yield _login_symptom(cloud, str(error), is_needed=is_needed)
        return
    except UNANSWERED as error:
        yield _unanswered(cloud, error, is_needed=is_needed)
        return
    yield Symptom(
        subject=cloud, state="ok", text=f"signed in as {caller or 'somebody'}"
    )
    if plan is None or not is_needed:
        return
    notes: list[str] = []
    refusals = account_refusals(plan, standing, instances, notes.append)
    yield from (refusal_symptom(cloud, refusal) for refusal in refusals)
    yield from (
        Symptom(subject=cloud, state="unknown", text=note) for note in notes
    )
    if not refusals and not notes:
        yield Symptom(
            subject=cloud,
            state="ok",
            text="services, rights, quotas and zones are there for the plan",
        )


def _login_symptom(cloud: str, reason: str, *, is_needed: bool) -> Symptom:
    if not is_needed:
        return Symptom(
            subject=cloud, state="unneeded", text=f"not signed in: {reason}"
        )
    return Symptom(
        subject=cloud,
        state="fix",
        text=f"not signed in: {reason}",
        kind="credentials",
        remedy=f"sign in: {login_text(cloud)}",
    )


def _unanswered(cloud: str, error: Exception, *, is_needed: bool) -> Symptom:
    if not isinstance(error, ModuleNotFoundError):
        return Symptom(subject=cloud, state="unknown", text=str(error))
    return Symptom(
        subject=cloud,
        state="fix" if is_needed else "unneeded",
        text=f"{error}",
        kind="resource" if is_needed else "",
        remedy=f"pip install 'tonnage[{cloud}]'",
    )


def refusal_symptom(subject: str, refusal: RefusedCall) -> Symptom:
    """Return what a refused call says as something to fix."""
    kind = refusal.kind or classify_error(refusal.message)
    return Symptom(
        subject=subject,
        state="fix",
        text=f"{refusal.step}: {refusal.message}",
        kind=kind,
        remedy=refusal.remedy or NEXT_STEPS[kind],
    )


def engine_symptoms(
    open_engine: Callable[[], StackEngine], plan: Plan | None
) -> Iterator[Symptom]:
    """Yield whether the engine runs, its backend is reached, and the stack of a plan is free."""
    try:
        engine = open_engine()
        names = engine.stack_names()
        stack_name = plan.stack.name if plan is not None else ""
        holder = engine.store.holder(stack_name) if stack_name else None
    except TonnageError as error:
        for problem in error.problems:
            yield Symptom(
                subject="engine",
                state="fix",
                text=problem.message,
                kind="resource",
                remedy=problem.next_step,
            )
        return
    yield Symptom(
        subject="engine",
        state="ok",
        text=f"it runs, and its backend has {len(names)} "
        f"{'stack' if len(names) == 1 else 'stacks'}",
    )
    if holder is not None:
        yield Symptom(
            subject="lock",
            state="fix",
            text=f"{stack_name} is held by {holder.describe()}",
            kind="conflict",
            remedy=f"wait for it; of a run that is dead: tonnage unlock {stack_name}",
        )


def network_symptom(cloud: str) -> Symptom:
    """Return whether a cloud is reached, and the clock of this machine is near its own."""
    try:
        skew_s = clock_skew_s(cloud)
    except OSError as error:
        return Symptom(
            subject="network",
            state="unknown",
            text=f"{cloud} is not reached: {error}",
            remedy="check the network, and HTTPS_PROXY where there is a proxy",
        )
    if abs(skew_s) > MOST_SKEW_S:
        return Symptom(
            subject="clock",
            state="fix",
            text=f"it is {abs(skew_s):,.0f} s {'ahead of' if skew_s > 0 else 'behind'} that "
            f"of {cloud}, which refuses requests of another time",
            kind="resource",
            remedy="set it by the network: timedatectl set-ntp true",
        )
    return Symptom(
        subject="network",
        state="ok",
        text=f"{cloud} is reached, and the clock is {abs(skew_s):.0f} s from its own",
    )


def catalog_symptom(as_of: str, age_days: int) -> Symptom:
    """Return how old the prices are; old ones stop nothing."""
    state: SymptomState = "ok" if age_days <= OLD_CATALOG_DAYS else "unknown"
    return Symptom(
        subject="catalog",
        state=state,
        text=f"of {as_of}, {age_days:,} days old",
        remedy=""
        if state == "ok"
        else "prices of today: tonnage catalog update",
    )
