"""How much of a spot pool is there: against every state, and against months that pass."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from planner.perf.common.constant import constant
from planner.perf.reliability.interruption import reclaim_rate
from planner.perf.reliability.spot_pool import (
    OPEN_END,
    SpotPool,
    billed_share,
    quorum_share,
    spot_pool,
)
from tests.oracles.stated import reclaims

# Batches of a simulation, whose spread gives the interval of their mean.
BATCHES = 40
CHANGES = 4000
# 99.9 % of the means of so many batches are within as many standard errors.
NORMAL_999 = 3.6


def every_state(
    needed: int, base: int, spot: int, pool: SpotPool, group_up: float
) -> float:
    """The chance that enough groups are up, over all states of region, zones and groups."""
    zone_of = [group % pool.zones for group in range(spot)]
    share = 0.0
    for region_there in (True, False):
        region_chance = (
            1 - pool.region_away if region_there else pool.region_away
        )
        for zones in itertools.product((True, False), repeat=pool.zones):
            zone_chance = math.prod(
                1 - pool.zone_away if there else pool.zone_away
                for there in zones
            )
            for groups in itertools.product((True, False), repeat=base + spot):
                chance = region_chance * zone_chance
                up = 0
                for number, is_up in enumerate(groups):
                    is_spot = number >= base
                    alone = group_up * (1 - pool.group_away * is_spot)
                    chance *= alone if is_up else 1 - alone
                    is_there = not is_spot or (
                        region_there and zones[zone_of[number - base]]
                    )
                    up += is_up and is_there
                share += chance * (up >= needed)
    return share


@pytest.mark.parametrize("zones", [1, 2, 3])
def test_it_is_the_sum_over_every_state(zones: int) -> None:
    pool = SpotPool(zones=zones, region_away=0.1, zone_away=0.2, group_away=0.3)
    for base, spot in itertools.product(range(4), range(5)):
        for needed in range(1, base + spot + 2):
            assert quorum_share(needed, base, spot, pool, 0.9) == pytest.approx(
                every_state(needed, base, spot, pool, 0.9), abs=1e-12
            )


@pytest.mark.parametrize("zones", [1, 3])
def test_it_is_the_share_of_months_that_pass(zones: int) -> None:
    """The region, each zone and each group come and go by themselves, for mean times."""
    pool = SpotPool(
        zones=zones, region_away=0.02, zone_away=0.05, group_away=0.03
    )
    group_up, base, spot, needed = 0.97, 3, 6, 6
    draw = random.Random(11)
    parts = [pool.region_away, *[pool.zone_away] * zones]
    parts += [pool.group_away] * spot + [1 - group_up] * (base + spot)
    shares = []
    for _ in range(BATCHES):
        away = [draw.random() < share for share in parts]
        enough_s = total_s = 0.0
        for _ in range(CHANGES):
            # A mean absence of one hour: comings at rate 1, goings at share / (1 - share).
            rates = [
                1.0 if is_away else share / (1 - share)
                for is_away, share in zip(away, parts, strict=True)
            ]
            stay = draw.expovariate(sum(rates))
            zone_away = away[1 : 1 + zones]
            reclaimed = away[1 + zones : 1 + zones + spot]
            failed = away[1 + zones + spot :]
            up = sum(not is_failed for is_failed in failed[:base]) + sum(
                not (
                    away[0]
                    or zone_away[number % zones]
                    or reclaimed[number]
                    or failed[base + number]
                )
                for number in range(spot)
            )
            total_s += stay
            enough_s += stay * (up >= needed)
            changed = draw.choices(range(len(parts)), rates)[0]
            away[changed] = not away[changed]
        shares.append(enough_s / total_s)
    mean = sum(shares) / BATCHES
    spread = math.sqrt(
        sum((share - mean) ** 2 for share in shares) / (BATCHES - 1)
    )
    promised = quorum_share(needed, base, spot, pool, group_up)
    assert abs(mean - promised) < NORMAL_999 * spread / math.sqrt(BATCHES)
    # The interval is narrow enough to tell a share from what is next to it.
    assert spread / math.sqrt(BATCHES) < 0.2 * (1 - promised)


def test_large_pools_sum_to_one() -> None:
    pool = SpotPool(zones=3, region_away=0.1, zone_away=0.1, group_away=0.01)
    for base, spot in ((0, 4000), (2000, 2000), (4000, 0)):
        assert quorum_share(0, base, spot, pool, 0.999) == pytest.approx(1)
        assert quorum_share(base + spot + 1, base, spot, pool, 0.999) == 0


def test_a_published_end_is_taken_and_an_open_one_is_what_traces_show() -> None:
    def away(end: str, band: tuple[float, float] | None) -> float:
        pool = spot_pool(
            "aws",
            "g6e",
            end,  # type: ignore[arg-type]
            zones=3,
            group_nodes=1,
            startup_s=600.0,
            band=band,
        )
        return pool.region_away + (1 - pool.region_away) * pool.zone_away

    closed = (0.05, 0.10)
    ratio = (
        reclaim_rate(0.10) * constant("reclaim_together") * (2.5 * 3600 + 600)
    )
    assert away("high", closed) == pytest.approx(ratio / (1 + ratio))
    assert away("low", closed) < away("high", closed)
    assert away("high", (0.2, OPEN_END)) == pytest.approx(constant("spot_away"))
    assert away("high", None) == pytest.approx(constant("spot_away"))
    assert away("low", None) == 0


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_a_machine_is_billed_while_it_is_there_or_starts(cloud: str) -> None:
    """Played: it is taken back with its zone and by itself, and waits unpaid each time."""
    draw = random.Random(cloud)
    rate = reclaims(cloud, "any.type", "monthly")
    startup_h = 0.5
    absence_h = rate.wait_h + startup_h
    together = constant("reclaim_together")
    there = 1.0
    for share in (together, 1 - together):
        mean_h = 1 / (share * rate.hourly)
        up_h = sum(draw.expovariate(1 / mean_h) for _ in range(40_000))
        there *= up_h / (up_h + 40_000 * absence_h)
    played = 1 - (1 - there) * rate.wait_h / absence_h
    found = billed_share(cloud, "any", startup_h * 3600)
    assert 1 - found == pytest.approx(1 - played, rel=0.02)
    # What a bound of costs takes is the least.
    assert billed_share(cloud, "any") <= found < 1


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_hours_that_are_billed_are_between_those_of_both_ends(
    cloud: str,
) -> None:
    startup_s = 1800.0
    mean = billed_share(cloud, "any", startup_s)
    often, seldom = (
        billed_share(cloud, "any", startup_s, end=end)
        for end in ("high", "low")
    )
    assert often < mean <= seldom <= 1
    # Where nobody says how often, machines are away as long as in traces.
    wait_h = reclaims(cloud, "any.type", "monthly").wait_h
    unpaid = constant("spot_away") * wait_h / (wait_h + startup_s / 3600)
    if reclaims(cloud, "any.type", "high").hourly == reclaim_rate(1) * 3600:
        assert often == pytest.approx(1 - unpaid)
    never = (0.0, 0.0)
    assert billed_share(cloud, "any", startup_s, end="high", band=never) == 1
