"""Fleets of two classes of requests: against every border, region and pair of machine types."""

from __future__ import annotations

import itertools
import math
import random
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from planner.cost.service_price import PriceBook
from planner.market.offer import QuotaNodes
from planner.solve.serving.bill import BilledPool, pools_bill
from planner.solve.serving.class_search import ClassSearch
from planner.solve.serving.length_class import (
    borders,
    length_classes,
    text_bytes,
)
from planner.solve.serving.requirement import serving_requirement
from planner.solve.serving.search import ServingSearch
from planner.solve.serving.sizing import sized_fleet
from planner.spec.model import Inference
from planner.units import HOURS_PER_MONTH
from tests.conftest import find, only, present, spec_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.market.offer import Catalog, Offer
    from planner.solve.serving.length_class import LengthClass
    from planner.solve.serving.mixed_fleet import MixedFleet
    from planner.solve.serving.requirement import ServingRequirement

TYPES = ("g6.xlarge", "g6e.xlarge", "g5.xlarge", "g7e.2xlarge")
MOST_GROUPS = 24
LARGE = ("g6e.xlarge", "g7e.2xlarge")
REGIONS = ("us-east-1", "us-west-2")
TEXT = text_bytes(None)
# In the first two one pool is cheapest, in the others two classes are.
CASES = (1, 4, 9, 12, 17, 19, 27)
# Each takes some seconds: every number of machines is simulated.
COUNTED_OUT = (
    (1, "bf16"),
    (9, "bf16"),
    (17, "bf16"),
    (19, "bf16"),
    (12, "auto"),
)


def service(draw: random.Random, classes: str = "auto") -> str:
    """A service with long prompts, whose context not every machine holds."""
    mean = draw.choice([600, 1000])
    return f"""
apiVersion: tonnage/v1
kind: Inference
name: chat
model: {{name: llama-3.1-8b, precision: bf16, context: {draw.choice([64, 96])}k}}
traffic:
  peak_rps: {draw.choice([4, 8, 12])}
  input_tokens: {{mean: {mean}, p95: {3 * mean}}}
  output_tokens: 100
sla: {{{draw.choice(["ttft_p95: 10s", "tpot_p95: 150ms", "ttft_p50: 3s"])}}}
serving: {{classes: {classes}}}
where: {{clouds: [aws], regions: [{", ".join(REGIONS)}]}}
buy: {{spot: never}}
"""


def priced(catalog: Catalog, draw: random.Random) -> Catalog:
    """Four machine types in some of two regions, at drawn prices: much memory is dear."""
    few = only(
        catalog,
        lambda offer: (
            offer.instance.instance_type in TYPES
            and offer.region in REGIONS
            and offer.purchase == "on_demand"
            and draw.random() < 0.8
        ),
    )
    return replace(
        few,
        offers=tuple(
            replace(
                offer,
                usd_hour=Decimal(draw.randint(20, 300))
                / (10 if offer.instance.instance_type in LARGE else 100),
            )
            for offer in few.offers
        ),
    )


def required(text: str) -> ServingRequirement:
    spec = spec_of(text)
    assert isinstance(spec, Inference)
    return serving_requirement(spec, lambda _: b"")


def cheapest(
    search: ServingSearch, requirement: ServingRequirement, offers: list[Offer]
) -> MixedFleet | None:
    best: dict[str, Offer] = {}
    for offer in sorted(offers, key=lambda each: each.usd_hour):
        best.setdefault(offer.instance.instance_type, offer)
    return ClassSearch(requirement, search, TEXT).cheapest(
        list(best.values()), offers, math.inf
    )


def by_brute_force(
    search: ServingSearch, requirement: ServingRequirement, offers: list[Offer]
) -> Decimal | None:
    """The least bill over all borders, regions, machine types and layouts of two pools."""
    best: Decimal | None = None
    for border, region in itertools.product(
        borders(requirement, TEXT), REGIONS
    ):
        classes = length_classes(requirement, border)
        pools = [
            [
                pool
                for offer in offers
                if offer.region == region
                for pool in pools_of(search, each, offer)
            ]
            for each in present(classes)
        ]
        for pair in itertools.product(*pools):
            if len({pool.sizing.layout.precision for pool in pair}) == 1:
                bill = pools_bill(pair, search.price_book, requirement)
                best = bill.total if best is None else min(best, bill.total)
    return best


def pools_of(
    search: ServingSearch, each: LengthClass, offer: Offer
) -> Iterator[BilledPool]:
    """The fewest groups of each layout that surely keep all limits in both cases, counted out."""
    for replica, group in search.one_node_replicas(each.widest, offer):
        if not replica.max_batch:
            continue
        for groups in range(1, MOST_GROUPS + 1):
            sizings = [
                sized_fleet(
                    case,
                    search.shared_replica(
                        case, replica.layout, offer.instance.node
                    ),
                    group,
                    groups,
                )
                for case in (each.widest, each.least)
            ]
            checks = [
                search.judge.missed_limit(case, sizing) is None
                and present(search.judge.check(case, sizing, 0)).verdict
                == "holds"
                for case, sizing in zip(
                    (each.widest, each.least), sizings, strict=True
                )
            ]
            if all(checks):
                yield BilledPool(
                    name=each.length,
                    requirement=each.widest,
                    sizing=sizings[0],
                    offer=offer,
                )
                break


@pytest.mark.parametrize(("seed", "precision"), COUNTED_OUT)
def test_no_border_and_no_two_types_are_cheaper(
    catalog: Catalog, seed: int, precision: str
) -> None:
    """To the cent, and nothing where there is nothing."""
    draw = random.Random(seed)
    # The cache has one format: brute force looks at the precisions of weights alone.
    text = service(draw).replace("precision: bf16", f"precision: {precision}")
    requirement = required(text).with_default_cache()
    few = priced(catalog, draw)
    search = ServingSearch(PriceBook({}))
    fleet = cheapest(search, requirement, list(few.offers))
    expected = by_brute_force(search, requirement, list(few.offers))
    assert (fleet and fleet.bill.total) == expected


@pytest.mark.parametrize("seed", CASES)
def test_classes_never_cost_more_than_none(catalog: Catalog, seed: int) -> None:
    draw, again = random.Random(seed), random.Random(seed)
    divided, whole = service(draw), service(again, "none")
    few = priced(catalog, draw)
    one, found = find(few, whole), find(few, divided)
    if one.bill is None:
        return
    bill = present(found.bill)
    assert bill.total <= one.bill.total
    assert len(found.pools) == (1 if seed in CASES[:2] else 2)
    if len(found.pools) == 1:
        assert found.pools == one.pools
        return
    assert bill.total < one.bill.total
    short, long = found.pools
    assert short.region == long.region
    assert [short.name, long.name] == ["serve-short", "serve-long"]
    assert found.alternatives[0].nodes == sum(each.nodes for each in one.pools)
    assert sum(line.usd or 0 for line in bill.lines) == bill.total


def test_pools_with_one_quota_stay_within_it(catalog: Catalog) -> None:
    """Both pools on the cheapest type, as far as the account may have it."""
    draw = random.Random(3)
    requirement = required(service(draw))
    offers = [
        replace(offer, usd_hour=Decimal(1))
        for offer in catalog.offers
        if offer.instance.instance_type in ("g6e.xlarge", "g7e.2xlarge")
        and offer.region == REGIONS[0]
        and offer.purchase == "on_demand"
    ]
    search = ServingSearch(PriceBook({}))
    free = present(cheapest(search, requirement, offers))
    types = [pool.offer.instance.instance_type for pool in free.pools]
    assert len(set(types)) == 1
    nodes = max(pool.sizing.nodes for pool in free.pools)
    quota = QuotaNodes(purchase="on_demand", nodes=nodes, quota="one")
    limited = [
        replace(offer, quotas=(quota,))
        if offer.instance.instance_type == types[0]
        else offer
        for offer in offers
    ]
    fleet = present(cheapest(search, requirement, limited))
    used = sum(pool.sizing.nodes for pool in fleet.pools if pool.offer.quotas)
    assert used <= nodes
    assert fleet.bill.total >= free.bill.total


def test_the_requests_are_paid_once(catalog: Catalog) -> None:
    """Those that may come to either pool make no traffic twice."""
    draw = random.Random(2)
    requirement = required(service(draw))
    search = ServingSearch(catalog.price_book)
    offers = [
        offer
        for offer in catalog.offers
        if offer.instance.instance_type in TYPES
        and offer.region == REGIONS[0]
        and offer.purchase == "on_demand"
    ]
    fleet = present(cheapest(search, requirement, offers))
    alone = present(search.solve(requirement, offers).best)
    quantities = [
        {line.name: line.quantity for line in bill.lines}
        for bill in (fleet.bill, alone.bill)
    ]
    data = next(name for name in quantities[0] if "balancer data" in name)
    assert quantities[0][data] == quantities[1][data]
    machines_usd = sum(
        pool.sizing.nodes * pool.offer.usd_hour * HOURS_PER_MONTH
        for pool in fleet.pools
    )
    assert fleet.bill.total > machines_usd
