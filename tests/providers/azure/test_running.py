"""What runs of a stack on Azure and what it has cost, at a service like Azure's."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from planner.plan.actual.charge import StackTags
from providers.azure import running
from tests.loopback import Answer, Cloud, Request

pytestmark = pytest.mark.enable_socket
TAGS = StackTags("tonnage-stack", "chat", "tonnage-pool")
FOLDER = "/subscriptions/sub/resourceGroups/chat/providers/Microsoft.Compute"
ON = {"statuses": [{"code": "PowerState/running"}]}


@pytest.mark.parametrize("mode", ["Flexible", "Uniform"])
def test_machines_of_both_sorts_of_sets_are_counted(
    cloud: Cloud, mode: str
) -> None:
    """Those of a flexible set are in the list of all machines, and have another field."""
    group = {
        "id": f"{FOLDER}/virtualMachineScaleSets/chat-serve",
        "location": "eastus",
        "tags": {"tonnage-stack": "chat", "tonnage-pool": "serve"},
        "properties": {
            "orchestrationMode": mode,
            "virtualMachineProfile": {"priority": "Spot"},
        },
    }
    machine: dict[str, Any] = {"properties": {"instanceView": ON}}
    if mode == "Flexible":
        machine["properties"]["hardwareProfile"] = {"vmSize": "Standard_X"}
    else:
        machine["sku"] = {"name": "Standard_X"}

    def answer(request: Request) -> Answer:
        path = request.path.partition("?")[0]
        if path.endswith("virtualMachineScaleSets"):
            other = {**group, "tags": {"tonnage-stack": "other"}}
            return 200, {"value": [group, other]}
        folder = FOLDER if mode == "Flexible" else group["id"]
        assert path == f"{folder}/virtualMachines"
        assert ("filter" in request.path) == (mode == "Flexible")
        return 200, {"value": [machine, machine]}

    cloud.answer = answer
    [found] = running.running_machines("eastus", TAGS)
    assert (found.machine_type, found.nodes) == ("Standard_X", 2)
    assert (found.pool, found.is_spot, found.zone) == ("serve", True, "")


@pytest.mark.parametrize(
    ("rows", "amount"),
    [([[12.5, "EUR"]], "12.5"), ([], None), ([[1, "EUR"], [2, "USD"]], None)],
)
def test_one_amount_is_a_cost(
    cloud: Cloud, rows: list[Any], amount: str | None
) -> None:
    """None is not zero, and two currencies have no sum."""
    columns = [{"name": "Cost"}, {"name": "Currency"}]
    cloud.answer = lambda _: (
        200,
        {"properties": {"columns": columns, "rows": rows}},
    )
    if amount is None:
        with pytest.raises((OSError, ValueError)):
            running.month_cost("eastus", TAGS, date(2026, 11, 27))
        return
    cost = running.month_cost("eastus", TAGS, date(2026, 11, 27))
    assert (cost.amount, cost.currency) == (Decimal(amount), "EUR")
    asked = cloud.asked[0].document()["dataset"]["filter"]["tags"]
    assert asked == {
        "name": "tonnage-stack",
        "operator": "In",
        "values": ["chat"],
    }
