"""What AWS sells, and what an account has reserved: prices on demand and on spot."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from planner.facts import table
from planner.market.live import (
    NO_ZONE,
    BlockFact,
    ReclaimFact,
    ReservationFact,
)
from planner.units import SECONDS_PER_DAY
from providers.aws.client import service

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PUBLIC_QUESTIONS: Final[tuple[str, ...]] = ()
# The list of prices is at few places, and each has that of all regions.
PRICE_REGION: Final = "us-east-1"
# One product of each machine type: without them there are tens, and reservations of price zero.
PRODUCT_ATTRIBUTES: Final = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
# Of a region itself, not of a local zone in its name.
REGION_LOCATION: Final = "AWS Region"
# A call takes at most so many machine types.
TYPES_AT_ONCE: Final = 100
SPOT_PRODUCTS: Final = ["Linux/UNIX"]
# A cloud scores groups of types that stand in for each other; a smaller group always scores low.
SCORED_TYPES: Final = 3
FULL_SCORE: Final = 10
# Of more nobody reads on, and a record of them grows.
BLOCKS_KEPT: Final = 10
COUNTS_MACHINES: Final = "enabled"
RECLAIMS_METRIC: Final = "spot-total-interruptions-inst"
HOURS_METRIC: Final = "spot-total-usage-hrs-inst"
RECLAIM_WINDOW: Final = timedelta(days=28)


def on_demand_prices(
    region: str, machine_types: Sequence[str]
) -> dict[str, Decimal]:
    """Return USD an hour of machine types on demand."""
    with service("pricing", PRICE_REGION) as client:
        prices = {
            name: _lowest(
                price
                for product in listed_products(client, region, name)
                for price in _hourly_prices(product)
            )
            for name in machine_types
        }
    return {name: usd for name, usd in prices.items() if usd is not None}


def listed_products(
    client: Any, region: str, machine_type: str
) -> Iterator[dict[str, Any]]:
    """Yield what the list of prices has of a machine type in a region, not in its local zones."""
    attributes = {
        **PRODUCT_ATTRIBUTES,
        "instanceType": machine_type,
        "regionCode": region,
    }
    pages = client.get_paginator("get_products").paginate(
        ServiceCode="AmazonEC2",
        Filters=[
            {"Type": "TERM_MATCH", "Field": name, "Value": value}
            for name, value in attributes.items()
        ],
        FormatVersion="aws_v1",
    )
    for page in pages:
        for entry in page["PriceList"]:
            product = json.loads(entry)
            location = product["product"]["attributes"].get("locationType")
            if location in (None, REGION_LOCATION):
                yield product


def _hourly_prices(product: dict[str, Any]) -> Iterator[Decimal]:
    """Yield the hourly prices on demand of an entry of the list of prices."""
    for term in product["terms"].get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            if dimension["unit"] == "Hrs":
                price = _usd(dimension["pricePerUnit"].get("USD", ""))
                if price is not None:
                    yield price


def spot_prices(
    region: str, machine_types: Sequence[str]
) -> dict[str, dict[str, Decimal]]:
    """Return USD an hour of machine types on spot that are in force now, by zone.

    A history holds changes, so one that starts now has the last price of each zone.
    """
    newest: dict[tuple[str, str], tuple[datetime, Decimal]] = {}
    for change in _price_changes(region, list(machine_types)):
        price = _usd(change["SpotPrice"])
        key = (change["InstanceType"], change["AvailabilityZone"])
        if price is not None and (
            key not in newest or newest[key][0] < change["Timestamp"]
        ):
            newest[key] = (change["Timestamp"], price)
    prices: dict[str, dict[str, Decimal]] = {}
    for (machine_type, zone), (_, price) in sorted(newest.items()):
        prices.setdefault(machine_type, {})[zone] = price
    return prices


def _price_changes(
    region: str, machine_types: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield the last change of each price on spot."""
    now = datetime.now(UTC)
    with service("ec2", region) as client:
        paginator = client.get_paginator("describe_spot_price_history")
        for start in range(0, len(machine_types), TYPES_AT_ONCE):
            for page in paginator.paginate(
                InstanceTypes=machine_types[start : start + TYPES_AT_ONCE],
                ProductDescriptions=SPOT_PRODUCTS,
                StartTime=now,
            ):
                yield from page["SpotPriceHistory"]


def reservations(region: str) -> list[ReservationFact]:
    """Return the capacity reservations that are active: they are paid, used or not."""
    with service("ec2", region) as client:
        pages = client.get_paginator("describe_capacity_reservations").paginate(
            Filters=[{"Name": "state", "Values": ["active"]}]
        )
        return [
            ReservationFact(
                id=found["CapacityReservationId"],
                machine_type=found["InstanceType"],
                zone=found["AvailabilityZone"],
                machines=found["TotalInstanceCount"],
                free=found["AvailableInstanceCount"],
                ends=_utc(found.get("EndDate")),
                is_named=found.get("InstanceMatchCriteria") == "targeted",
            )
            for page in pages
            for found in page["CapacityReservations"]
        ]


def spot_scores(
    region: str, machine_types: Sequence[str], machines: int
) -> dict[str, dict[str, float]]:
    """Return how likely machines on spot are to be had, as the best zone scores, from 0 to 1.

    Raises LookupError for fewer than three types, which the cloud always scores low. Each of
    more gets the score of all. Zones have ids there, and other names in each account.
    """
    if len(machine_types) < SCORED_TYPES:
        raise LookupError(
            f"AWS scores {SCORED_TYPES} machine types together or more"
        )
    with service("ec2", region) as client:
        pages = client.get_paginator("get_spot_placement_scores").paginate(
            InstanceTypes=list(machine_types),
            TargetCapacity=machines,
            TargetCapacityUnitType="units",
            SingleAvailabilityZone=True,
            RegionNames=[region],
        )
        scores = [
            found["Score"] / FULL_SCORE
            for page in pages
            for found in page["SpotPlacementScores"]
        ]
    if not scores:
        return {}
    return {name: {NO_ZONE: max(scores)} for name in machine_types}


def own_reclaims(
    region: str, machine_types: Sequence[str]
) -> dict[str, ReclaimFact]:
    """Return what EC2 Capacity Manager has counted in four weeks.

    Raises LookupError where nobody has enabled it in the region.
    """
    end = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    sums: dict[str, Counter[str]] = {}
    with service("ec2", region) as client:
        state = client.get_capacity_manager_attributes()
        if state["CapacityManagerStatus"] != COUNTS_MACHINES:
            raise LookupError(
                f"EC2 Capacity Manager is not enabled in {region}"
            )
        pages = client.get_paginator(
            "get_capacity_manager_metric_data"
        ).paginate(
            MetricNames=[RECLAIMS_METRIC, HOURS_METRIC],
            StartTime=end - RECLAIM_WINDOW,
            EndTime=end,
            Period=SECONDS_PER_DAY,
            GroupBy=["resource-region", "instance-type"],
        )
        for page in pages:
            for row in page["MetricDataResults"]:
                dimension = row["Dimension"]
                if dimension["ResourceRegion"] != region:
                    continue
                found = sums.setdefault(dimension["InstanceType"], Counter())
                for measured in row["MetricValues"]:
                    found[measured["Metric"]] += measured["Value"]
    return {
        name: ReclaimFact(
            reclaims=float(found[RECLAIMS_METRIC]),
            machine_hours=float(found[HOURS_METRIC]),
        )
        for name, found in sorted(sums.items())
        # Both are told together; without hours no machine has run on spot.
        if name in machine_types
        and {RECLAIMS_METRIC, HOURS_METRIC} <= found.keys()
        and found[HOURS_METRIC] > 0
    }


def block_offers(
    region: str, machine_type: str, machines: int, hours: int
) -> list[BlockFact]:
    """Return the blocks of a region that are offered in USD, the cheapest and earliest first."""
    with service("ec2", region) as client:
        pages = client.get_paginator(
            "describe_capacity_block_offerings"
        ).paginate(
            InstanceType=machine_type,
            InstanceCount=machines,
            CapacityDurationHours=hours,
        )
        listed = [
            found for page in pages for found in page["CapacityBlockOfferings"]
        ]
    blocks = [
        BlockFact(
            id=found["CapacityBlockOfferingId"],
            machine_type=found["InstanceType"],
            zone=found["AvailabilityZone"],
            machines=found["InstanceCount"],
            starts=_block_moment(found["StartDate"]),
            ends=_block_moment(found["EndDate"]),
            usd=price,
        )
        for found in listed
        if found["CurrencyCode"] == "USD"
        and (price := _usd(found["UpfrontFee"])) is not None
    ]
    return sorted(
        blocks, key=lambda block: (block.usd, block.starts, block.id)
    )[:BLOCKS_KEPT]


def _block_moment(moment: datetime) -> str:
    """Return a time as a spec writes it."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%MZ}"


def _usd(text: str) -> Decimal | None:
    """Return a price; none for a text that is no price."""
    try:
        return table.usd_price(text)
    except (ValueError, InvalidOperation):
        return None


def _lowest(prices: Iterator[Decimal]) -> Decimal | None:
    return min(prices, default=None)


def _utc(time: datetime | None) -> str:
    return "" if time is None else f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
