"""What the rows of the catalog say of what can be bought, against published prices."""

from __future__ import annotations

from decimal import Decimal

import pytest

from planner.market.offer import Catalog


@pytest.mark.parametrize(
    "instance_type", ["a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g"]
)
def test_slices_of_a3_are_sold_on_spot_alone(
    instance_type: str, catalog: Catalog
) -> None:
    """Google documents these sizes as Spot or Flex-start only: no commitment, no on demand."""
    purchases = {
        offer.purchase
        for offer in catalog.offers
        if offer.instance.instance_type == instance_type
    }
    assert purchases == {"spot"}


@pytest.mark.parametrize(
    ("instance_type", "region", "usd_hour"),
    [
        # Azure's retail price list, 2026-08-22 and 2026-03-21.
        ("Standard_ND96isr_H100_v5", "eastus", "18.1695"),
        ("Standard_NC16as_T4_v3", "centralus", "0.666808"),
        # Spot quotes of AWS, 2026-08-06.
        ("p5en.48xlarge", "eu-north-1", "39.8158"),
    ],
)
def test_spot_prices_are_those_that_were_published_last(
    instance_type: str, region: str, usd_hour: str, catalog: Catalog
) -> None:
    assert [
        offer.usd_hour
        for offer in catalog.offers
        if (offer.instance.instance_type, offer.region, offer.purchase)
        == (instance_type, region, "spot")
    ] == [Decimal(usd_hour)]


def test_a_price_is_given_once(catalog: Catalog) -> None:
    keys = [offer.key for offer in catalog.offers]
    assert len(keys) == len(set(keys))


def test_spot_is_below_on_demand_wherever_both_are_sold(
    catalog: Catalog,
) -> None:
    """A posted spot price without a discount means that there is no capacity."""
    on_demand = {
        offer.key[:3]: offer.usd_hour
        for offer in catalog.offers
        if offer.purchase == "on_demand"
    }
    both = [
        offer
        for offer in catalog.offers
        if offer.purchase == "spot" and offer.key[:3] in on_demand
    ]
    assert both
    assert all(offer.usd_hour < on_demand[offer.key[:3]] for offer in both)


def test_a_price_that_was_seen_to_move_has_its_range(catalog: Catalog) -> None:
    """p6-b300 on spot was 16 and 104 USD an hour within eight months."""
    [newest] = [
        offer
        for offer in catalog.offers
        if offer.key == ("aws", "p6-b300.48xlarge", "us-west-2", "spot")
    ]
    found = newest.price_range
    assert found is not None
    assert found.low_usd < 17
    assert found.high_usd == 104
    ranges = [
        (offer.price_range, offer.usd_hour)
        for offer in catalog.offers
        if offer.price_range and not offer.old_price
    ]
    assert len(ranges) > 100
    for price_range, usd_hour in ranges:
        assert price_range.low_usd <= usd_hour <= price_range.high_usd
        assert price_range.low_usd < price_range.high_usd
