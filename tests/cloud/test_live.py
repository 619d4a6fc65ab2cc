"""What only a cloud can show of its answers (docs/unproved.md): nothing is made or changed.

`make live-test CLOUD=aws` asks your own account about one region, and lists the prices that differ
from those of the catalog.
"""

from __future__ import annotations

import os
from decimal import Decimal

import click
import pytest

from planner.market.live import LiveFacts, PlaceFacts
from planner.market.offer import Catalog
from providers.live.place import LivePlace, ask_places
from providers.live.reach import clock_skew_s, open_region

CLOUD = os.environ.get("TONNAGE_CLOUD", "")
if not CLOUD:
    pytest.skip("no cloud is named: make live-test", allow_module_level=True)

pytestmark = pytest.mark.enable_socket
DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def place(catalog: Catalog) -> PlaceFacts:
    """What the account answers about all machine types of a region."""
    region = open_region(CLOUD)
    machine_types = {
        offer.instance.instance_type
        for offer in catalog.offers
        if (offer.provider, offer.region) == (CLOUD, region)
    }
    asked = LivePlace(CLOUD, region, tuple(sorted(machine_types)))
    facts = ask_places([asked], LiveFacts(), DEADLINE_S)
    assert facts.callers[CLOUD].state == "value", facts.callers[CLOUD].reason
    return facts.places[0]


def test_every_answer_has_the_shape_that_is_expected(place: PlaceFacts) -> None:
    """A right may be missing; an answer that is not understood is a fault of ours."""
    for name, answer in place.answers.items():
        click.echo(f"{name}: {answer.state} {answer.reason}")
    assert not [
        answer.reason
        for answer in place.answers.values()
        if "another shape" in answer.reason
    ]


def test_the_clock_is_near_that_of_the_cloud() -> None:
    assert abs(clock_skew_s(CLOUD)) < 240


def test_prices_are_those_of_the_catalog(
    place: PlaceFacts, catalog: Catalog
) -> None:
    """Each that differs is listed; none may be another order of magnitude."""
    prices = place.on_demand_usd.value or {}
    known = {
        offer.instance.instance_type: offer.usd_hour
        for offer in catalog.offers
        if offer.purchase == "on_demand"
        and (offer.provider, offer.region) == (CLOUD, place.region)
    }
    ratios: dict[str, Decimal] = {}
    for name in sorted(prices.keys() & known.keys()):
        ratios[name] = prices[name] / known[name]
        if prices[name] != known[name]:
            click.echo(
                f"{name}: {known[name]} in the catalog, {prices[name]} now"
            )
    for name in sorted(known.keys() - prices.keys()):
        click.echo(f"{name}: {known[name]} in the catalog, no price now")
    assert all(Decimal("0.2") < ratio < Decimal(5) for ratio in ratios.values())
