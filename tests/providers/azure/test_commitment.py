"""What a tenant of Azure has committed to that pays for a subscription."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from providers.azure import commitment
from tests.loopback import Cloud
from tests.providers.shapes import Document, answer_of
from tests.providers.shapes.service import serve

pytestmark = pytest.mark.enable_socket
RESERVATIONS = "azure/Reservation_ListAll"
PLANS = "azure/SavingsPlan_ListAll"
H100 = "Standard_ND96isr_H100_v5"
[RESERVED] = answer_of(RESERVATIONS)["value"]


def commit(
    cloud: Cloud,
    reserved: dict[str, Any] | None = None,
    plan: dict[str, Any] | None = None,
) -> None:
    """Let a tenant have one with some properties changed; none where none is given."""
    serve(
        cloud,
        {
            RESERVATIONS: _changed(RESERVATIONS, reserved),
            PLANS: _changed(PLANS, plan),
        },
    )


def _changed(call: str, change: dict[str, Any] | None) -> str | Document:
    if change is None:
        return "empty"
    document = answer_of(call)
    document["value"][0]["properties"] |= change
    return document


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
    commit(cloud, change)
    facts = commitment.commitments("eastus", [H100])
    assert [fact.amount for fact in facts] == ([4] if is_ours else [])
    regions = commitment.commitment_regions(["eastus", "westus"])
    assert regions == (["eastus"] if is_ours else [])


def test_use_is_that_of_the_longest_time(cloud: Cloud) -> None:
    """Three of four in seven days, though all of them on the last; none is told, none is said."""
    commit(cloud, {})
    assert commitment.commitment_use("eastus", [H100]) == {RESERVED["name"]: 3}
    commit(cloud, {"utilization": None})
    assert commitment.commitment_use("eastus", [H100]) == {}


@pytest.mark.parametrize(
    ("term", "usd"), [("P1Y", "67.9"), ("P3Y", "45.4"), ("P5Y", None)]
)
def test_a_savings_plan_takes_the_rate_of_its_term(
    cloud: Cloud, term: str, usd: str | None
) -> None:
    commit(cloud, None, {"term": term})
    facts = commitment.commitments("eastus", [H100, "Standard_NC4as_T4_v3"])
    assert [fact.takes for fact in facts] == (
        [{H100: Decimal(usd)}] if usd else []
    )


def test_a_plan_in_another_currency_is_left_out(cloud: Cloud) -> None:
    money = {"currencyCode": "EUR", "amount": 100, "grain": "Hourly"}
    commit(cloud, None, {"commitment": money})
    assert commitment.commitments("eastus", [H100]) == []
