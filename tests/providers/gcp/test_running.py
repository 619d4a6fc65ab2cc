"""What runs of a stack on Google Cloud, at a service like its own."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from planner.plan.actual.charge import StackTags
from providers.gcp import running
from tests.loopback import Cloud

pytestmark = pytest.mark.enable_socket
TAGS = StackTags("tonnage-stack", "chat", "tonnage-pool")


def machine(**changes: Any) -> dict[str, Any]:
    return {
        "machineType": "https://x/machineTypes/g2-standard-4",
        "status": "RUNNING",
        "labels": {"tonnage-stack": "chat", "tonnage-pool": "serve"},
        **changes,
    }


def test_what_does_not_run_or_is_of_another_stack_is_left_out(
    cloud: Cloud,
) -> None:
    machines = [
        machine(),
        machine(status="STAGING"),
        machine(status="TERMINATED"),
        machine(labels={"tonnage-stack": "other"}),
        machine(scheduling={"provisioningModel": "SPOT"}),
    ]
    items = {
        "zones/us-east4-a": {"instances": machines},
        "zones/us-west1-b": {"instances": machines},
    }
    cloud.answer = lambda _: (200, {"items": items})
    found = running.running_machines("us-east4", TAGS)
    assert [(each.is_spot, each.nodes) for each in found] == [
        (False, 2),
        (True, 1),
    ]
    assert {each.machine_type for each in found} == {"g2-standard-4"}


def test_a_cost_is_told_by_an_export_alone() -> None:
    with pytest.raises(OSError, match="tonnage usage PLAN --from FILE"):
        running.month_cost("us-east4", TAGS, date(2026, 11, 27))
