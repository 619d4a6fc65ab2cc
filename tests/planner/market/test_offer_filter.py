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


@pytest.mark.parametrize(
    ("own_range", "cloud", "fabrics"),
    [
        ("172.16.0.0/16", "azure", {"infiniband"}),
        ("10.64.0.0/16", "gcp", {"tcpx", "tcpxo"}),
        ("10.43.0.0/16", "gcp", {"roce"}),
        ("10.44.0.0/16", "gcp", {"roce"}),
        ("10.50.0.0/16", "gcp", set()),
        ("172.16.0.0/16", "gcp", set()),
    ],
)
def test_a_range_leaves_out_the_machines_whose_interfaces_have_it(
    own_range: str, cloud: str, fabrics: set[str]
) -> None:
    def fabrics_of(extra: str) -> set[str]:
        spec = spec_of(chat(extra=f"{extra}\nwhere: {{clouds: [{cloud}]}}"))
        offers = OfferFilter(
            load_catalog().offer_groups,
            spec_rules(spec, unsupported_reason, resumes=True),
            place_order(spec),
        ).cheapest()
        return {offer.instance.fabric for offer in offers}

    everything = fabrics_of("")
    left = fabrics_of(f"network: {{range: {own_range}}}")
    assert fabrics <= everything
    assert everything - left == fabrics
