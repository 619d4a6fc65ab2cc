"""Whether a plan still matches what it was made from."""

from __future__ import annotations

from typing import Any

from planner.errors import Problem, StaleError
from planner.version import VERSION


def check_staleness(
    plan: dict[str, Any],
    *,
    spec_sha256: str | None,
    catalog_sha256: str,
    state: dict[str, Any],
) -> None:
    """Raise StaleError when spec, catalog, tool or state changed since the plan was made.

    `spec_sha256` is None when the spec is not at hand. `state` has the digest of the stack's
    state (None: no stack) and the digest of the plan that it was made by: a plan that is already
    applied may be applied again, and changes nothing.
    """
    reasons = []
    if spec_sha256 is not None and spec_sha256 != plan["spec"]["sha256"]:
        reasons.append(f"{plan['spec']['path']} has changed")
    if catalog_sha256 != plan["catalog"]["sha256"]:
        reasons.append("the catalog has changed")
    if plan["tool_version"] != VERSION:
        reasons.append(
            f"it was made by tonnage {plan['tool_version']}, this is {VERSION}"
        )
    already_applied = state.get("plan") == plan["digest"]
    if (
        state.get("sha256") != plan["stack"]["state_sha256"]
        and not already_applied
    ):
        reasons.append(f"stack {plan['stack']['name']} has changed")
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
