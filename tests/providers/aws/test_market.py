"""What AWS sells, with the real clients and their own models of the answers."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from botocore.stub import ANY

from planner.market.live import NO_ZONE, ReclaimFact, ReservationFact
from providers.aws import market
from tests.providers.aws.conftest import Stubbed

HOUR = datetime(2026, 11, 27, 6, tzinfo=UTC)
TYPES = ["g6.xlarge", "p5.48xlarge"]


@pytest.fixture
def stubbed(stub_services) -> Stubbed:
    answer: Stubbed = stub_services(market)
    return answer


def product(
    usd: str,
    *,
    unit: str = "Hrs",
    place: str = "AWS Region",
    terms: str = "OnDemand",
) -> str:
    """An entry of the list of prices: a text, as the service gives it."""
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}}
    return json.dumps(
        {
            "product": {
                "attributes": {"locationType": place, "instanceType": "x"},
                "sku": "S",
            },
            "terms": {
                terms: {"S.T": {"priceDimensions": {"S.T.D": dimension}}}
            },
            "a field of tomorrow": 1,
        }
    )


def asked(name: str) -> dict[str, Any]:
    fields = {
        **market.PRODUCT_ATTRIBUTES,
        "instanceType": name,
        "regionCode": "us-east-1",
    }
    return {
        "ServiceCode": "AmazonEC2",
        "FormatVersion": "aws_v1",
        "Filters": [
            {"Type": "TERM_MATCH", "Field": field, "Value": value}
            for field, value in fields.items()
        ],
    }


@pytest.mark.parametrize(
    ("products", "usd"),
    [
        ([product("0.8048")], "0.8048"),
        # A reservation of price zero, prices of other terms, units and places.
        ([product("0.0000000000"), product("0.8048")], "0.8048"),
        ([product("1", terms="Reserved"), product("2")], "2"),
        ([product("1", unit="Quantity"), product("2")], "2"),
        ([product("1", place="AWS Local Zone"), product("2")], "2"),
        ([product("NaN"), product("-1"), product("Infinity")], None),
        ([product("free")], None),
        ([], None),
    ],
)
def test_a_price_on_demand_is_that_of_one_product(
    stubbed: Stubbed, products: list[str], usd: str | None
) -> None:
    stubbed(
        {
            "pricing": [
                ("get_products", asked("g6.xlarge"), {"PriceList": products}),
                ("get_products", asked("p5.48xlarge"), {"PriceList": []}),
            ]
        }
    )
    assert market.on_demand_prices("us-east-1", TYPES) == (
        {} if usd is None else {"g6.xlarge": Decimal(usd)}
    )


def change(zone: str, usd: str, minutes: int) -> dict[str, Any]:
    return {
        "AvailabilityZone": zone,
        "InstanceType": "g6.xlarge",
        "ProductDescription": "Linux/UNIX",
        "SpotPrice": usd,
        "Timestamp": HOUR - timedelta(minutes=minutes),
    }


def test_a_price_on_spot_is_the_last_change_of_its_zone(
    stubbed: Stubbed,
) -> None:
    params = {
        "InstanceTypes": TYPES,
        "ProductDescriptions": ["Linux/UNIX"],
        "StartTime": ANY,
    }
    first = [change("us-east-1a", "0.3", 5), change("us-east-1a", "0.2", 9)]
    second = [change("us-east-1b", "0.41", 1), change("us-east-1c", "0", 1)]
    stubbed(
        {
            "ec2": [
                (
                    "describe_spot_price_history",
                    params,
                    {"SpotPriceHistory": first, "NextToken": "two"},
                ),
                (
                    "describe_spot_price_history",
                    {**params, "NextToken": "two"},
                    {"SpotPriceHistory": second, "NextToken": ""},
                ),
            ]
        }
    )
    assert market.spot_prices("us-east-1", TYPES) == {
        "g6.xlarge": {
            "us-east-1a": Decimal("0.3"),
            "us-east-1b": Decimal("0.41"),
        }
    }


def test_what_is_reserved_is_told_with_what_is_free(stubbed: Stubbed) -> None:
    found = {
        "CapacityReservationId": "cr-0a1b2c3d4e5f60718",
        "InstanceType": "p5.48xlarge",
        "AvailabilityZone": "us-east-1b",
        "TotalInstanceCount": 4,
        "AvailableInstanceCount": 3,
        "State": "active",
    }
    stubbed(
        {
            "ec2": [
                (
                    "describe_capacity_reservations",
                    {"Filters": [{"Name": "state", "Values": ["active"]}]},
                    {
                        "CapacityReservations": [
                            found,
                            {
                                **found,
                                "EndDate": HOUR,
                                "InstanceMatchCriteria": "targeted",
                            },
                        ]
                    },
                )
            ]
        }
    )
    plain = ReservationFact(
        id="cr-0a1b2c3d4e5f60718",
        machine_type="p5.48xlarge",
        zone="us-east-1b",
        machines=4,
        free=3,
    )
    ending = ReservationFact(
        id="cr-0a1b2c3d4e5f60718",
        machine_type="p5.48xlarge",
        zone="us-east-1b",
        machines=4,
        free=3,
        ends="2026-11-27T06:00:00Z",
        is_named=True,
    )
    assert market.reservations("us-east-1") == [plain, ending]


def test_spot_is_scored_for_three_types_together(stubbed: Stubbed) -> None:
    """Fewer always score low, so they are not asked about."""
    with pytest.raises(LookupError, match="3 machine types"):
        market.spot_scores("us-east-1", TYPES, 2)
    three = [*TYPES, "p4d.24xlarge"]
    scores = [
        {"Region": "us-east-1", "AvailabilityZoneId": zone, "Score": score}
        for zone, score in (("use1-az1", 3), ("use1-az2", 9))
    ]
    stubbed(
        {
            "ec2": [
                (
                    "get_spot_placement_scores",
                    {
                        "InstanceTypes": three,
                        "TargetCapacity": 2,
                        "TargetCapacityUnitType": "units",
                        "SingleAvailabilityZone": True,
                        "RegionNames": ["us-east-1"],
                    },
                    {"SpotPlacementScores": scores},
                )
            ]
        }
    )
    # Ids of zones have other names in each account: the region has the score of its best.
    assert market.spot_scores("us-east-1", three, 2) == {
        name: {NO_ZONE: 0.9} for name in three
    }


def measured(name: str, reclaims: float | None, hours: float) -> dict[str, Any]:
    values = [{"Metric": market.HOURS_METRIC, "Value": hours}]
    if reclaims is not None:
        values.append({"Metric": market.RECLAIMS_METRIC, "Value": reclaims})
    return {
        "Dimension": {"ResourceRegion": "us-east-1", "InstanceType": name},
        "MetricValues": values,
    }


def test_own_reclaims_are_summed_over_four_weeks(stubbed: Stubbed) -> None:
    """Of other regions, of other types, and where none ran: nothing."""
    elsewhere = measured("g6.xlarge", 9.0, 9.0)
    elsewhere["Dimension"]["ResourceRegion"] = "eu-west-1"
    rows = [
        measured("g6.xlarge", 1.0, 20.0),
        measured("g6.xlarge", 2.0, 24.5),
        measured("m5.large", 5.0, 24.0),
        measured("p5.48xlarge", 0.0, 0.0),
        elsewhere,
    ]
    stubbed(
        {
            "ec2": [
                (
                    "get_capacity_manager_attributes",
                    {},
                    {"CapacityManagerStatus": "enabled"},
                ),
                (
                    "get_capacity_manager_metric_data",
                    {
                        "MetricNames": [
                            market.RECLAIMS_METRIC,
                            market.HOURS_METRIC,
                        ],
                        "StartTime": ANY,
                        "EndTime": ANY,
                        "Period": 86_400,
                        "GroupBy": ["resource-region", "instance-type"],
                    },
                    {"MetricDataResults": rows},
                ),
            ]
        }
    )
    assert market.own_reclaims("us-east-1", TYPES) == {
        "g6.xlarge": ReclaimFact(reclaims=3.0, machine_hours=44.5)
    }


def test_who_does_not_count_reclaims_has_none(stubbed: Stubbed) -> None:
    stubbed(
        {
            "ec2": [
                (
                    "get_capacity_manager_attributes",
                    {},
                    {"CapacityManagerStatus": "disabled"},
                )
            ]
        }
    )
    with pytest.raises(LookupError, match="not enabled"):
        market.own_reclaims("us-east-1", TYPES)


def test_blocks_are_told_as_a_spec_names_them(stubbed: Stubbed) -> None:
    """The cheapest first, then the earliest; what has no price in USD is left out."""
    block: dict[str, Any] = {
        "CapacityBlockOfferingId": "cb-1",
        "InstanceType": "p5.48xlarge",
        "AvailabilityZone": "us-east-1b",
        "InstanceCount": 2,
        "StartDate": HOUR,
        "EndDate": HOUR + timedelta(days=4),
        "UpfrontFee": "5760.0",
        "CurrencyCode": "USD",
    }
    others: list[dict[str, Any]] = [
        {"CapacityBlockOfferingId": "cb-2", "UpfrontFee": "5000.5"},
        {
            "CapacityBlockOfferingId": "cb-3",
            "StartDate": HOUR - timedelta(hours=1),
        },
        {"CapacityBlockOfferingId": "cb-4", "CurrencyCode": "CNY"},
        {"CapacityBlockOfferingId": "cb-5", "UpfrontFee": "0"},
    ]
    stubbed(
        {
            "ec2": [
                (
                    "describe_capacity_block_offerings",
                    {
                        "InstanceType": "p5.48xlarge",
                        "InstanceCount": 2,
                        "CapacityDurationHours": 96,
                    },
                    {
                        "CapacityBlockOfferings": [
                            block,
                            *({**block, **other} for other in others),
                        ]
                    },
                )
            ]
        }
    )
    found = market.block_offers("us-east-1", "p5.48xlarge", 2, 96)
    assert [offer.id for offer in found] == ["cb-2", "cb-3", "cb-1"]
    assert found[0].usd == Decimal("5000.5")
    assert (found[2].starts, found[2].ends) == (
        "2026-11-27T06:00Z",
        "2026-12-01T06:00Z",
    )
