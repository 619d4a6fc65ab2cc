"""Of offers with the same price the spec decides, by the order of its lists."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from planner.market.offer_filter import OfferFilter, place_order, spec_rules
from providers.catalog.load import load_catalog
from stacks.spec.table import unsupported_reason
from tests.conftest import chat, spec_of


def equal_groups(regions):
    """Groups of one machine type that costs the same in each region."""
    group = next(
        group
        for group in load_catalog().offer_groups
        if {offer.region for offer in group} >= set(regions)
        and group[0].purchase == "on_demand"
    )
    return (
        tuple(
            replace(offer, usd_hour=group[0].usd_hour)
            for offer in sorted(group, key=lambda offer: offer.region)
            if offer.region in regions
        ),
    )


@pytest.mark.parametrize(
    "regions", [("us-east-1", "us-west-2"), ("us-west-2", "us-east-1")]
)
def test_equal_prices_prefer_the_first_region_of_the_spec(regions) -> None:
    spec = spec_of(
        chat(extra=f"where: {{clouds: [aws], regions: [{', '.join(regions)}]}}")
    )
    offers = OfferFilter(
        equal_groups(regions),
        spec_rules(spec, unsupported_reason, resumes=False),
        place_order(spec),
    ).cheapest()
    assert [offer.region for offer in offers] == [regions[0]]


def test_a_cheaper_region_wins_whatever_the_order() -> None:
    spec = spec_of(
        chat(extra="where: {clouds: [aws], regions: [us-west-2, us-east-1]}")
    )
    (group,) = equal_groups(("us-east-1", "us-west-2"))
    cheap = replace(group[0], usd_hour=group[0].usd_hour / 2)
    offers = OfferFilter(
        ((cheap, *group[1:]),),
        spec_rules(spec, unsupported_reason, resumes=False),
        place_order(spec),
    ).cheapest()
    assert [offer.region for offer in offers] == [cheap.region]


def test_places_are_ranked_as_the_spec_lists_them() -> None:
    spec = spec_of(
        chat(extra="where: {clouds: [gcp, aws], regions: [us-west-*, us-*]}")
    )
    order = place_order(spec)
    (group,) = equal_groups(("us-east-1", "us-west-2"))
    ranks = {offer.region: order.rank(offer) for offer in group}
    assert ranks == {"us-east-1": (1, 1), "us-west-2": (1, 0)}
