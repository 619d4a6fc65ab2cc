"""A service on machines of one or two types whose numbers are chosen for each hour of the week.

Each pool has a week of its own: hours in which it has so many machines, or none. Between two types
a router picks each machine in proportion to what it carries, in whatever hour it is there, so the
weights never change.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from planner.cost.weekly_load import Week
from planner.solve.serving.bill import (
    BilledPool,
    pools_bill,
    settled_fleet,
)
from planner.solve.serving.mixed_fleet import (
    POOL_NAMES,
    MixedFleet,
    PoolKind,
)
from planner.solve.serving.sizing import sized_fleet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner.cost.service_price import PriceBook
    from planner.solve.serving.requirement import ServingRequirement


class HourlyCount(Struct, frozen=True, kw_only=True):
    """Groups of a kind in each of the 168 hours of a week.

    weight     of one of them, where a router picks a group in proportion
    up_weight  of all groups of the fleet that are up in each hour as often as they have to be
    """

    kind: PoolKind
    groups: tuple[int, ...]
    weight: int
    up_weight: tuple[float, ...]

    @property
    def most_groups(self) -> int:
        """Groups in the hour in which there are most of them."""
        return max(self.groups)


class _GroupLoad(Struct, frozen=True, order=True):
    """What one group gets in an hour: requests/s, and which part that is of all requests."""

    rate_rps: float
    share: float


def hour_fleet(
    requirement: ServingRequirement,
    counts: tuple[HourlyCount, ...],
    price_book: PriceBook,
) -> MixedFleet:
    """Return a fleet of some groups in each hour; the pool that carries more comes first.

    A pool that is alone has spare groups for a promise of availability, which holds in the mean of
    the hours. Two pools keep it together in each hour, by the groups that they have.
    """
    spared = (
        requirement
        if len(counts) == 1
        else replace(requirement, availability=None)
    )
    carried = [_carried_rps(requirement, count, counts) for count in counts]
    ordered = sorted(
        zip(counts, carried, strict=True),
        key=lambda pool: sum(pool[1]),
        reverse=True,
    )
    pools = []
    hours = []
    # Its first hour is the one in which a group gets most: the pool is sized for it.
    for name, (count, pool_rps) in zip(POOL_NAMES, ordered, strict=False):
        asked = [
            _hourly_pool(
                name,
                _pool_requirement(spared, count, pool_rps, load),
                count,
                price_book,
            )
            for load in _undominated(_group_loads(requirement, count))
        ]
        pools.append(asked[0])
        hours.extend(asked)
    return MixedFleet(
        pools=tuple(pools),
        # One pool gets everything, so nothing is picked.
        weights=tuple(count.weight for count, _ in ordered)
        if len(ordered) > 1
        else (0,),
        bill=pools_bill(tuple(pools), price_book),
        hours=tuple(hours),
    )


def _hourly_pool(
    name: str,
    requirement: ServingRequirement,
    count: HourlyCount,
    price_book: PriceBook,
) -> BilledPool:
    """Return the groups of a kind with their spares, and as they cost the least."""
    kind = count.kind
    sizing, offer = settled_fleet(
        requirement,
        sized_fleet(requirement, kind.replica, kind.group, count.most_groups),
        kind.offer,
        price_book,
    )
    return BilledPool(
        name=name, requirement=requirement, sizing=sizing, offer=offer
    )


# Many fleets have the same hours, and each of them is counted by the minute.
@lru_cache(maxsize=4096)
def pool_week(week: Week, groups: tuple[int, ...]) -> Week:
    """Return the week of a pool that has so many groups in each hour of the week of a service.

    load = groups / most groups; hours without a group do not run
    """
    most_groups = max(groups)
    return Week(
        tuple(count / most_groups for count in groups),
        tuple(
            hour_share if count else Decimal(0)
            for count, hour_share in zip(
                groups, week.running_share, strict=True
            )
        ),
        week.schedule,
    )


def _carried_rps(
    requirement: ServingRequirement,
    count: HourlyCount,
    counts: tuple[HourlyCount, ...],
) -> tuple[float, ...]:
    """Return the requests/s of a pool in each hour: groups * weight / sum of those, of all."""
    rates_rps = []
    for hour, load in enumerate(requirement.week.relative_load):
        drawn = count.groups[hour] * count.weight
        all_drawn = sum(each.groups[hour] * each.weight for each in counts)
        hour_rps = load * requirement.load.rate_per_s
        rates_rps.append(hour_rps * drawn / all_drawn if drawn else 0.0)
    return tuple(rates_rps)


def _group_loads(
    requirement: ServingRequirement, count: HourlyCount
) -> Iterator[_GroupLoad]:
    """Yield what a group gets at most in each hour in which there is one."""
    for groups, load, up_weight in zip(
        count.groups,
        requirement.week.relative_load,
        count.up_weight,
        strict=True,
    ):
        if groups:
            share = count.weight / up_weight
            yield _GroupLoad(load * requirement.load.rate_per_s * share, share)


def _undominated(loads: Iterable[_GroupLoad]) -> list[_GroupLoad]:
    """Return the loads than which no other is as high and as large a part; the highest first."""
    kept: list[_GroupLoad] = []
    # Less of the requests vary less, so a lower rate counts where its share is larger.
    for load in sorted(set(loads), reverse=True):
        if not kept or load.share > kept[-1].share:
            kept.append(load)
    return kept


def _pool_requirement(
    requirement: ServingRequirement,
    count: HourlyCount,
    pool_rps: tuple[float, ...],
    load: _GroupLoad,
) -> ServingRequirement:
    """Return what a pool has to carry when each group gets some load, with a week of its own.

    rate      requests/s of a group * most groups
    week      that of its groups
    own week  requests/s of each hour / rate
    """
    rate_rps = load.rate_rps * count.most_groups
    week = requirement.week
    return replace(
        requirement.with_scaled_load(rate_rps / requirement.load.rate_per_s),
        traffic_share=load.share * count.most_groups,
        week=pool_week(week, count.groups),
        own_week=Week(
            tuple(hour_rps / rate_rps for hour_rps in pool_rps),
            week.running_share,
            week.schedule,
        ),
    )
