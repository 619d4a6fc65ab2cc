"""What an account of AWS has committed to, with the real clients and their own models."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from botocore.stub import ANY

from providers.aws import commitment
from tests.providers.aws.conftest import Stubbed
from tests.providers.shapes import Document, answer_of

H100 = "p5.48xlarge"
ACTIVE = {"Filters": [{"Name": "state", "Values": ["active"]}]}
ACTIVE_PLANS = {"states": ["active"]}
NO_PLAN = ("DescribeSavingsPlans", ACTIVE_PLANS, "empty")
NOT_RESERVED = ("DescribeReservedInstances", ACTIVE, "empty")


@pytest.fixture
def stubbed(stub_services) -> Stubbed:
    answer: Stubbed = stub_services(commitment)
    return answer


def reserved_row(**changes: Any) -> Document:
    """Reserved instances of a region, two of them for a year."""
    row: Document = answer_of("aws/DescribeReservedInstances")[
        "ReservedInstances"
    ][0]
    del row["AvailabilityZone"]
    return {**row, "InstanceCount": 2, **changes}


def reserved(*rows: Document) -> tuple[str, dict[str, Any], Document]:
    return (
        "DescribeReservedInstances",
        ACTIVE,
        {"ReservedInstances": list(rows)},
    )


def test_a_machine_costs_what_was_paid_at_once_and_by_the_hour(
    stubbed: Stubbed,
) -> None:
    """131,400 USD over 8,760 hours are 15 USD an hour, and 15 more are paid; two machines."""
    stubbed(reserved(reserved_row()), NO_PLAN)
    [fact] = commitment.commitments("us-east-1", [H100])
    assert fact.usd_hour == Decimal(60)
    assert fact.term == "reserved_1y"
    assert fact.takes == {H100: 1}


@pytest.mark.parametrize(
    "change",
    [
        {"InstanceType": "m5.large"},
        {"ProductDescription": "Windows"},
        {"InstanceTenancy": "dedicated"},
        {"UsagePrice": 1.5},
    ],
)
def test_what_pays_for_other_machines_is_left_out(
    stubbed: Stubbed, change: dict[str, Any]
) -> None:
    stubbed(reserved(reserved_row(**change)), NO_PLAN)
    assert commitment.commitments("us-east-1", [H100]) == []


def test_one_of_a_zone_says_so(stubbed: Stubbed) -> None:
    row = reserved_row(Scope="Availability Zone", AvailabilityZone="us-east-1b")
    stubbed(reserved(row), NO_PLAN)
    [fact] = commitment.commitments("us-east-1", [H100])
    assert fact.zone == "us-east-1b"


def test_what_runs_fills_the_first_to_end_first(stubbed: Stubbed) -> None:
    """Two machines run, and one on spot that no commitment pays for."""
    first = reserved_row(ReservedInstancesId="ri-1", InstanceCount=1)
    later = {
        **first,
        "ReservedInstancesId": "ri-2",
        "End": "2027-12-01T00:00:00Z",
    }
    stubbed(
        reserved(later, first),
        ("DescribeInstances", None, "ordinary"),
        NO_PLAN,
    )
    use = commitment.commitment_use("us-east-1", [H100])
    assert use == {"ri-1": 1, "ri-2": 1}


def rates_of(usd_hour: dict[str, str]) -> Document:
    """The rates of a savings plan for some machine types."""
    document = answer_of("aws/DescribeSavingsPlanRates")
    row = document["searchResults"][0]
    document["searchResults"] = [
        {
            **row,
            "rate": usd,
            "properties": [
                {**found, "value": name}
                if found["name"] == "instanceType"
                else found
                for found in row["properties"]
            ],
        }
        for name, usd in usd_hour.items()
    ]
    return document


def test_a_savings_plan_has_the_rate_of_each_type(stubbed: Stubbed) -> None:
    """Of a page that follows too; one without a rate in the region is left out."""
    plans = answer_of("aws/DescribeSavingsPlans")
    [plan] = plans["savingsPlans"]
    [local] = answer_of("aws/DescribeSavingsPlans", "of_a_region")[
        "savingsPlans"
    ]
    # The first that ends is asked for first.
    local["end"] = plan["end"]
    plans["savingsPlans"].append(local)
    filters = {"savingsPlanId": plan["savingsPlanId"], "filters": ANY}
    first = rates_of({"g6.xlarge": "0.5", "m5.large": "1"})
    second = rates_of({"g6.xlarge": "0.52", H100: "30.5"})
    stubbed(
        NOT_RESERVED,
        ("DescribeSavingsPlans", ACTIVE_PLANS, plans),
        (
            "DescribeSavingsPlanRates",
            filters,
            {**first, "nextToken": "two"},
        ),
        (
            "DescribeSavingsPlanRates",
            {**filters, "nextToken": "two"},
            second,
        ),
        (
            "DescribeSavingsPlanRates",
            {**filters, "savingsPlanId": local["savingsPlanId"]},
            "empty",
        ),
    )
    [fact] = commitment.commitments("us-east-1", ["g6.xlarge", H100])
    assert (fact.id, str(fact.amount)) == (plan["savingsPlanId"], "80.00")
    assert fact.unit == "usd_hour"
    assert fact.takes == {
        "g6.xlarge": Decimal("0.52"),
        H100: Decimal("30.5"),
    }


def test_cost_explorer_is_asked_only_where_there_is_a_plan(
    stubbed: Stubbed,
) -> None:
    """It takes a cent. There is no answer of it here, and none is asked for."""
    stubbed(NOT_RESERVED, NO_PLAN)
    assert commitment.commitment_use("us-east-1", [H100]) == {}


@pytest.mark.parametrize(("case", "used"), [("ordinary", "50"), ("empty", "")])
def test_the_use_of_a_plan_is_its_mean_of_seven_days(
    stubbed: Stubbed, case: str, used: str
) -> None:
    """8,400 USD in 168 hours; of a new one nothing is told yet."""
    stubbed(
        NOT_RESERVED,
        ("DescribeSavingsPlans", ACTIVE_PLANS, "ordinary"),
        (
            "GetSavingsPlansUtilizationDetails",
            {"TimePeriod": ANY, "DataType": ["UTILIZATION"]},
            case,
        ),
    )
    use = commitment.commitment_use("us-east-1", [H100])
    assert list(use.values()) == ([Decimal(used)] if used else [])


def test_regions_are_those_of_reserved_instances_and_plans(
    stubbed: Stubbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        commitment,
        "_active_reserved",
        lambda region: [reserved_row()] if region == "eu-west-1" else [],
    )
    stubbed(("DescribeSavingsPlans", ACTIVE_PLANS, "of_a_region"))
    regions = ["eu-north-1", "eu-west-1", "us-east-1", "us-west-2"]
    assert commitment.commitment_regions(regions) == ["eu-west-1", "us-west-2"]
