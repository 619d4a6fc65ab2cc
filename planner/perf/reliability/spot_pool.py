"""How much of a pool of spot machines is there, where a cloud takes back all of a zone at once."""

from __future__ import annotations

from functools import cache
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from planner.perf.common.constant import constant
from planner.perf.reliability.interruption import reclaim_rate, reclaim_row
from planner.perf.reliability.quorum import chance_of, likely_numbers
from planner.units import SECONDS_PER_HOUR

OPEN_END: Final = 1.0  # a share of which nobody says how high it is at most
# The lowest published rate of reclaims, and the highest.
RateEnd: TypeAlias = Literal["low", "high"]


class SpotPool(Struct, frozen=True, kw_only=True):
    """Groups of spot machines that are spread evenly over zones.

    zones        zones that they are in
    region_away  share of the time in which all of them are taken back
    zone_away    share of the rest in which all of one zone are
    group_away   share of the rest in which a group is taken back by itself
    """

    zones: int
    region_away: float
    zone_away: float
    group_away: float


def spot_pool(
    provider: str,
    family: str,
    end: RateEnd,
    *,
    zones: int,
    group_nodes: int,
    startup_s: float,
    band: tuple[float, float] | None = None,
) -> SpotPool:
    """Return the pool of a machine family at one end of what is published of reclaims.

    r = -ln(1 - share taken back in a month) / month, the rate of one machine
    c = `reclaim_together`, the share of reclaims that take all of a type and zone
    w = `wait_h` + start-up, seconds until a machine serves again
    away        = c * r * w / (1 + c * r * w), the share of an alternating renewal process
    region away = `reclaim_region` * away
    zone away   = (away - region away) / (1 - region away)
    group away  = 1 - (1 / (1 + (1 - c) * r * w)) ^ group nodes

    `band` is the lowest and the highest share that the cloud publishes of the type and region.
    Without one the lowest is that of planner/perf/data/reclaims.csv. Where there is no highest,
    because there is no band or its end is open, away is `spot_away`, which traces show.
    """
    row = reclaim_row(provider, family)
    low_share, high_share = band or (row["low"], OPEN_END)
    rate = reclaim_rate(low_share if end == "low" else high_share)
    absence_s = row["wait_h"] * SECONDS_PER_HOUR + startup_s
    together = constant("reclaim_together")
    zone_ratio = together * rate * absence_s
    single_ratio = (1 - together) * rate * absence_s
    away = zone_ratio / (1 + zone_ratio)
    if end == "high" and high_share == OPEN_END:
        away = constant("spot_away")
    region_away = constant("reclaim_region") * away
    return SpotPool(
        zones=zones,
        region_away=region_away,
        zone_away=(away - region_away) / (1 - region_away),
        group_away=1 - (1 / (1 + single_ratio)) ** group_nodes,
    )


@cache
def billed_share(
    provider: str,
    family: str,
    startup_s: float = 0.0,
    *,
    end: RateEnd | None = None,
    band: tuple[float, float] | None = None,
) -> float:
    """Return for which share of the hours that a spot machine should run it is billed.

    away   = 1 - 1 / (1 + c * r * (w + s)) * 1 / (1 + (1 - c) * r * (w + s))
    billed = 1 - away * w / (w + s)

    r  mean rate of reclaims of the family, 1/s, or that of an `end` of what is published; where
       that is open away is `spot_away` (see `spot_pool`, as for `band`)
    c  `reclaim_together`, the share of them that take all of a type and zone
    w  `wait_h`, s until the cloud has a machine again, which nobody pays
    s  `startup_s`, until the machine serves, which is paid

    It grows with the start-up: without one it is the least.
    """
    row = reclaim_row(provider, family)
    low_share, high_share = band or (row["low"], OPEN_END)
    share = {None: row["monthly"], "low": low_share, "high": high_share}[end]
    rate = reclaim_rate(share)
    wait_s: float = row["wait_h"] * SECONDS_PER_HOUR
    if not wait_s:
        return 1.0
    absence_s = wait_s + startup_s
    together = constant("reclaim_together")
    there = 1 / (1 + together * rate * absence_s)
    there /= 1 + (1 - together) * rate * absence_s
    if end == "high" and share == OPEN_END:
        there = 1 - constant("spot_away")
    return 1 - (1 - there) * wait_s / absence_s


@cache
def quorum_share(
    needed: int, base: int, spot: int, pool: SpotPool, group_up: float
) -> float:
    """Return the share of the time in which at least `needed` groups are up.

    sum over the zones that are there of P(B(base, u) + B(left, u * (1 - a)) >= needed)
    B  a binomial number
    u  `group_up`, the share in which a group is up that nobody takes back
    a  `group_away` of the pool; left = spot groups of the zones that are there
    """
    lasting = likely_numbers(base, group_up)
    spot_up = group_up * (1 - pool.group_away)
    total = 0.0
    for left, chance in _groups_left(spot, pool):
        for up, base_chance in lasting:
            total += (
                chance * base_chance * chance_of(needed - up, left, spot_up)
            )
    return total


@cache
def _groups_left(spot: int, pool: SpotPool) -> tuple[tuple[int, float], ...]:
    """Return how many groups may be in the zones that are there, with the chance of each number.

    Some zones have one group more than the others.
    """
    fewer, fuller_zones = divmod(spot, pool.zones)
    zone_up = 1 - pool.zone_away
    region_up = 1 - pool.region_away
    return (
        (0, pool.region_away),
        *(
            (
                fuller * (fewer + 1) + other * fewer,
                region_up * fuller_chance * other_chance,
            )
            for fuller, fuller_chance in likely_numbers(fuller_zones, zone_up)
            for other, other_chance in likely_numbers(
                pool.zones - fuller_zones, zone_up
            )
        ),
    )
