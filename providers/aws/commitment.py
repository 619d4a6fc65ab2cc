"""Reserved instances and savings plans of an account of AWS, and what of them is used."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from planner.market.live import CommitmentFact
from planner.units import HOURS_PER_DAY, SECONDS_PER_HOUR
from providers.aws.client import service
from providers.live.commitment import asked_at_once, filled_in_order, term_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CLOUD: Final = "aws"
# Savings plans and their use are told at one place, for all regions.
PLAN_REGION: Final = "us-east-1"
LINUX: Final = "Linux/UNIX"
LINUX_PRODUCTS: Final = (LINUX, f"{LINUX} (Amazon VPC)")
SHARED: Final = "default"
ONE_ZONE: Final = "Availability Zone"
HOURLY: Final = "Hourly"
USD: Final = "USD"
USD_STEP: Final = Decimal("0.000001")
# Use is told a day late, and of days.
USE_DAYS: Final = 7
REGIONS_AT_ONCE: Final = 8
# A filter takes at most so many values.
TYPES_AT_ONCE: Final = 200
SAVINGS_PLAN: Final = "savings plan"
RESERVED_INSTANCES: Final = "reserved instances"


def commitment_regions(regions: Sequence[str]) -> list[str]:
    """Return the regions that have reserved instances, or a savings plan of their own."""
    planned = {plan.get("region") for plan in _savings_plans()}
    reserved = asked_at_once(_active_reserved, regions, REGIONS_AT_ONCE)
    return [
        region for region in regions if reserved[region] or region in planned
    ]


def commitments(
    region: str, machine_types: Sequence[str]
) -> list[CommitmentFact]:
    """Return the reserved instances of machine types, and the savings plans that pay for them."""
    reserved = [
        _reserved_fact(found)
        for found in _reserved_instances(region, machine_types)
    ]
    return [*reserved, *_savings_facts(region, machine_types)]


def commitment_use(
    region: str, machine_types: Sequence[str]
) -> dict[str, Decimal]:
    """Return how many reserved instances run, and USD an hour that savings plans pay for.

    The use of savings plans is the mean of the last days. Cost Explorer takes a cent for it, so it
    is asked only where there is one.
    """
    reserved = _reserved_instances(region, machine_types)
    use = _running_use(region, reserved) if reserved else {}
    return {**use, **(_savings_use() if _savings_plans() else {})}


def _reserved_instances(
    region: str, machine_types: Sequence[str]
) -> list[dict[str, Any]]:
    """Return what is reserved of Linux machines on shared hardware, and paid for when idle.

    Reservations of accelerated machines are of one size: AWS has no others for them.
    """
    return sorted(
        (
            found
            for found in _active_reserved(region)
            if found["InstanceType"] in machine_types
            and found["ProductDescription"] in LINUX_PRODUCTS
            and found["InstanceTenancy"] == SHARED
            # What only an hour of use costs is no commitment.
            and not found["UsagePrice"]
        ),
        key=lambda found: (found["End"], found["ReservedInstancesId"]),
    )


def _active_reserved(region: str) -> list[dict[str, Any]]:
    with service("ec2", region) as client:
        listed: list[dict[str, Any]] = client.describe_reserved_instances(
            Filters=[{"Name": "state", "Values": ["active"]}]
        )["ReservedInstances"]
    return listed


def _reserved_fact(found: dict[str, Any]) -> CommitmentFact:
    """Return reserved instances with their price.

    USD an hour of one = paid at once / hours of the term + what is paid by the hour
    """
    count = Decimal(found["InstanceCount"])
    hours = Decimal(found["Duration"]) / SECONDS_PER_HOUR
    hourly = sum(
        (
            Decimal(str(charge["Amount"]))
            for charge in found["RecurringCharges"]
            if charge["Frequency"] == HOURLY
        ),
        Decimal(0),
    )
    one_usd_hour = Decimal(str(found["FixedPrice"])) / hours + hourly
    return CommitmentFact(
        id=found["ReservedInstancesId"],
        name=RESERVED_INSTANCES,
        unit="machines",
        amount=count,
        takes={found["InstanceType"]: Decimal(1)},
        usd_hour=_rounded(count * one_usd_hour)
        if found["CurrencyCode"] == USD
        else None,
        term=term_of(CLOUD, str(found["Duration"])),
        zone=found["AvailabilityZone"] if found["Scope"] == ONE_ZONE else "",
        ends=f"{found['End'].astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
    )


def _running_use(
    region: str, reserved: list[dict[str, Any]]
) -> dict[str, Decimal]:
    """Return how many of the reserved instances run."""
    amounts: dict[str, dict[str, Decimal]] = {}
    for found in reserved:
        of_type = amounts.setdefault(found["InstanceType"], {})
        of_type[found["ReservedInstancesId"]] = Decimal(found["InstanceCount"])
    running = _running_machines(region, sorted(amounts))
    return {
        name: used
        for machine_type, of_type in amounts.items()
        for name, used in filled_in_order(
            Decimal(running[machine_type]), of_type
        ).items()
    }


def _running_machines(region: str, machine_types: list[str]) -> Counter[str]:
    """Return how many machines run that are not on spot, nor in a block, by their type."""
    running: Counter[str] = Counter()
    with service("ec2", region) as client:
        paginator = client.get_paginator("describe_instances")
        for start in range(0, len(machine_types), TYPES_AT_ONCE):
            pages = paginator.paginate(
                Filters=[
                    {
                        "Name": "instance-type",
                        "Values": machine_types[start : start + TYPES_AT_ONCE],
                    },
                    {"Name": "instance-state-name", "Values": ["running"]},
                ]
            )
            running.update(
                machine["InstanceType"]
                for page in pages
                for launch in page["Reservations"]
                for machine in launch["Instances"]
                # Only those that are bought in another way have one.
                if "InstanceLifecycle" not in machine
            )
    return running


def _savings_plans() -> list[dict[str, Any]]:
    """Return the savings plans that are paid for now and pay for machines."""
    plans: list[dict[str, Any]] = []
    with service("savingsplans", PLAN_REGION) as client:
        token, seen = "", set()
        while token not in seen:
            seen.add(token)
            page = client.describe_savings_plans(
                states=["active"], **({"nextToken": token} if token else {})
            )
            plans += page["savingsPlans"]
            token = page.get("nextToken") or ""
    return sorted(
        (plan for plan in plans if "EC2" in plan["productTypes"]),
        key=lambda plan: (plan["end"], plan["savingsPlanId"]),
    )


def _savings_facts(
    region: str, machine_types: Sequence[str]
) -> Iterator[CommitmentFact]:
    """Yield the savings plans that have a price of a machine type in the region."""
    for plan in _savings_plans():
        # One of another region has no prices here.
        rates = _savings_rates(plan["savingsPlanId"], region, machine_types)
        if not rates:
            continue
        commitment = Decimal(plan["commitment"])
        yield CommitmentFact(
            id=plan["savingsPlanId"],
            name=f"{SAVINGS_PLAN} {plan['savingsPlanType']}",
            unit="usd_hour",
            amount=commitment,
            takes=rates,
            usd_hour=commitment if plan["currency"] == USD else None,
            term=term_of(CLOUD, str(plan["termDurationInSeconds"])),
            ends=f"{plan['end'][:19]}Z",
        )


def _savings_rates(
    plan_id: str, region: str, machine_types: Sequence[str]
) -> dict[str, Decimal]:
    """Return the price of an hour of machine types on a savings plan, in its currency."""
    wanted = {
        "region": region,
        "productDescription": LINUX,
        "tenancy": "shared",
        "productType": "EC2",
    }
    rates: dict[str, Decimal] = {}
    with service("savingsplans", PLAN_REGION) as client:
        token, seen = "", set()
        while token not in seen:
            seen.add(token)
            page = client.describe_savings_plan_rates(
                savingsPlanId=plan_id,
                filters=[
                    {"name": name, "values": [value]}
                    for name, value in wanted.items()
                ],
                **({"nextToken": token} if token else {}),
            )
            for row in page["searchResults"]:
                name = _instance_type(row)
                if name in machine_types:
                    rate = Decimal(row["rate"])
                    rates[name] = max(rate, rates.get(name, rate))
            token = page.get("nextToken") or ""
    return {name: rate for name, rate in sorted(rates.items()) if rate > 0}


def _instance_type(row: dict[str, Any]) -> str:
    return next(
        (
            found["value"]
            for found in row["properties"]
            if found["name"] == "instanceType"
        ),
        "",
    )


def _savings_use() -> dict[str, Decimal]:
    """Return what of savings plans was used in an hour, in USD, as its mean of the last days."""
    today = datetime.now(UTC).date()
    period = {
        "Start": f"{today - timedelta(days=USE_DAYS):%Y-%m-%d}",
        "End": f"{today:%Y-%m-%d}",
    }
    use: dict[str, Decimal] = {}
    with service("ce", PLAN_REGION) as client:
        token, seen = "", set()
        while token not in seen:
            seen.add(token)
            page = client.get_savings_plans_utilization_details(
                TimePeriod=period,
                DataType=["UTILIZATION"],
                **({"NextToken": token} if token else {}),
            )
            for found in page["SavingsPlansUtilizationDetails"]:
                name = found["SavingsPlanArn"].rpartition("/")[2]
                used = Decimal(found["Utilization"]["UsedCommitment"])
                use[name] = _rounded(used / (USE_DAYS * HOURS_PER_DAY))
            token = page.get("NextToken") or ""
    return use


def _rounded(usd: Decimal) -> Decimal:
    return Decimal(f"{usd.quantize(USD_STEP).normalize():f}")
