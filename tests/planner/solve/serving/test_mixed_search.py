"""Fleets of two machine types: equal to brute force where replicas carry what a test says."""

from __future__ import annotations

import itertools
import math
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from planner.cost.service_price import PriceBook
from planner.market.offer import QuotaNodes
from planner.solve.serving import mixed_search, replica_capacity
from planner.solve.serving.mixed_fleet import (
    HIGHEST_WEIGHT,
    PoolCount,
    traffic_shares,
    whole_weights,
)
from planner.solve.serving.mixed_search import MixedSearch
from planner.solve.serving.requirement import serving_requirement
from planner.solve.serving.search import ServingSearch
from planner.spec.model import Inference
from planner.units import HOURS_PER_MONTH
from tests.conftest import chat, spec_of

if TYPE_CHECKING:
    from planner.market.offer import Catalog, Offer
    from planner.perf.serving.replica import Replica
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing

TYPES = ("g6.xlarge", "g6e.xlarge", "g5.xlarge", "g7e.2xlarge")
REGIONS = ("us-east-1", "us-east-2", "us-west-2")
MOST_GROUPS = 64
CASES = range(120)
# What a pool is made of is no matter of its weight.
KIND: Any = None


class StatedJudge:
    """A judge who lets each replica carry a stated share of what formulas allow it at most."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._most_rps: dict[str, float] = {}

    def most_rps(self, replica: Replica) -> float:
        """What a replica carries; some carry nothing."""
        key = f"{replica.node.accelerator.accelerator} {replica.layout}"
        if key not in self._most_rps:
            bound_rps = replica.rate_bound(0.12)
            share = self._draw.choice((0.0, 0.2, 0.4, 0.5, 0.7))
            self._most_rps[key] = bound_rps * share
        return self._most_rps[key]

    def misses(
        self, requirement: ServingRequirement, sizing: FleetSizing
    ) -> bool:
        replicas = sizing.peak_groups * sizing.replicas_per_group
        rate_rps = requirement.load.rate_per_s / replicas
        return rate_rps > self.most_rps(sizing.replica) * (1 + 1e-9)


def required(peak_rps: float) -> ServingRequirement:
    spec = spec_of(chat(traffic=f"peak_rps: {peak_rps}"))
    assert isinstance(spec, Inference)
    return serving_requirement(spec, lambda _: b"")


def priced(catalog: Catalog, draw: random.Random) -> list[Offer]:
    """Four machine types in some of three regions, at drawn prices."""
    return [
        replace(
            offer,
            usd_hour=Decimal(draw.randint(50, 900)) / 100,
            mix=None,
        )
        for offer in catalog.offers
        if offer.instance.instance_type in TYPES
        and offer.region in REGIONS
        and offer.purchase == "on_demand"
        and draw.random() < 0.8
    ]


def by_brute_force(
    search: ServingSearch,
    judge: StatedJudge,
    requirement: ServingRequirement,
    offers: list[Offer],
) -> Decimal | None:
    """The least cost of the machines of two types in one region, counted out."""
    rate_rps = requirement.load.rate_per_s
    pools: list[tuple[Offer, str, float]] = []
    for offer in offers:
        for replica, group in search.one_node_replicas(requirement, offer):
            precision = (
                f"{replica.layout.precision} {replica.layout.kv_precision}"
            )
            if replica.max_batch and judge.most_rps(replica) > 0:
                pools.append(
                    (
                        offer,
                        precision,
                        judge.most_rps(replica) * group.replicas,
                    )
                )
    best: Decimal | None = None
    for first, second in itertools.combinations(pools, 2):
        is_pair = (
            first[0].region == second[0].region
            and first[1] == second[1]
            and first[0].instance.instance_type
            != second[0].instance.instance_type
        )
        if not is_pair:
            continue
        for counts in itertools.product(range(1, MOST_GROUPS + 1), repeat=2):
            carried = counts[0] * first[2] + counts[1] * second[2]
            # Three thousandths are left to the whole numbers of the weights.
            if carried < rate_rps * 1.003:
                continue
            usd = HOURS_PER_MONTH * sum(
                count * offer.usd_hour
                for count, (offer, _, _) in zip(
                    counts, (first, second), strict=True
                )
            )
            best = usd if best is None else min(best, usd)
    return best


@pytest.mark.parametrize("seed", CASES)
def test_no_two_types_are_cheaper(
    catalog: Catalog, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random prices, regions and capacities: to the cent, and nothing where there is nothing."""
    for module in (replica_capacity, mixed_search):
        monkeypatch.setattr(module, "CLOSE_SHARE", 1e-5)
    draw = random.Random(seed)
    offers = priced(catalog, draw)
    requirement = required(draw.choice([0.5, 3, 9, 15]))
    search = ServingSearch(PriceBook({}))
    judge = StatedJudge(seed)
    monkeypatch.setattr(search, "judge", judge)
    expected = by_brute_force(search, judge, requirement, offers)
    found = MixedSearch(requirement, search).cheapest(offers, math.inf)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found.bill.total <= expected
        carried = sum(
            pool.sizing.peak_groups
            * pool.sizing.replicas_per_group
            * judge.most_rps(pool.sizing.replica)
            for pool in found.pools
        )
        assert carried >= requirement.load.rate_per_s * (1 - 1e-9)
        # What is cheaper than the count has less than that to spare.
        if found.bill.total < expected:
            assert carried < requirement.load.rate_per_s * 1.003


@pytest.mark.parametrize("seed", range(20))
def test_a_router_gives_each_machine_what_it_carries(seed: int) -> None:
    """The share of a pool is that of what it carries, as near as whole weights come."""
    draw = random.Random(seed)
    counts = tuple(
        PoolCount(KIND, draw.randint(1, 20), draw.uniform(0.01, 30))
        for _ in range(2)
    )
    weights = whole_weights([count.group_rps for count in counts])
    shares = traffic_shares(counts, weights)
    carried = [count.groups * count.group_rps for count in counts]
    assert max(weights) == HIGHEST_WEIGHT
    assert min(weights) >= 1
    assert sum(shares) == pytest.approx(1)
    for share, rps in zip(shares, carried, strict=True):
        assert share == pytest.approx(rps / sum(carried), rel=0.05)


def test_where_no_quota_is_enough_the_search_ends(catalog: Catalog) -> None:
    """More machines of a type never bring more quota, and no fleet of one type is a ceiling."""
    requirement = required(9)
    search = ServingSearch(PriceBook({}))
    offers = [
        replace(
            offer,
            quotas=(QuotaNodes(purchase="on_demand", nodes=1, quota="q"),),
        )
        for offer in priced(catalog, random.Random(1))
    ]
    found = MixedSearch(requirement, search).cheapest(offers, math.inf)
    assert found is None


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_offers_decides_nothing(
    catalog: Catalog, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where two regions have the same prices."""
    draw = random.Random(seed)
    offers = [
        replace(offer, usd_hour=Decimal(len(offer.instance.instance_type)))
        for offer in priced(catalog, draw)
    ]
    found = []
    for _ in range(3):
        draw.shuffle(offers)
        search = ServingSearch(PriceBook({}))
        monkeypatch.setattr(search, "judge", StatedJudge(seed + 40))
        fleet = MixedSearch(required(9), search).cheapest(offers, math.inf)
        found.append(fleet and (fleet.summary, fleet.weights))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("seed", range(12))
def test_a_ceiling_above_the_cheapest_changes_nothing(
    catalog: Catalog, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What costs less than it is found all the same, and at it nothing is."""
    offers = priced(catalog, random.Random(seed))
    requirement = required(9)
    search = ServingSearch(PriceBook({}))
    monkeypatch.setattr(search, "judge", StatedJudge(seed))
    best = MixedSearch(requirement, search).cheapest(offers, math.inf)
    if best is None:
        return
    usd = float(best.bill.total)
    for ceiling_usd, expected in ((usd + 0.01, best.summary), (usd, None)):
        found = MixedSearch(requirement, search).cheapest(offers, ceiling_usd)
        assert (found and found.summary) == expected
