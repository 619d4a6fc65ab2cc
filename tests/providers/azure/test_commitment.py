"""What a tenant of Azure has committed to that pays for a subscription."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from providers.azure import commitment
from tests.loopback import Answer, Cloud, Request

pytestmark = pytest.mark.enable_socket
DATA = Path(__file__).parents[1] / "live" / "data"
RETAIL = json.loads(
    (Path(__file__).parent / "data" / "retail_prices.json").read_text()
)["rows"]["on demand"]
H100 = "Standard_ND96isr_H100_v5"


def row_of(name: str) -> dict[str, Any]:
    [row] = json.loads((DATA / f"azure_{name}.json").read_text())["answer"][
        "value"
    ]
    found: dict[str, Any] = row
    return found


RESERVED, PLAN = row_of("price_reservations"), row_of("savings_plans")


def serve(
    cloud: Cloud,
    reserved: dict[str, Any] | None = None,
    plan: dict[str, Any] | None = None,
) -> None:
    """Let a tenant have one with some properties changed; none where none is given."""

    def changed(
        row: dict[str, Any], change: dict[str, Any] | None
    ) -> dict[str, Any]:
        if change is None:
            return {"value": []}
        return {
            "value": [{**row, "properties": {**row["properties"], **change}}]
        }

    def answer(request: Request) -> Answer:
        if "/retail/" in request.path:
            return 200, {"Items": RETAIL}
        if "savingsPlans" in request.path:
            return 200, changed(PLAN, plan)
        return 200, changed(RESERVED, reserved)

    cloud.answer = answer


OWN = "/subscriptions/SUB"
GROUP = f"{OWN}/resourceGroups/g"


@pytest.mark.parametrize(
    ("change", "is_ours"),
    [
        ({}, True),
        ({"appliedScopeType": "Shared", "appliedScopes": None}, True),
        ({"appliedScopes": [OWN]}, True),
        ({"appliedScopes": ["/subscriptions/other"]}, False),
        ({"appliedScopes": [GROUP]}, False),
        (
            {
                "appliedScopes": None,
                "appliedScopeProperties": {"subscriptionId": OWN},
            },
            True,
        ),
        (
            {
                "appliedScopes": None,
                "appliedScopeProperties": {
                    "subscriptionId": OWN,
                    "resourceGroupId": GROUP,
                },
            },
            False,
        ),
        ({"appliedScopeType": "ManagementGroup"}, False),
        ({"provisioningState": "Expired"}, False),
        ({"reservedResourceType": "SqlDatabases"}, False),
    ],
)
def test_what_pays_for_others_is_left_out(
    cloud: Cloud, change: dict[str, Any], *, is_ours: bool
) -> None:
    serve(cloud, change)
    facts = commitment.commitments("eastus", [H100])
    assert [fact.amount for fact in facts] == ([4] if is_ours else [])
    regions = commitment.commitment_regions(["eastus", "westus"])
    assert regions == (["eastus"] if is_ours else [])


def test_use_is_that_of_the_longest_time(cloud: Cloud) -> None:
    """Three of four in seven days, though all of them on the last; none is told, none is said."""
    serve(cloud, {})
    assert commitment.commitment_use("eastus", [H100]) == {RESERVED["name"]: 3}
    serve(cloud, {"utilization": None})
    assert commitment.commitment_use("eastus", [H100]) == {}


@pytest.mark.parametrize(
    ("term", "usd"), [("P1Y", "67.9"), ("P3Y", "45.4"), ("P5Y", None)]
)
def test_a_savings_plan_takes_the_rate_of_its_term(
    cloud: Cloud, term: str, usd: str | None
) -> None:
    serve(cloud, None, {"term": term})
    facts = commitment.commitments("eastus", [H100, "Standard_NC4as_T4_v3"])
    assert [fact.takes for fact in facts] == (
        [{H100: Decimal(usd)}] if usd else []
    )


def test_a_plan_in_another_currency_is_left_out(cloud: Cloud) -> None:
    money = {"currencyCode": "EUR", "amount": 100, "grain": "Hourly"}
    serve(cloud, None, {"commitment": money})
    assert commitment.commitments("eastus", [H100]) == []
