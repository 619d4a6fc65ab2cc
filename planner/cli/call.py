"""How a standing service is asked something."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.plan.status import StackStatus


def service_calls(status: StackStatus) -> tuple[str, ...]:
    """Return a command that asks a service something, once it has an address."""
    from planner.render.status import call_lines
    from stacks.spec.stack import SERVING_PORT

    address, facts = status.outputs.get("endpoint"), status.facts
    if not address or facts is None or facts.workload.model is None:
        return ()
    endpoint = facts.spec.get("endpoint", {})
    host = endpoint.get("host")
    return call_lines(
        f"https://{host}" if host else f"http://{address}:{SERVING_PORT}",
        facts.workload.model.name,
        has_key="api_key" in endpoint,
        points_to=str(address) if host else "",
    )
