"""How likely machines on spot are to be had, and what that does to what is tried first. Pure.

Clouds score their machines on spot when a plan asks them. Where a score is known:
    a fleet in one zone begins with the likeliest zone, and goes on with the next likely one;
    a fallback that is less likely than even is tried after all others.
Nothing else changes the order. What nobody scores counts as even: it gives way to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.facts.cloud import clouds
from planner.market.live import NO_ZONE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.market.live import LiveFacts
    from planner.solve.solution import SizedPool, Solution
    from planner.workload.fallback import FallbackFleet

SPOT: Final = "spot"
# Half of the scale of all clouds, and what is taken where they say nothing.
EVEN_CHANCE: Final = 0.5


def likely_zones_first(solution: Solution, facts: LiveFacts) -> Solution:
    """Return a solution whose pools begin with the zone in which their machines are likeliest.

    Where it is in one zone that costs nothing: the same fleet costs the same in each of them.
    Pools stay in the same zone as each other.
    """
    pools = [pool for pool in solution.pools if _is_in_one_zone(pool)]
    if len(pools) != len(solution.pools):
        return solution

    def unlikeliness(zone: str) -> float:
        chances = [_pool_chance(pool, zone, facts) for pool in pools]
        return -min(
            (chance for chance in chances if chance is not None),
            default=EVEN_CHANCE,
        )

    return replace(
        solution,
        pools=tuple(
            replace(pool, zones=tuple(sorted(pool.zones, key=unlikeliness)))
            for pool in pools
        ),
    )


def fleet_chance(solution: Solution, facts: LiveFacts) -> float | None:
    """Return how likely all machines on spot of a fleet are to be had; None where nobody says.

    It is that of the least likely pool.
    """
    chances = [
        _pool_chance(
            pool,
            pool.zones[0] if _is_in_one_zone(pool) else NO_ZONE,
            facts,
        )
        for pool in solution.pools
    ]
    return min(
        (chance for chance in chances if chance is not None), default=None
    )


def unlikely_last(
    fallbacks: Iterable[FallbackFleet], facts: LiveFacts
) -> tuple[FallbackFleet, ...]:
    """Return fallbacks with their chances; those less likely than even come after all others."""
    scored = []
    for fallback in fallbacks:
        solution = fallback.solution
        # Another zone is what it is there for.
        if fallback.kind != "zone":
            solution = likely_zones_first(solution, facts)
        chance = fleet_chance(solution, facts)
        scored.append(replace(fallback, solution=solution, chance=chance))
    return tuple(
        sorted(
            scored,
            key=lambda fallback: (
                fallback.chance is not None and fallback.chance < EVEN_CHANCE
            ),
        )
    )


def _is_in_one_zone(pool: SizedPool) -> bool:
    """Whether all machines of a pool are in its first zone."""
    if not pool.zones:
        return False
    spread = clouds()[pool.instance.provider].spread_zones
    return pool.nodes_per_group > 1 or min(len(pool.zones), spread) == 1


def _pool_chance(pool: SizedPool, zone: str, facts: LiveFacts) -> float | None:
    """Return the chance of a pool's machines on spot; None without any, and without a score."""
    spot_nodes = sum(
        part.nodes for part in pool.purchases if part.purchase == SPOT
    )
    if not spot_nodes:
        return None
    return facts.spot_chance(
        pool.instance.provider,
        pool.region,
        pool.instance.instance_type,
        spot_nodes,
        zone,
    )
