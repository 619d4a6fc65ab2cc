"""What pools of a kind cost at least, by any number of groups."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from planner.market.offer import PurchaseMix, PurchaseTier
from planner.solve.serving.pool_kind import PoolKinds
from planner.solve.serving.requirement import serving_requirement
from planner.solve.serving.search import ServingSearch
from planner.spec.model import Inference
from tests.conftest import chat, spec_of
from tests.planner.solve.serving.test_mixed_search import TYPES

if TYPE_CHECKING:
    from planner.market.offer import Catalog, Offer

SPECS = {
    "always": chat(),
    "by day": chat(traffic="peak_rps: 40\n  profile: business-hours"),
    "for a week": chat(extra="shutdown: {ttl: 7d}"),
}


def owning(offer: Offer, owned_nodes: int) -> Offer:
    """Some machines that are paid for, and others as they are offered."""
    tiers = (
        PurchaseTier(purchase="owned", usd_hour=Decimal(0), owned=owned_nodes),
        PurchaseTier(purchase=offer.purchase, usd_hour=offer.usd_hour),
    )
    return (
        replace(offer, mix=PurchaseMix(tiers=tiers)) if owned_nodes else offer
    )


@pytest.mark.parametrize("owned_nodes", [0, 3])
@pytest.mark.parametrize("name", SPECS)
def test_no_number_of_groups_costs_less_than_its_floor(
    catalog: Catalog, name: str, owned_nodes: int
) -> None:
    """And of many groups it tells what they cost at least."""
    spec = spec_of(SPECS[name])
    assert isinstance(spec, Inference)
    requirement = serving_requirement(spec, lambda _: b"")
    kinds = PoolKinds(requirement, ServingSearch(catalog.price_book))
    offers = {
        (offer.instance.instance_type, offer.purchase): owning(
            offer, owned_nodes
        )
        for offer in catalog.offers
        if offer.instance.instance_type in TYPES
    }
    found = [kind for offer in offers.values() for kind in kinds.of(offer)]
    assert found
    for kind in found:
        floor = kinds.cost_floor(kind)
        assert floor.group_usd > 0
        for groups in (1, 2, 3, 10, 100, 5_000):
            floor_usd = floor.fixed_usd + groups * floor.group_usd
            assert floor_usd <= kinds.bound_usd(kind, groups) + 1e-3
        many_usd = floor.fixed_usd + 1e5 * floor.group_usd
        assert kinds.bound_usd(kind, 100_000) == pytest.approx(many_usd)
