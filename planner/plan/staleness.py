"""Check that a plan still matches its spec, catalog, tool version and stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.errors import Problem, StaleError
from planner.version import VERSION

if TYPE_CHECKING:
    from planner.plan.status import StackStatus
    from planner.plan.types import Plan


def check_staleness(
    plan: Plan,
    *,
    spec_sha256: str | None,
    catalog_sha256: str,
    stack_status: StackStatus | None,
) -> None:
    """Raise StaleError when spec, catalog, tool or stack differ from the plan's.

    spec_sha256   SHA-256 of the spec now; None when the file was not found
    stack_status  stack now; None when it does not exist

    A plan that was applied already is not stale. Applying it again changes nothing.
    """
    reasons = []
    if spec_sha256 is not None and spec_sha256 != plan.spec.sha256:
        reasons.append(f"{plan.spec.path} has changed")
    if catalog_sha256 != plan.catalog.sha256:
        reasons.append("the catalog has changed")
    # Another version may predict or create something else.
    if plan.tool_version != VERSION:
        reasons.append(
            f"it was made by tonnage {plan.tool_version}, this is {VERSION}"
        )
    state_sha256 = stack_status.state_sha256 if stack_status else None
    # The first apply of this plan changed the state itself.
    already_applied = stack_status and stack_status.plan == plan.digest
    if state_sha256 != plan.stack.state_sha256 and not already_applied:
        reasons.append(f"stack {plan.stack.name} has changed")
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
