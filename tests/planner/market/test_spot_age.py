"""A price of spot that may have moved decides only where it is the cheapest at its upper end."""

from __future__ import annotations

from decimal import Decimal

import pytest
from msgspec.structs import replace

from planner.market.mix import mixed_offers
from planner.market.offer import Catalog, Offer, PriceRange
from planner.market.price_change import price_ratios
from planner.market.spot_age import deciding_usd_hour, spot_limits
from tests.conftest import find, present
from tests.planner.solve.serving.test_spot_promise import LASTING, promised
from tests.stacks.engine.test_simulated import plan_of

TODAY = "2026-11-18"


def spot_of(catalog: Catalog, cloud: str, as_of: str) -> Offer:
    """Any price of a cloud on spot, of a date, 1 USD an hour."""
    spot = next(
        offer
        for offer in catalog.offers
        if offer.purchase == "spot" and offer.provider == cloud
    )
    return replace(
        spot, as_of=as_of, usd_hour=Decimal(1), price_range=None, old_price=None
    )


@pytest.mark.parametrize(
    ("cloud", "as_of", "decides"),
    [
        ("aws", "2026-08-20", True),
        ("aws", "2026-08-19", False),
        ("gcp", "2026-10-19", True),
        ("gcp", "2026-10-18", False),
        # A month and a year stand for their first day.
        ("gcp", "2026-11", True),
        ("gcp", "2026-10", False),
        ("aws", "2026-09", True),
        ("aws", "2026-08", False),
        ("azure", "2026", False),
        ("azure", "2026-11-18", True),
        ("aws", "unknown", False),
        # What has no date is of a contract.
        ("aws", "", True),
    ],
)
def test_a_price_decides_alone_up_to_the_limit_of_its_cloud(
    catalog: Catalog, cloud: str, as_of: str, *, decides: bool
) -> None:
    usd_hour = deciding_usd_hour(spot_of(catalog, cloud, as_of), TODAY)
    assert (usd_hour == 1) is decides
    assert usd_hour >= 1


def test_an_older_price_counts_at_least_as_much(catalog: Catalog) -> None:
    dates = ("2026-11-18", "2026-08-01", "2026-02", "2025-11-30", "2025")
    prices = [
        deciding_usd_hour(spot_of(catalog, "aws", as_of), TODAY)
        for as_of in dates
    ]
    assert prices == sorted(set(prices))
    _, high = price_ratios("aws", "spot", 109)
    assert float(prices[1]) == pytest.approx(high, abs=1e-4)


def test_a_price_that_was_seen_higher_counts_as_that(catalog: Catalog) -> None:
    seen = PriceRange(Decimal("0.5"), Decimal(9))
    old = replace(spot_of(catalog, "aws", "2026-05-01"), price_range=seen)
    assert deciding_usd_hour(old, TODAY) == 9
    fresh = replace(old, as_of=TODAY)
    assert deciding_usd_hour(fresh, TODAY) == 1


@pytest.mark.parametrize(
    ("as_of", "first_day"), [("2025", "2025-01-01"), ("2026-02", "2026-02-01")]
)
def test_a_span_decides_as_its_first_day(
    catalog: Catalog, as_of: str, first_day: str
) -> None:
    span, day = (
        deciding_usd_hour(spot_of(catalog, "aws", date), TODAY)
        for date in (as_of, first_day)
    )
    assert span == day


def test_each_limit_has_a_source() -> None:
    assert {"aws", "gcp", "*"} <= set(spot_limits())
    assert all(row.source and row.as_of for row in spot_limits().values())


def dated(catalog: Catalog, as_of: str, usd_hour: str) -> Catalog:
    """A catalog of one machine type in a region, with a price on spot."""
    return replace(
        catalog,
        offers=tuple(
            replace(
                offer,
                as_of=as_of,
                usd_hour=Decimal(usd_hour),
                price_range=None,
                old_price=None,
                confidence="medium",
            )
            if offer.purchase == "spot"
            else offer
            for offer in catalog.offers
            if (offer.instance.instance_type, offer.region)
            == (LASTING, "us-east-2")
        ),
    )


@pytest.mark.parametrize(
    ("as_of", "usd_hour", "is_on_spot"),
    [
        (TODAY, "0.90", True),
        # It may be above the price on demand by now.
        ("2025-12-01", "0.90", False),
        # Even at its upper end it is below.
        ("2025-12-01", "0.20", True),
    ],
)
def test_the_planner_takes_spot_only_where_it_holds_at_the_upper_end(
    catalog: Catalog, as_of: str, usd_hour: str, *, is_on_spot: bool
) -> None:
    few = dated(catalog, as_of, usd_hour)
    solution = find(few, promised("99%"), keep=0)
    [pool] = solution.pools
    purchases = {part.purchase for part in pool.purchases}
    assert ("spot" in purchases) is is_on_spot
    codes = {warning.code for warning in solution.warnings}
    assert ("moved-price" in codes) is (is_on_spot and as_of != TODAY)
    # At no price within its band would machines on demand be cheaper.
    on_demand = find(
        few, promised("99%").replace("on_demand_base: auto", "spot: never")
    )
    assert present(solution.bill).total <= present(on_demand.bill).total


def test_a_stated_share_is_bought_at_the_price_that_was_found(
    catalog: Catalog,
) -> None:
    """Who writes a share has decided: the band of the total shows both ends."""
    few = dated(catalog, "2025-12-01", "0.90")
    [stated] = mixed_offers(few, base_share=Decimal("0.5"))
    assert present(stated.mix).tiers[-1].usd_hour == Decimal("0.90")
    assert not list(mixed_offers(few, base_share="auto"))


def test_the_band_of_a_total_is_that_of_the_price_that_was_found(
    catalog: Catalog,
) -> None:
    """The bill is at the upper end of prices already: they take it no further up."""
    few = dated(catalog, "2025-12-01", "0.20")
    cost = plan_of(few, promised("99%")).cost
    spot_usd = sum(
        float(present(line.usd))
        for line in cost.lines
        if line.name.endswith(" spot")
    )
    [cause] = [
        cause for cause in present(cost.band).causes if cause.cause == "prices"
    ]
    total = float(present(cost.total))
    assert float(cause.high) - total < 0.01 * spot_usd
    assert total - float(cause.low) > 0.5 * spot_usd
