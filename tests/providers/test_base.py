"""Sources of prices, quota, capacity and identity keep their protocols, on every cloud."""

from __future__ import annotations

from decimal import Decimal

import pytest
from msgspec.structs import replace

from planner.errors import UsageError
from planner.facts.cloud import clouds
from providers.base import (
    CapacitySource,
    IdentitySource,
    NodeLimit,
    PriceSource,
    QuotaSource,
)
from providers.catalog.load import SnapshotPrices
from providers.registry import provider
from providers.simulated.world import (
    PriceOverride,
    WorldPrices,
    default_world,
)


def test_the_snapshot_gives_the_same_prices_every_time() -> None:
    source: PriceSource = SnapshotPrices()
    assert source.catalog() == source.catalog()


def test_a_world_changes_the_prices_that_it_names_and_no_other() -> None:
    override = PriceOverride("gcp", "*", "a3-*", "spot", Decimal(1))
    world = replace(default_world(), prices=(override,))
    before = SnapshotPrices().catalog()
    after = WorldPrices(world, SnapshotPrices()).catalog()
    assert after.sha256 != before.sha256
    changed = 0
    for old, new in zip(before.offers, after.offers, strict=True):
        is_named = (
            old.provider == "gcp"
            and old.instance.instance_type.startswith("a3-")
            and old.purchase == "spot"
        )
        changed += is_named
        assert new == (
            replace(old, usd_hour=Decimal(1), source="world file")
            if is_named
            else old
        )
    assert changed


def test_a_world_without_prices_leaves_the_catalog_as_it_is() -> None:
    source = WorldPrices(default_world(), SnapshotPrices())
    assert source.catalog() == SnapshotPrices().catalog()


def test_a_world_is_every_source_of_limits_and_identity() -> None:
    limit = NodeLimit("aws", "us-*", "p5.48xlarge", "*", 2)
    world = replace(default_world(), quota=(limit,), project="mine")
    quota: QuotaSource = world
    capacity: CapacitySource = world
    identity: IdentitySource = world
    assert quota.quota == (limit,)
    assert capacity.capacity == ()
    assert identity.project == "mine"
    assert identity.account == "mine"


@pytest.mark.parametrize(
    ("offer_key", "counts"),
    [
        (("aws", "us-east-1", "p5.48xlarge", "spot"), True),
        (("aws", "eu-west-1", "p5.48xlarge", "spot"), False),
        (("gcp", "us-east-1", "p5.48xlarge", "spot"), False),
        (("aws", "us-east-1", "p5en.48xlarge", "spot"), False),
    ],
)
def test_a_limit_counts_the_nodes_that_all_of_its_patterns_match(
    offer_key: tuple[str, str, str, str], counts: bool
) -> None:
    limit = NodeLimit("aws", "us-*", "p5.48xlarge", "*", 2)
    assert limit.applies(offer_key) is counts


@pytest.mark.parametrize("cloud", sorted(clouds()))
def test_every_cloud_names_whose_account_an_environment_is_of(
    cloud: str,
) -> None:
    """A project where the cloud has one, or how to set it; nothing elsewhere."""
    named = provider(cloud).identity({"GOOGLE_CLOUD_PROJECT": "mine"}).project
    assert named in ("mine", "")
    unnamed = provider(cloud).identity({})
    if named:
        with pytest.raises(UsageError, match="no Google Cloud project is set"):
            _ = unnamed.project
    else:
        assert unnamed.project == ""
