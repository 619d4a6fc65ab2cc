"""Check that a plan still matches all that it was made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from planner.errors import Problem, StaleError
from planner.plan.status import standing_offers
from planner.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.plan.status import StackStatus
    from planner.plan.types import Plan, Properties


class PresentInputs(Struct, frozen=True, kw_only=True):
    """What a plan is made from, as it is now.

    normalized          the spec with its defaults; none when its file was not found
    files               SHA-256 of the files that the spec names; none for one that is gone
    calibration_sha256  of the file of the calibration; none without one
    prices_sha256       of the file with prices of one's own; none without one
    plugins             versions of the providers
    """

    normalized: Properties | None
    files: dict[str, str | None] = field(default_factory=dict)
    calibration_sha256: str | None = None
    prices_sha256: str | None = None
    catalog_sha256: str
    plugins: dict[str, str] = field(default_factory=dict)


def check_staleness(
    plan: Plan, present: PresentInputs, stack_status: StackStatus | None
) -> None:
    """Raise StaleError when something differs from what the plan was made from.

    `stack_status` is the stack now, none when it does not exist. A plan that was applied already
    is not stale: applying it again changes nothing.
    """
    reasons = [
        *changed_inputs(plan, present),
        *_changed_stack(plan, stack_status),
    ]
    if reasons:
        raise StaleError(
            *(
                Problem(
                    code="stale",
                    message=f"the plan is stale: {reason}",
                    next_step="make a new plan: tonnage plan SPEC -o FILE",
                )
                for reason in reasons
            )
        )


def changed_inputs(plan: Plan, present: PresentInputs) -> Iterator[str]:
    """Yield what differs from what a plan was made from, but for its stack."""
    if present.normalized is not None:
        if present.normalized != plan.spec.normalized:
            yield f"{plan.spec.path} has changed"
        for file_name, planned_sha256 in sorted(plan.inputs.files.items()):
            if present.files.get(file_name) != planned_sha256:
                yield f"{file_name} has changed"
        if present.calibration_sha256 != plan.inputs.calibration_sha256:
            yield f"{plan.inputs.calibration} has changed"
        if present.prices_sha256 != plan.inputs.prices_sha256:
            yield f"{plan.inputs.prices} has changed"
    if present.catalog_sha256 != plan.catalog.sha256:
        yield "the catalog has changed"
    # Another version may predict or create something else.
    if plan.tool_version != VERSION:
        yield f"it was made by tonnage {plan.tool_version}, this is {VERSION}"
    for package, planned_version in sorted(plan.inputs.plugins.items()):
        version = present.plugins.get(package)
        if version != planned_version:
            yield (
                f"it was made for {package} {planned_version}, this is {version}"
            )


def _changed_stack(
    plan: Plan, stack_status: StackStatus | None
) -> Iterator[str]:
    state_sha256 = stack_status.state_sha256 if stack_status else None
    # The first apply of this plan changed the state itself.
    is_applied = stack_status and stack_status.plan == plan.digest
    if state_sha256 != plan.stack.state_sha256 and not is_applied:
        yield f"stack {plan.stack.name} has changed"
    elif not is_applied and plan.inputs.standing != standing_offers(
        stack_status
    ):
        yield f"stack {plan.stack.name} has other machines than the plan says"
