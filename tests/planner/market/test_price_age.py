"""A price older than a year is marked, and never makes spot cheaper than what is known since."""

from __future__ import annotations

from decimal import Decimal

import pytest
from msgspec.structs import replace

from planner.market.offer import Catalog, Offer
from planner.market.price_age import is_old, mark_old_prices
from planner.sentence import describe
from planner.solve.warning import old_price

TODAY = "2026-11-18"


@pytest.mark.parametrize(
    ("as_of", "old"),
    [
        ("2025-11-17", True),
        ("2025-11-18", False),
        ("2026-11-18", False),
        # A month and a year stand for their last day.
        ("2025-10", True),
        ("2025-11", False),
        ("2024", True),
        ("2025", False),
        ("unknown", False),
        ("", False),
    ],
)
def test_a_year_ends_on_its_day(as_of: str, old: bool) -> None:
    assert is_old(as_of, TODAY) is old


def of_type(catalog: Catalog, instance_type: str, region: str) -> list[Offer]:
    """On demand and spot of a machine type in a region, in this order."""
    offers = {
        offer.purchase: offer
        for offer in catalog.offers
        if (offer.instance.instance_type, offer.region)
        == (instance_type, region)
    }
    return [offers["on_demand"], offers["spot"]]


def priced(offer: Offer, usd_hour: str, as_of: str) -> Offer:
    """An offer with another price and date, before old ones are marked."""
    return replace(
        offer, usd_hour=Decimal(usd_hour), as_of=as_of, old_price=None
    )


@pytest.mark.parametrize(
    ("found", "planned"), [("10", "40"), ("39.99", "40"), ("60", "60")]
)
def test_an_old_spot_price_is_planned_with_the_freshest_ratio(
    found: str, planned: str, catalog: Catalog
) -> None:
    """A ratio of 0.4 is the newest of the type: 100 USD on demand make 40 on spot."""
    demand, spot = of_type(catalog, "p5.48xlarge", "us-east-1")
    elsewhere = of_type(catalog, "p5.48xlarge", "us-east-2")
    third = of_type(catalog, "p5.48xlarge", "us-west-2")
    marked = mark_old_prices(
        [
            priced(demand, "100", "2026-01-01"),
            priced(spot, found, "2025-07"),
            priced(elsewhere[0], "50", "2026-01-01"),
            priced(elsewhere[1], "20", "2026-10-01"),
            priced(third[0], "50", "2026-01-01"),
            priced(third[1], "5", "2026-02-01"),
        ],
        TODAY,
    )
    old = marked[1]
    assert old.usd_hour == Decimal(planned)
    assert old.old_price is not None
    assert old.old_price.usd_hour == Decimal(found)
    assert old.old_price.fresh_usd_hour == Decimal(40)
    assert old.old_price.ratio_as_of == "2026-10-01"
    assert all(offer.old_price is None for offer in marked if offer is not old)
    assert "40.00 at the ratio to on demand of 2026-10-01" in describe(
        old_price(old)
    )


def test_without_a_ratio_an_old_price_is_only_marked(catalog: Catalog) -> None:
    spot = of_type(catalog, "p5.48xlarge", "us-east-1")[1]
    [old] = mark_old_prices([priced(spot, "10", "2024")], TODAY)
    assert old.usd_hour == Decimal(10)
    assert old.old_price is not None
    assert old.old_price.fresh_usd_hour is None
    assert "of 2024, more than a year old" in describe(old_price(old))


def test_no_offer_is_planned_below_an_old_price(catalog: Catalog) -> None:
    old_offers = [offer for offer in catalog.offers if offer.old_price]
    assert old_offers
    for offer in old_offers:
        found = offer.old_price
        assert found is not None
        assert is_old(offer.as_of, catalog.as_of)
        assert offer.usd_hour == max(
            found.usd_hour, found.fresh_usd_hour or found.usd_hour
        )
    assert {id(offer) for offer in old_offers} == {
        id(offer)
        for offer in catalog.offers
        if is_old(offer.as_of, catalog.as_of)
    }


def test_a_price_that_is_not_old_has_nothing_to_say(catalog: Catalog) -> None:
    demand = of_type(catalog, "p5.48xlarge", "us-east-1")[0]
    with pytest.raises(ValueError, match=r"p5\.48xlarge"):
        old_price(demand)
