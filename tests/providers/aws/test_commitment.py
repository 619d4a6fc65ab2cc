"""What an account of AWS has committed to, with the real clients and their own models."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from botocore.stub import ANY

from providers.aws import commitment
from tests.providers.aws.conftest import Stubbed

END = datetime(2026, 12, 1, tzinfo=UTC)
ACTIVE = {"Filters": [{"Name": "state", "Values": ["active"]}]}
RESERVED: dict[str, Any] = {
    "ReservedInstancesId": "ri-1",
    "InstanceType": "p5.48xlarge",
    "InstanceCount": 2,
    "Duration": 31_536_000,
    "FixedPrice": 87_600.0,
    "UsagePrice": 0.0,
    "RecurringCharges": [{"Amount": 20.5, "Frequency": "Hourly"}],
    "CurrencyCode": "USD",
    "ProductDescription": "Linux/UNIX",
    "InstanceTenancy": "default",
    "Scope": "Region",
    "End": END,
    "State": "active",
}
PLAN: dict[str, Any] = {
    "savingsPlanId": "sp-1",
    "savingsPlanType": "EC2Instance",
    "productTypes": ["EC2"],
    "currency": "USD",
    "commitment": "61.00",
    "region": "us-west-2",
    "end": "2028-05-31T23:59:59.000Z",
    "termDurationInSeconds": 94_608_000,
}
NO_PLAN: tuple[str, dict[str, Any], dict[str, Any]] = (
    "describe_savings_plans",
    {"states": ["active"]},
    {"savingsPlans": []},
)


@pytest.fixture
def stubbed(stub_services) -> Stubbed:
    answer: Stubbed = stub_services(commitment)
    return answer


def reserved(
    *rows: dict[str, Any],
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    return (
        "describe_reserved_instances",
        ACTIVE,
        {"ReservedInstances": list(rows)},
    )


def test_a_machine_costs_what_was_paid_at_once_and_by_the_hour(
    stubbed: Stubbed,
) -> None:
    """87,600 USD over 8,760 hours are 10 USD an hour; two machines."""
    stubbed({"ec2": [reserved(RESERVED)], "savingsplans": [NO_PLAN]})
    [fact] = commitment.commitments("us-east-1", ["p5.48xlarge"])
    assert fact.usd_hour == Decimal(61)
    assert fact.term == "reserved_1y"
    assert fact.takes == {"p5.48xlarge": 1}


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
    stubbed(
        {"ec2": [reserved({**RESERVED, **change})], "savingsplans": [NO_PLAN]}
    )
    assert commitment.commitments("us-east-1", ["p5.48xlarge"]) == []


def test_one_of_a_zone_says_so(stubbed: Stubbed) -> None:
    row = {
        **RESERVED,
        "Scope": "Availability Zone",
        "AvailabilityZone": "us-east-1b",
    }
    stubbed({"ec2": [reserved(row)], "savingsplans": [NO_PLAN]})
    [fact] = commitment.commitments("us-east-1", ["p5.48xlarge"])
    assert fact.zone == "us-east-1b"


def test_what_runs_fills_the_first_to_end_first(stubbed: Stubbed) -> None:
    later = {
        **RESERVED,
        "ReservedInstancesId": "ri-2",
        "End": END.replace(year=2027),
    }
    machine = {"InstanceType": "p5.48xlarge"}
    others = [{**machine, "InstanceLifecycle": "spot"}]
    stubbed(
        {
            "ec2": [
                reserved(later, RESERVED),
                (
                    "describe_instances",
                    {"Filters": ANY},
                    {"Reservations": [{"Instances": [machine] * 3 + others}]},
                ),
            ],
            "savingsplans": [NO_PLAN],
        }
    )
    use = commitment.commitment_use("us-east-1", ["p5.48xlarge"])
    assert use == {"ri-1": 2, "ri-2": 1}


def rate(name: str, usd: str) -> dict[str, Any]:
    return {
        "rate": usd,
        "properties": [
            {"name": "region", "value": "us-east-1"},
            {"name": "instanceType", "value": name},
        ],
    }


def test_a_savings_plan_has_the_rate_of_each_type(stubbed: Stubbed) -> None:
    """Of a page that follows too; one without a rate in the region is left out."""
    plans = {"savingsPlans": [PLAN, {**PLAN, "savingsPlanId": "sp-2"}]}
    filters = {"savingsPlanId": "sp-1", "filters": ANY}
    rows = [
        rate("g6.xlarge", "0.5"),
        rate("g6.xlarge", "0.52"),
        rate("m5.large", "1"),
    ]
    stubbed(
        {
            "ec2": [reserved()],
            "savingsplans": [
                ("describe_savings_plans", {"states": ["active"]}, plans),
                (
                    "describe_savings_plan_rates",
                    filters,
                    {"searchResults": rows, "nextToken": "two"},
                ),
                (
                    "describe_savings_plan_rates",
                    {**filters, "nextToken": "two"},
                    {"searchResults": [rate("p5.48xlarge", "30.5")]},
                ),
                (
                    "describe_savings_plan_rates",
                    {**filters, "savingsPlanId": "sp-2"},
                    {"searchResults": []},
                ),
            ],
        }
    )
    [fact] = commitment.commitments("us-east-1", ["g6.xlarge", "p5.48xlarge"])
    assert (fact.id, str(fact.amount)) == ("sp-1", "61.00")
    assert fact.unit == "usd_hour"
    assert fact.takes == {
        "g6.xlarge": Decimal("0.52"),
        "p5.48xlarge": Decimal("30.5"),
    }


def test_cost_explorer_is_asked_only_where_there_is_a_plan(
    stubbed: Stubbed,
) -> None:
    """It takes a cent. There is no answer of it here, and none is asked for."""
    stubbed({"ec2": [reserved()], "savingsplans": [NO_PLAN]})
    assert commitment.commitment_use("us-east-1", ["p5.48xlarge"]) == {}


def test_the_use_of_a_plan_is_its_mean_of_seven_days(stubbed: Stubbed) -> None:
    arn = "arn:aws:savingsplans::123456789012:savingsplan/sp-1"
    found = {
        "SavingsPlansUtilizationDetails": [
            {"SavingsPlanArn": arn, "Utilization": {"UsedCommitment": "5124.0"}}
        ],
        "TimePeriod": {"Start": "2026-11-20", "End": "2026-11-27"},
    }
    stubbed(
        {
            "ec2": [reserved()],
            "savingsplans": [
                (
                    "describe_savings_plans",
                    {"states": ["active"]},
                    {"savingsPlans": [PLAN]},
                )
            ],
            "ce": [
                (
                    "get_savings_plans_utilization_details",
                    {"TimePeriod": ANY, "DataType": ["UTILIZATION"]},
                    found,
                )
            ],
        }
    )
    use = commitment.commitment_use("us-east-1", ["p5.48xlarge"])
    assert use == {"sp-1": Decimal("30.5")}


def test_regions_are_those_of_reserved_instances_and_plans(
    stubbed: Stubbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        commitment,
        "_active_reserved",
        lambda region: [RESERVED] if region == "eu-west-1" else [],
    )
    stubbed(
        {
            "savingsplans": [
                (
                    "describe_savings_plans",
                    {"states": ["active"]},
                    {"savingsPlans": [PLAN]},
                )
            ]
        }
    )
    regions = ["eu-north-1", "eu-west-1", "us-east-1", "us-west-2"]
    assert commitment.commitment_regions(regions) == ["eu-west-1", "us-west-2"]
