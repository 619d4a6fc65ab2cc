"""Which machines of a stack run on AWS, and what Cost Explorer says that it has cost."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from planner.plan.live_status import CostSoFar, RunningMachines
from providers.aws.client import service

if TYPE_CHECKING:
    from datetime import date

    from planner.plan.actual.charge import StackTags

COST_REGION: Final = "us-east-1"
# After discounts, with what is paid at once spread over its term.
METRIC: Final = "NetAmortizedCost"
SPOT: Final = "spot"


def running_machines(region: str, tags: StackTags) -> list[RunningMachines]:
    """Return the instances with the tag of a stack that run, or come up."""
    counts: Counter[tuple[str, str, str, bool]] = Counter()
    with service("ec2", region) as client:
        pages = client.get_paginator("describe_instances").paginate(
            Filters=[
                {"Name": f"tag:{tags.stack_tag}", "Values": [tags.stack]},
                {
                    "Name": "instance-state-name",
                    "Values": ["pending", "running"],
                },
            ]
        )
        for page in pages:
            for launch in page["Reservations"]:
                for machine in launch["Instances"]:
                    counts[_kind(machine, tags)] += 1
    return sorted(
        RunningMachines(
            pool=pool,
            machine_type=machine_type,
            zone=zone,
            is_spot=is_spot,
            nodes=nodes,
        )
        for (pool, machine_type, zone, is_spot), nodes in counts.items()
    )


def _kind(
    machine: dict[str, Any], tags: StackTags
) -> tuple[str, str, str, bool]:
    """Return pool, machine type, zone, and whether it is on spot."""
    values = {tag["Key"]: tag["Value"] for tag in machine["Tags"]}
    return (
        values.get(tags.pool_tag, ""),
        machine["InstanceType"],
        machine["Placement"]["AvailabilityZone"],
        machine.get("InstanceLifecycle") == SPOT,
    )


def month_cost(_region: str, tags: StackTags, today: date) -> CostSoFar:
    """Return the cost of the tag since the first day of a month: of all regions, a day late.

    A tag that is not activated has a cost of zero, and so has one of today: nobody knows it.
    """
    first_day = today.replace(day=1)
    amount, currency = Decimal(0), ""
    with service("ce", COST_REGION) as client:
        token, seen = "", set()
        while token not in seen:
            seen.add(token)
            page = client.get_cost_and_usage(
                TimePeriod={
                    "Start": f"{first_day:%Y-%m-%d}",
                    # The day after the last one.
                    "End": f"{today + timedelta(days=1):%Y-%m-%d}",
                },
                Granularity="MONTHLY",
                Metrics=[METRIC],
                Filter={
                    "Tags": {"Key": tags.stack_tag, "Values": [tags.stack]}
                },
                **({"NextPageToken": token} if token else {}),
            )
            for period in page["ResultsByTime"]:
                found = period["Total"][METRIC]
                amount += Decimal(found["Amount"])
                currency = found["Unit"]
            token = page.get("NextPageToken") or ""
    if not amount:
        raise OSError(
            f"Cost Explorer has counted nothing for {tags.stack_tag}={tags.stack}: activate the "
            "tag for cost allocation, and ask again a day later"
        )
    return CostSoFar(
        amount=amount, currency=currency, first_day=f"{first_day:%Y-%m-%d}"
    )
