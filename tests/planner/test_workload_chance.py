"""Chances change an order and nothing else, and only where clouds say something of spot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import pytest
from msgspec.structs import replace

from planner.market.live import NO_ZONE, ChanceAnswer, LiveFacts, SpotChance
from planner.solve.solution import Solution
from planner.workload.chance import (
    EVEN_CHANCE,
    fleet_chance,
    likely_zones_first,
    unlikely_last,
)
from planner.workload.fallback import FallbackFleet
from tests.conftest import chat, find, only

KINDS = ("zone", "type", "region", "purchase", "cloud")


def fleet(catalog, provider: str, spot: str = "only") -> Solution:
    offers = only(catalog, lambda offer: offer.provider == provider)
    return find(offers, chat(extra=f"buy: {{spot: {spot}}}"), keep=0)


def facts_of(
    solution: Solution, chances: Mapping[str, float | None]
) -> LiveFacts:
    """What a cloud says of the machines of a fleet, by zone."""
    [pool] = solution.pools
    return LiveFacts(
        spot_chances=tuple(
            SpotChance(
                cloud=pool.instance.provider,
                region=pool.region,
                machine_type=pool.instance.instance_type,
                machines=pool.nodes,
                zone=zone,
                chance=ChanceAnswer(
                    state="none" if chance is None else "value",
                    value=chance,
                    as_of="",
                    request="",
                ),
            )
            for zone, chance in chances.items()
        )
    )


@pytest.mark.parametrize("seed", range(5))
def test_zones_are_a_permutation_by_falling_chance(catalog, seed: int) -> None:
    solution = fleet(catalog, "gcp")
    [pool] = solution.pools
    assert len(pool.zones) > 1
    random = Random(seed)
    # What nobody scores counts as even.
    chances = {
        zone: random.choice([None, 0.0, 0.3, EVEN_CHANCE, 0.8, 1.0])
        for zone in pool.zones
    }
    moved = likely_zones_first(solution, facts_of(solution, chances))
    [found] = moved.pools
    assert sorted(found.zones) == sorted(pool.zones)
    order = [
        EVEN_CHANCE if (chance := chances[zone]) is None else chance
        for zone in found.zones
    ]
    assert order == sorted(order, reverse=True)
    assert replace(found, zones=pool.zones) == pool
    assert moved.bill == solution.bill


@pytest.mark.parametrize(
    ("provider", "spot"), [("gcp", "never"), ("aws", "only")]
)
def test_what_is_on_demand_or_spread_over_zones_stays_as_it_is(
    catalog, provider: str, spot: str
) -> None:
    solution = fleet(catalog, provider, spot)
    [pool] = solution.pools
    chances = {zone: number / 10 for number, zone in enumerate(pool.zones, 1)}
    assert likely_zones_first(solution, facts_of(solution, chances)) == solution


def test_a_score_of_the_region_orders_no_zones_and_is_that_of_the_fleet(
    catalog,
) -> None:
    solution = fleet(catalog, "gcp")
    facts = facts_of(solution, {NO_ZONE: 0.2})
    assert likely_zones_first(solution, facts) == solution
    assert fleet_chance(solution, facts) == 0.2
    assert fleet_chance(solution, LiveFacts()) is None
    # Of another number of machines it says nothing.
    [pool] = solution.pools
    fewer = tuple(
        replace(part, nodes=part.nodes + 1) for part in pool.purchases
    )
    other = replace(solution, pools=(replace(pool, purchases=fewer),))
    assert fleet_chance(other, facts) is None


def fallbacks_of(solution: Solution) -> list[FallbackFleet]:
    [pool] = solution.pools
    return [
        FallbackFleet(
            "type",
            replace(
                solution,
                pools=(
                    replace(
                        pool,
                        name=f"{number}",
                        purchases=(
                            replace(pool.purchases[0], nodes=number + 1),
                        ),
                    ),
                ),
            ),
        )
        for number in range(6)
    ]


def numbers(fallbacks: Sequence[FallbackFleet]) -> list[int]:
    return [int(each.solution.pools[0].name) for each in fallbacks]


@pytest.mark.parametrize("seed", range(5))
def test_the_unlikely_come_last_and_all_else_keeps_its_order(
    catalog, seed: int
) -> None:
    solution = fleet(catalog, "gcp")
    random = Random(seed)
    fallbacks = fallbacks_of(solution)
    scores = [
        random.choice([None, 0.0, 0.49, EVEN_CHANCE, 0.9]) for _ in fallbacks
    ]
    facts = LiveFacts(
        spot_chances=tuple(
            row
            for fallback, chance in zip(fallbacks, scores, strict=True)
            for row in [
                replace(found, machines=part.nodes)
                for found in facts_of(
                    fallback.solution, {NO_ZONE: chance}
                ).spot_chances
                for part in fallback.solution.pools[0].purchases
            ]
        )
    )
    ordered = unlikely_last(fallbacks, facts)
    unlikely = [
        number
        for number, chance in enumerate(scores)
        if chance is not None and chance < EVEN_CHANCE
    ]
    likely = [number for number in range(6) if number not in unlikely]
    assert numbers(ordered) == [*likely, *unlikely]
    assert [each.chance for each in ordered] == [
        scores[number] for number in numbers(ordered)
    ]
    # The same answers give the same order, however often it is made.
    assert unlikely_last(ordered, facts) == ordered
    assert numbers(unlikely_last(fallbacks, LiveFacts())) == list(range(6))
