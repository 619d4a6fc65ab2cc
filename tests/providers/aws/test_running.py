"""What runs of a stack on AWS and what it has cost, with the real clients."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from planner.plan.actual.charge import StackTags
from planner.plan.live_status import RunningMachines
from providers.aws import running
from tests.providers.aws.conftest import Stubbed

TAGS = StackTags("tonnage-stack", "chat", "tonnage-pool")


@pytest.fixture
def stubbed(stub_services) -> Stubbed:
    answer: Stubbed = stub_services(running)
    return answer


def machine(zone: str, **more: str) -> dict[str, Any]:
    return {
        "InstanceType": "g6.xlarge",
        "Placement": {"AvailabilityZone": zone},
        "Tags": [
            {"Key": "tonnage-stack", "Value": "chat"},
            {"Key": "tonnage-pool", "Value": "serve"},
        ],
        **more,
    }


def test_machines_are_counted_by_kind_and_zone(stubbed: Stubbed) -> None:
    launches = [
        {"Instances": [machine("b"), machine("a", InstanceLifecycle="spot")]},
        {"Instances": [machine("b")]},
    ]
    asked = {
        "Filters": [
            {"Name": "tag:tonnage-stack", "Values": ["chat"]},
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ]
    }
    stubbed(
        {"ec2": [("describe_instances", asked, {"Reservations": launches})]}
    )
    alike = {"pool": "serve", "machine_type": "g6.xlarge"}
    assert running.running_machines("us-east-1", TAGS) == [
        RunningMachines(**alike, zone="a", is_spot=True, nodes=1),
        RunningMachines(**alike, zone="b", is_spot=False, nodes=2),
    ]


@pytest.mark.parametrize(
    ("today", "start", "end"),
    [
        (date(2026, 11, 27), "2026-11-01", "2026-11-28"),
        (date(2026, 11, 1), "2026-11-01", "2026-11-02"),
        (date(2026, 12, 31), "2026-12-01", "2027-01-01"),
    ],
)
@pytest.mark.parametrize("amount", ["12.5", "0"])
def test_a_cost_of_zero_is_not_known(
    stubbed: Stubbed, today: date, start: str, end: str, amount: str
) -> None:
    """A tag that is not activated has one. The first day of a month has its own cost."""
    stubbed(
        {
            "ce": [
                (
                    "get_cost_and_usage",
                    {
                        "TimePeriod": {"Start": start, "End": end},
                        "Granularity": "MONTHLY",
                        "Metrics": ["NetAmortizedCost"],
                        "Filter": {
                            "Tags": {"Key": "tonnage-stack", "Values": ["chat"]}
                        },
                    },
                    {
                        "ResultsByTime": [
                            {
                                "TimePeriod": {"Start": start, "End": end},
                                "Total": {
                                    "NetAmortizedCost": {
                                        "Amount": amount,
                                        "Unit": "USD",
                                    }
                                },
                            }
                        ]
                    },
                )
            ]
        }
    )
    if amount == "0":
        with pytest.raises(OSError, match="activate the tag"):
            running.month_cost("us-east-1", TAGS, today)
        return
    cost = running.month_cost("us-east-1", TAGS, today)
    assert (cost.amount, cost.first_day) == (Decimal("12.5"), start)
