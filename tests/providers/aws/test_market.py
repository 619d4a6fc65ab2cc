"""What AWS sells, with the real clients and their own models of the answers."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from botocore.stub import ANY
from msgspec.structs import replace

from planner.market.live import NO_ZONE, ReclaimFact, ReservationFact
from providers.aws import market
from tests.providers.aws.conftest import Stubbed
from tests.providers.shapes import Document, answer_of

TYPES = ["g6.xlarge", "p5.48xlarge"]
THREE = [*TYPES, "p4d.24xlarge"]


@pytest.fixture
def stubbed(stub_services) -> Stubbed:
    answer: Stubbed = stub_services(market)
    return answer


def product(usd: str, case: str = "ordinary") -> Document:
    """An entry of the list of prices at another price."""
    [entry] = answer_of("aws/GetProducts", case)["PriceList"]
    for terms in entry["terms"].values():
        for term in terms.values():
            for dimension in term["priceDimensions"].values():
                dimension["pricePerUnit"]["USD"] = usd
    return entry


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
        ([product("1", "reserved"), product("2")], "2"),
        ([product("1", "quantity"), product("2")], "2"),
        ([product("1", "local_zone"), product("2")], "2"),
        ([product("NaN"), product("-1"), product("Infinity")], None),
        ([product("free")], None),
        ([], None),
    ],
)
def test_a_price_on_demand_is_that_of_one_product(
    stubbed: Stubbed, products: list[Document], usd: str | None
) -> None:
    listed = {**answer_of("aws/GetProducts", "empty"), "PriceList": products}
    stubbed(
        ("GetProducts", asked("g6.xlarge"), listed),
        ("GetProducts", asked("p5.48xlarge"), "empty"),
    )
    assert market.on_demand_prices("us-east-1", TYPES) == (
        {} if usd is None else {"g6.xlarge": Decimal(usd)}
    )


def test_a_price_on_spot_is_the_last_change_of_its_zone(
    stubbed: Stubbed,
) -> None:
    params = {
        "InstanceTypes": TYPES,
        "ProductDescriptions": ["Linux/UNIX"],
        "StartTime": ANY,
    }
    first = answer_of("aws/DescribeSpotPriceHistory")
    newest, elsewhere = first["SpotPriceHistory"]
    older = {
        **newest,
        "SpotPrice": "0.2",
        "Timestamp": "2026-11-27T05:00:00Z",
    }
    unsold = {**elsewhere, "AvailabilityZone": "us-east-1c", "SpotPrice": "0"}
    second = {**first, "SpotPriceHistory": [elsewhere, unsold]}
    first = {"SpotPriceHistory": [newest, older], "NextToken": "two"}
    stubbed(
        ("DescribeSpotPriceHistory", params, first),
        (
            "DescribeSpotPriceHistory",
            {**params, "NextToken": "two"},
            second,
        ),
    )
    assert market.spot_prices("us-east-1", TYPES) == {
        "g6.xlarge": {
            "us-east-1a": Decimal("0.312700"),
            "us-east-1b": Decimal("0.298100"),
        }
    }


def test_what_is_reserved_is_told_with_what_is_free(stubbed: Stubbed) -> None:
    document = answer_of("aws/DescribeCapacityReservations")
    [ending] = document["CapacityReservations"]
    plain = {
        **ending,
        "EndDateType": "unlimited",
        "InstanceMatchCriteria": "open",
    }
    del plain["EndDate"]
    document["CapacityReservations"].append(plain)
    active = {"Filters": [{"Name": "state", "Values": ["active"]}]}
    stubbed(("DescribeCapacityReservations", active, document))
    fact = ReservationFact(
        id="cr-0a1b2c3d4e5f60718",
        machine_type="p5.48xlarge",
        zone="us-east-1b",
        machines=4,
        free=3,
    )
    assert market.reservations("us-east-1") == [
        replace(fact, ends="2026-12-31T23:59:59Z", is_named=True),
        fact,
    ]


def test_spot_is_scored_for_three_types_together(stubbed: Stubbed) -> None:
    """Fewer always score low, so they are not asked about."""
    with pytest.raises(LookupError, match="3 machine types"):
        market.spot_scores("us-east-1", TYPES, 2)
    params = {
        "InstanceTypes": THREE,
        "TargetCapacity": 2,
        "TargetCapacityUnitType": "units",
        "SingleAvailabilityZone": True,
        "RegionNames": ["us-east-1"],
    }
    stubbed(("GetSpotPlacementScores", params, "ordinary"))
    # Ids of zones have other names in each account: the region has the score of its best.
    assert market.spot_scores("us-east-1", THREE, 2) == {
        name: {NO_ZONE: 0.9} for name in THREE
    }


def test_without_a_score_nothing_is_said(stubbed: Stubbed) -> None:
    stubbed(("GetSpotPlacementScores", None, "empty"))
    assert market.spot_scores("us-east-1", THREE, 2) == {}


MEASURED: Document = answer_of("aws/GetCapacityManagerMetricData")


def measured(
    name: str, reclaims: float, hours: float, region: str = "us-east-1"
) -> Document:
    """A row of what was counted, with other numbers."""
    [row] = MEASURED["MetricDataResults"]
    counts = {market.RECLAIMS_METRIC: reclaims, market.HOURS_METRIC: hours}
    return {
        **row,
        "Dimension": {"ResourceRegion": region, "InstanceType": name},
        "MetricValues": [
            {**found, "Value": counts[found["Metric"]]}
            for found in row["MetricValues"]
        ],
    }


def test_own_reclaims_are_summed_over_four_weeks(stubbed: Stubbed) -> None:
    """Of other regions, of other types, and where none ran: nothing."""
    rows = [
        measured("g6.xlarge", 1.0, 20.0),
        measured("g6.xlarge", 2.0, 24.5),
        measured("m5.large", 5.0, 24.0),
        measured("p5.48xlarge", 0.0, 0.0),
        measured("g6.xlarge", 9.0, 9.0, region="eu-west-1"),
    ]
    params = {
        "MetricNames": [market.RECLAIMS_METRIC, market.HOURS_METRIC],
        "StartTime": ANY,
        "EndTime": ANY,
        "Period": 86_400,
        "GroupBy": ["resource-region", "instance-type"],
    }
    stubbed(
        ("GetCapacityManagerAttributes", {}, "ordinary"),
        (
            "GetCapacityManagerMetricData",
            params,
            {"MetricDataResults": rows},
        ),
    )
    assert market.own_reclaims("us-east-1", TYPES) == {
        "g6.xlarge": ReclaimFact(reclaims=3.0, machine_hours=44.5)
    }


def test_who_does_not_count_reclaims_has_none(stubbed: Stubbed) -> None:
    stubbed(("GetCapacityManagerAttributes", {}, "none"))
    with pytest.raises(LookupError, match="not enabled"):
        market.own_reclaims("us-east-1", TYPES)


def test_blocks_are_told_as_a_spec_names_them(stubbed: Stubbed) -> None:
    """The cheapest first, then the earliest; what has no price in USD is left out."""
    document = answer_of("aws/DescribeCapacityBlockOfferings")
    [block] = document["CapacityBlockOfferings"]
    start = datetime.fromisoformat(block["StartDate"])
    earlier = f"{start - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    block["CapacityBlockOfferingId"] = "cb-1"
    document["CapacityBlockOfferings"] += [
        {**block, "CapacityBlockOfferingId": name, **change}
        for name, change in {
            "cb-2": {"UpfrontFee": "5000.5"},
            "cb-3": {"StartDate": earlier},
            "cb-4": {"CurrencyCode": "CNY"},
            "cb-5": {"UpfrontFee": "0"},
        }.items()
    ]
    params = {
        "InstanceType": "p5.48xlarge",
        "InstanceCount": 2,
        "CapacityDurationHours": 96,
    }
    stubbed(("DescribeCapacityBlockOfferings", params, document))
    found = market.block_offers("us-east-1", "p5.48xlarge", 2, 96)
    assert [offer.id for offer in found] == ["cb-2", "cb-3", "cb-1"]
    assert found[0].usd == Decimal("5000.5")
    assert (found[2].starts, found[2].ends) == (
        "2026-12-01T11:30Z",
        "2026-12-05T11:30Z",
    )
