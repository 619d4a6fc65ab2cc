"""What runs of a stack on Azure and what it has cost, at a service like Azure's."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from planner.plan.actual.charge import StackTags
from providers.azure import running
from tests.loopback import Cloud
from tests.providers.shapes import answer_of, call_of
from tests.providers.shapes.service import serve

pytestmark = pytest.mark.enable_socket
TAGS = StackTags("tonnage-stack", "chat", "tonnage-pool")
SETS = "azure/VirtualMachineScaleSets_ListAll"
OF_A_SET = "azure/VirtualMachineScaleSetVMs_List"
OF_ALL = "azure/VirtualMachines_List"
COSTS = "azure/Query_Usage"


@pytest.mark.parametrize(
    ("case", "machines"), [("ordinary", OF_A_SET), ("flexible", OF_ALL)]
)
def test_machines_of_both_sorts_of_sets_are_counted(
    cloud: Cloud, case: str, machines: str
) -> None:
    """Those of a flexible set are in the list of all machines, and have another field."""
    sets, running_ones = answer_of(SETS, case), answer_of(machines)
    [group] = sets["value"]
    sets["value"].append({**group, "tags": {"tonnage-stack": "other"}})
    # One more runs.
    running_ones["value"].append(running_ones["value"][0])
    serve(cloud, {SETS: sets, machines: running_ones})
    [found] = running.running_machines("eastus", TAGS)
    assert (found.machine_type, found.nodes) == ("Standard_ND96isr_H100_v5", 2)
    assert (found.pool, found.is_spot) == ("serve", case == "flexible")
    assert found.zone == ("1" if case == "ordinary" else "")
    assert [call_of(request) for request in cloud.asked] == [SETS, machines]
    assert ("filter" in cloud.asked[1].path) == (case == "flexible")


@pytest.mark.parametrize(
    ("rows", "amount"),
    [([[12.5, "EUR"]], "12.5"), ([], None), ([[1, "EUR"], [2, "USD"]], None)],
)
def test_one_amount_is_a_cost(
    cloud: Cloud, rows: list[Any], amount: str | None
) -> None:
    """None is not zero, and two currencies have no sum."""
    costs = answer_of(COSTS)
    costs["properties"]["rows"] = rows
    serve(cloud, {COSTS: costs})
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
