"""What an account may have bounds what is planned, and what nobody answers changes nothing."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from planner.market.capacity import fleet_limit, gang_limit, quota_limit
from planner.market.live import (
    LiveFacts,
    PlaceFacts,
    PriceAnswer,
    QuotaAnswer,
    QuotaFact,
    ReservationAnswer,
    SpotPriceAnswer,
    ZoneAnswer,
)
from planner.market.live_catalog import with_live
from planner.market.offer import (
    MIXED_PURCHASE,
    Catalog,
    Offer,
    PurchaseMix,
    PurchaseTier,
    QuotaNodes,
)
from tests.conftest import only

NOW = "2026-11-27T06:00:00Z"
MACHINE = "g6.xlarge"
KEY = ("aws", "us-east-1", MACHINE, "on_demand")


def silent() -> PlaceFacts:
    """A region of which nothing is known."""
    return PlaceFacts(
        cloud="aws",
        region="us-east-1",
        quotas={},
        zones=ZoneAnswer(state="unknown", as_of=NOW, request="zones"),
        on_demand_usd=PriceAnswer(state="denied", as_of=NOW, request="prices"),
        spot_usd=SpotPriceAnswer(state="none", as_of=NOW, request="spot"),
        reservations=ReservationAnswer(
            state="unknown", as_of=NOW, request="reservations"
        ),
    )


def quota(
    limit: float | None, used: float | None, purchase: str = "on_demand"
) -> QuotaAnswer:
    """A quota of vCPUs that counts the machine."""
    return QuotaAnswer(
        state="value",
        as_of=NOW,
        request="quota",
        value=(
            QuotaFact(
                machine_types=(MACHINE,),
                purchase=purchase,
                unit="vcpus",
                id="L-1",
                name="G instances",
                limit=limit,
                used=used,
            ),
        ),
    )


def offer_of(
    catalog: Catalog, place: PlaceFacts, purchase: str = "on_demand", **standing
) -> Offer | None:
    """The offer of the machine as an account has it; None where it may not have it."""
    found = with_live(
        only(
            catalog,
            lambda offer: offer.key == ("aws", MACHINE, "us-east-1", purchase),
        ),
        LiveFacts(places=(place,)),
        {KEY: standing.get("nodes", 0)},
    )
    return next(iter(found.offers), None)


def test_what_nobody_answers_changes_nothing(catalog: Catalog) -> None:
    assert with_live(catalog, LiveFacts(), {}) is catalog
    assert with_live(catalog, LiveFacts(places=(silent(),)), {}) == catalog


@pytest.mark.parametrize(
    ("limit", "used", "machines"),
    [(0, 0, 0), (8, 0, 2), (8, 1, 1), (8, 9, 0), (7, None, 1), (None, 0, None)],
)
def test_a_quota_leaves_as_many_machines_as_fit_into_what_is_free(
    catalog: Catalog,
    limit: float | None,
    used: float | None,
    machines: int | None,
) -> None:
    """A machine has 4 vCPUs."""
    place = replace(silent(), quotas={"on_demand": quota(limit, used)})
    offer = offer_of(catalog, place)
    assert offer is not None
    assert quota_limit(offer) == machines
    assert fleet_limit(offer) == machines
    assert gang_limit(offer, spot_by_name=False) == machines


def test_machines_of_the_stack_itself_are_there_for_its_next_plan(
    catalog: Catalog,
) -> None:
    place = replace(silent(), quotas={"on_demand": quota(8, 8)})
    offer = offer_of(catalog, place, nodes=2)
    assert offer is not None
    assert quota_limit(offer) == 2


def test_each_purchase_has_its_quota(catalog: Catalog) -> None:
    place = replace(
        silent(),
        quotas={"on_demand": quota(0, 0), "spot": quota(40, 0, "spot")},
    )
    offers = [offer_of(catalog, place, name) for name in ("on_demand", "spot")]
    assert [quota_limit(offer) for offer in offers if offer] == [0, 10]


@given(
    st.integers(0, 12),
    st.integers(0, 12),
    st.sampled_from(["0.25", "0.5", "1"]),
)
def test_a_mix_is_as_large_as_both_quotas_let_it_be(
    catalog: Catalog, on_demand: int, spot: int, share: str
) -> None:
    """Against all sizes, one after the other."""
    mix = PurchaseMix(
        (
            PurchaseTier(
                purchase="on_demand", usd_hour=Decimal(2), share=Decimal(share)
            ),
            PurchaseTier(purchase="spot", usd_hour=Decimal(1)),
        )
    )
    offer = mixed(catalog, mix, on_demand, spot)
    sizes = [
        nodes
        for nodes in range(on_demand + spot + 1)
        for base in [mix.spans(nodes, 1)[0][1]]
        if base <= on_demand and nodes - base <= spot
    ]
    assert quota_limit(offer) == max(sizes)


def mixed(
    catalog: Catalog, mix: PurchaseMix, on_demand: int, spot: int
) -> Offer:
    """An offer of a mix, of which only the quotas matter here."""
    return replace(
        catalog.offers[0],
        purchase=MIXED_PURCHASE,
        mix=mix,
        quotas=(
            QuotaNodes(purchase="on_demand", nodes=on_demand, quota="a"),
            QuotaNodes(purchase="spot", nodes=spot, quota="b"),
        ),
    )


def test_zones_are_those_in_which_the_account_may_have_it(
    catalog: Catalog,
) -> None:
    def place(*zones: str) -> PlaceFacts:
        answer = ZoneAnswer(
            state="value", as_of=NOW, request="zones", value={MACHINE: zones}
        )
        return replace(silent(), zones=answer)

    offer = offer_of(catalog, place("us-east-1f", "us-east-1b"))
    assert offer is not None
    assert offer.zones == ("us-east-1b", "us-east-1f")
    assert offer_of(catalog, place()) is None


def test_prices_of_today_take_the_place_of_old_ones(catalog: Catalog) -> None:
    """A fleet on spot is spread over its zones: its price is their mean."""
    zones = ZoneAnswer(
        state="value",
        as_of=NOW,
        request="zones",
        value={MACHINE: ("us-east-1b", "us-east-1f")},
    )
    spot = SpotPriceAnswer(
        state="value",
        as_of=NOW,
        request="spot",
        value={
            MACHINE: {
                "us-east-1b": Decimal("0.20"),
                "us-east-1f": Decimal("0.31"),
                "us-east-1z": Decimal(9),
            }
        },
    )
    on_demand = PriceAnswer(
        state="value",
        as_of=NOW,
        request="prices",
        value={MACHINE: Decimal("0.9")},
    )
    place = replace(
        silent(), zones=zones, spot_usd=spot, on_demand_usd=on_demand
    )
    for purchase, usd in (("on_demand", "0.9"), ("spot", "0.255")):
        offer = offer_of(catalog, place, purchase)
        assert offer is not None
        assert (offer.usd_hour, offer.as_of) == (Decimal(usd), "2026-11-27")
        assert (offer.basis, offer.is_weakly_priced) == ("observed", False)
