"""Fallbacks: each is the cheapest of its kind, meets the spec, and stays under the ceiling."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from msgspec.structs import replace

from planner import api
from planner.market.offer import Offer
from planner.plan.canonical import dump_plan, parse_plan
from planner.plan.types import Plan
from planner.render import text
from planner.render.plan import plan_page
from planner.spec.reservation import zone_name
from tests.conftest import TODAY, chat, only

DEAR = "100%"


def planned(catalog, fallback: str = DEAR, extra: str = "") -> Plan:
    spec = chat(extra=f"buy: {{fallback: {fallback}}}\n{extra}")
    return api.plan(spec.encode(), catalog=catalog, alternatives=0)


def cheapest(catalog) -> Plan:
    """The plan of the same spec without fallbacks, on some offers."""
    return api.plan(chat().encode(), catalog=catalog, alternatives=0)


def test_without_the_key_the_same_fleet_is_tried_in_other_zones(
    catalog,
) -> None:
    """Where it is in one zone: it costs the same, and nothing else is bought."""
    plan = cheapest(only(catalog, lambda offer: offer.provider == "gcp"))
    [pool] = plan.solution.pools
    assert [(rung.kind, rung.zone) for rung in plan.fallbacks] == [
        ("zone", zone) for zone in pool.zones[1:]
    ]
    assert plan.fallbacks
    for rung in plan.fallbacks:
        assert rung.cost.total == plan.cost.total
        [moved] = rung.pools
        assert set(moved.zones) == set(pool.zones)
        assert replace(moved, zones=pool.zones) == pool
    spread = cheapest(only(catalog, lambda offer: offer.provider == "aws"))
    assert spread.fallbacks == ()
    shown = text.render(plan_page(plan, today=TODAY), color=False, width=100)
    others = ", ".join(pool.zones[1:])
    assert f"where {pool.zones[0]} has no machines, apply tries {others}" in (
        " ".join(shown.split())
    )


def test_each_is_the_cheapest_plan_on_the_offers_of_its_kind(catalog) -> None:
    plan = planned(catalog)
    first = plan.solution.pools[0]
    here = (first.provider, first.region)
    offers = {
        "type": only(
            catalog,
            lambda o: (
                (o.provider, o.region) == here
                and o.instance.instance_type != first.instance_type
            ),
        ),
        "region": only(
            catalog,
            lambda o: o.provider == here[0] and o.region != here[1],
        ),
        "cloud": only(catalog, lambda o: o.provider != here[0]),
    }
    found = {f.kind: f for f in plan.fallbacks if f.kind != "zone"}
    assert found.keys() == offers.keys()
    for kind, fallback in found.items():
        alone = cheapest(offers[kind])
        # Alone it asks for nothing in its stead.
        assert alone.solution.pools == tuple(
            replace(pool, stand_ins=()) for pool in fallback.pools
        )
        assert fallback.cost.total == alone.cost.total
        assert fallback.verified == alone.solution.verified


def test_they_are_listed_in_the_order_in_which_they_are_tried(catalog) -> None:
    kinds = [f.kind for f in planned(catalog).fallbacks]
    order = ["zone", "type", "region", "purchase", "cloud"]
    assert kinds == sorted(kinds, key=order.index)


@pytest.mark.parametrize("ceiling", ["0%", "1%", "20%", "50%"])
def test_none_is_dearer_than_the_ceiling(catalog, ceiling: str) -> None:
    plan = planned(catalog, ceiling)
    most = float(plan.cost.total) * (1 + int(ceiling[:-1]) / 100)
    dear = planned(catalog)
    assert [f.kind for f in plan.fallbacks] == [
        f.kind for f in dear.fallbacks if float(f.cost.total) <= most
    ]


def test_a_zone_is_another_one_and_all_else_is_equal(catalog) -> None:
    plan = planned(catalog, extra="where: {clouds: [gcp]}")
    zones = [f for f in plan.fallbacks if f.kind == "zone"]
    assert zones
    own_zones = {
        r.inputs["zone"] for r in plan.graph.resources if "zone" in r.inputs
    }
    for fallback in zones:
        assert fallback.cost == plan.cost
        used = {
            r.inputs["zone"]
            for r in fallback.graph.resources
            if "zone" in r.inputs
        }
        assert used == {fallback.zone}
        assert not used & own_zones


def test_a_plan_with_fallbacks_is_written_read_and_shown(catalog) -> None:
    plan = planned(catalog)
    assert parse_plan(dump_plan(plan).encode(), "p.json") == plan
    shown = text.render(plan_page(plan, today=TODAY, full=True))
    for fallback in plan.fallbacks:
        assert fallback.pools[0].instance_type in shown
    packages = {
        r.type.split(":")[0]
        for rung in plan.fallbacks
        for r in rung.graph.resources
    }
    assert packages <= plan.inputs.plugins.keys()


def test_a_rung_has_its_own_fleet_and_the_digest_of_the_document(
    catalog,
) -> None:
    plan = planned(catalog)
    assert plan.on_rung(0) is plan
    for rung, fallback in enumerate(plan.fallbacks, start=1):
        variant = plan.on_rung(rung)
        assert variant.graph == fallback.graph
        assert variant.cost == fallback.cost
        assert variant.digest == plan.digest


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_zones_that_are_allowed_are_all_that_there_are(
    catalog, cloud: str
) -> None:
    """The plan is that of a catalog whose machines are sold in these zones alone."""
    patterns = (
        "us-east-1a",
        "us-east-1b",
        "us-east4-c",
        "us-central1-*",
        "eastus-2",
    )

    def allowed(offer: Offer) -> tuple[str, ...]:
        return tuple(
            zone
            for zone in offer.zones
            if any(
                fnmatchcase(zone_name(offer.region, zone), pattern)
                for pattern in patterns
            )
        )

    where = f"where: {{clouds: [{cloud}], zones: [{', '.join(map(repr, patterns))}]}}"
    plan = api.plan(chat(extra=where).encode(), catalog=catalog, alternatives=0)
    narrow = replace(
        catalog,
        offers=tuple(
            replace(offer, zones=allowed(offer))
            for offer in catalog.offers
            if allowed(offer)
        ),
    )
    alone = api.plan(
        chat(extra=f"where: {{clouds: [{cloud}]}}").encode(),
        catalog=narrow,
        alternatives=0,
    )
    assert plan.solution.pools == alone.solution.pools
    assert plan.cost.total == alone.cost.total
    assert [rung.zone for rung in plan.fallbacks] == [
        rung.zone for rung in alone.fallbacks
    ]
