"""What runs of a stack on AWS and what it has cost, with the real clients."""

from __future__ import annotations

from copy import deepcopy
from datetime import date
from decimal import Decimal

import pytest

from planner.plan.actual.charge import StackTags
from planner.plan.live_status import RunningMachines
from providers.aws import running
from tests.providers.aws.conftest import Stubbed
from tests.providers.shapes import answer_of

TAGS = StackTags("tonnage-stack", "chat", "tonnage-pool")


@pytest.fixture
def stubbed(stub_services) -> Stubbed:
    answer: Stubbed = stub_services(running)
    return answer


def test_machines_are_counted_by_kind_and_zone(stubbed: Stubbed) -> None:
    """Of all launches: two on demand and one on spot each, the second time in another zone."""
    document = answer_of("aws/DescribeInstances")
    [launch] = document["Reservations"]
    second = deepcopy(launch)
    for machine in second["Instances"]:
        machine["Placement"]["AvailabilityZone"] = "us-east-1a"
    document["Reservations"].append(second)
    asked = {
        "Filters": [
            {"Name": "tag:tonnage-stack", "Values": ["chat"]},
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ]
    }
    stubbed(("DescribeInstances", asked, document))
    assert running.running_machines("us-east-1", TAGS) == [
        RunningMachines(
            pool="serve",
            machine_type="p5.48xlarge",
            zone=zone,
            is_spot=is_spot,
            nodes=nodes,
        )
        for zone in ("us-east-1a", "us-east-1b")
        for is_spot, nodes in ((False, 2), (True, 1))
    ]


def test_where_nothing_runs_there_are_no_machines(stubbed: Stubbed) -> None:
    stubbed(("DescribeInstances", None, "empty"))
    assert running.running_machines("us-east-1", TAGS) == []


@pytest.mark.parametrize(
    ("today", "start", "end"),
    [
        (date(2026, 11, 27), "2026-11-01", "2026-11-28"),
        (date(2026, 11, 1), "2026-11-01", "2026-11-02"),
        (date(2026, 12, 31), "2026-12-01", "2027-01-01"),
    ],
)
@pytest.mark.parametrize("case", ["ordinary", "none"])
def test_a_cost_of_zero_is_not_known(
    stubbed: Stubbed, today: date, start: str, end: str, case: str
) -> None:
    """A tag that is not activated has one. The first day of a month has its own cost."""
    asked = {
        "TimePeriod": {"Start": start, "End": end},
        "Granularity": "MONTHLY",
        "Metrics": ["NetAmortizedCost"],
        "Filter": {"Tags": {"Key": "tonnage-stack", "Values": ["chat"]}},
    }
    stubbed(("GetCostAndUsage", asked, case))
    if case == "none":
        with pytest.raises(OSError, match="activate the tag"):
            running.month_cost("us-east-1", TAGS, today)
        return
    cost = running.month_cost("us-east-1", TAGS, today)
    assert (cost.amount, cost.first_day) == (Decimal("1234.5678"), start)
