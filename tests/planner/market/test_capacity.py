"""Limits of capacity bound spot, and say of what evidence they are."""

from __future__ import annotations

import pytest

from planner.market.capacity import (
    fleet_limit,
    gang_limit,
    known_limit,
)
from planner.market.offer import Catalog, Offer


def first(catalog: Catalog, instance_type: str, purchase: str) -> Offer:
    """An offer of a machine type in any region."""
    return next(
        offer
        for offer in catalog.offers
        if (offer.instance.instance_type, offer.purchase)
        == (instance_type, purchase)
    )


@pytest.mark.parametrize(
    ("instance_type", "by_name", "machines"),
    [
        # The most machines that were reported at once on spot.
        ("p6-b300.48xlarge", True, 5),
        ("p6-b300.48xlarge", False, 5),
        ("Standard_ND96isr_H100_v5", True, 5),
        ("a3-megagpu-8g", True, 5),
        # Without evidence of its own: 8, or 16 when the spec asks for spot.
        ("g6e.48xlarge", False, 8),
        ("g6e.48xlarge", True, 16),
    ],
)
def test_a_gang_on_spot_is_no_larger_than_any_that_was_reported(
    instance_type: str, by_name: bool, machines: int, catalog: Catalog
) -> None:
    spot = first(catalog, instance_type, "spot")
    assert gang_limit(spot, spot_by_name=by_name) == machines


def test_asking_for_spot_never_makes_a_gang_smaller(catalog: Catalog) -> None:
    for offer in catalog.offers:
        by_name = gang_limit(offer, spot_by_name=True)
        allowed = gang_limit(offer, spot_by_name=False)
        assert (by_name is None) == (offer.purchase != "spot")
        if by_name is not None and allowed is not None:
            assert 0 < allowed <= by_name
            assert allowed <= 8


def test_nodes_that_work_alone_are_bound_by_evidence_of_their_type(
    catalog: Catalog,
) -> None:
    assert fleet_limit(first(catalog, "p5.48xlarge", "spot")) == 5
    assert fleet_limit(first(catalog, "g6.xlarge", "spot")) is None
    assert fleet_limit(first(catalog, "p5.48xlarge", "on_demand")) is None


def test_a_quota_says_how_strong_its_evidence_is(catalog: Catalog) -> None:
    quota = known_limit(first(catalog, "p5.48xlarge", "on_demand"))
    assert quota is not None
    assert (quota.machines, quota.kind, quota.strength) == (
        1,
        "default_quota",
        "weak",
    )
    assert known_limit(first(catalog, "g6.xlarge", "on_demand")) is None
