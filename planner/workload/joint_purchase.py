"""Machines that services buy together: what is owned first, then a base for their joint hours."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.cost.bill_line import CENT
from planner.market.mix import PlaceKey, best_base
from planner.market.owned import OwnedMachines, OwnedUse
from planner.units import HOURS_PER_MONTH
from planner.workload.owned_share import cover, joint_commitments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planner.market.offer import Catalog
    from planner.workload.owned_share import CoveredHours, JointCommitment
    from planner.workload.sharing import (
        MinutesAhead,
        SharingPool,
        SharingService,
    )

ON_DEMAND: Final = "on_demand"


class SharedPlace(Struct, frozen=True, kw_only=True):
    """Machines of one type in one region, of several services together.

    peak_nodes  machines that run at once at most
    owned       of them those that are paid for already, at most
    committed   of them those that are committed to, by `purchase`
    on_demand   those above the base, at most
    alone_usd, shared_usd  what they cost bought by each service alone, and together, USD a month
    saved_parts  what of the saving is in the bill of each member, USD a month; empty until divided
    """

    place: PlaceKey
    members: tuple[str, ...]
    peak_nodes: int
    owned: int
    committed: int
    on_demand: int
    purchase: str
    alone_usd: Decimal
    shared_usd: Decimal
    saved_parts: tuple[Decimal, ...] = ()


class Stream(Struct, frozen=True):
    """Machines of one pool of a service, which is the one of that number in the portfolio."""

    number: int
    service: SharingService
    pool: SharingPool


class StreamGroup(Struct, frozen=True):
    """Machines at one place whose services allow the same commitments."""

    place: PlaceKey
    terms: tuple[str, ...]
    streams: tuple[Stream, ...]

    @property
    def weights(self) -> list[Decimal]:
        """By what a saving is divided: what each costs alone, else the hours of its machines."""
        costs = [stream.pool.machines_usd for stream in self.streams]
        if any(costs):
            return costs
        return [
            Decimal(sum(stream.pool.hourly_nodes)) for stream in self.streams
        ]


class JointPlaces(Struct, frozen=True):
    """What groups buy that own the same, and how much of that they use.

    Of a group that has nothing to share, None.
    """

    places: tuple[SharedPlace | None, ...]
    owned: tuple[OwnedUse, ...]


def joint_places(
    machines: Sequence[OwnedMachines],
    groups: Sequence[StreamGroup],
    catalog: Catalog,
    minutes_ahead: MinutesAhead,
) -> JointPlaces:
    """Return what groups buy at the least cost that own some machines together, which come first.

    All groups are at places where machines are sold on demand.
    """
    prices = [_prices(group, catalog) for group in groups]
    commitments = joint_commitments(machines, [group.place for group in groups])
    minutes = _joint_minutes(groups, minutes_ahead)
    covered = cover(
        minutes,
        commitments,
        [usd_hour[ON_DEMAND] for usd_hour in prices],
        [len(group.terms) for group in groups],
    )
    return JointPlaces(
        tuple(
            _shared_place(number, groups, prices, covered, minutes)
            for number in range(len(groups))
        ),
        tuple(_owned_uses(commitments, covered)),
    )


def _owned_uses(
    commitments: Sequence[JointCommitment], covered: CoveredHours
) -> list[OwnedUse]:
    """Return what is owned and how much of it is used, but for what an account has of others."""
    return [
        OwnedUse(
            commitment.machines,
            Decimal(share.numerator) / Decimal(share.denominator),
        )
        for commitment, share in zip(
            commitments, covered.used_shares, strict=True
        )
        if any(commitment.nodes) or not commitment.machines.are_found
    ]


def _prices(group: StreamGroup, catalog: Catalog) -> dict[str, Decimal]:
    """Return the prices at the place of a group by the way to buy, USD an hour."""
    return {
        purchase: offer.usd_hour
        for purchase, offer in catalog.offers_by_place[group.place].items()
    }


def _shared_place(
    number: int,
    groups: Sequence[StreamGroup],
    prices: Sequence[Mapping[str, Decimal]],
    covered: CoveredHours,
    minutes: Mapping[tuple[int, ...], int],
) -> SharedPlace | None:
    """Return what a group buys; None for a service that shares with no other."""
    group, usd_hour = groups[number], prices[number]
    owned = covered.most_covered[number]
    if len(group.streams) == 1 and (not owned or len(groups) == 1):
        return None
    level_hours = _level_hours(covered.bought_minutes[number])
    exact_usd, committed, purchase = min(
        _bought(level_hours, usd_hour, term)
        for term in ("", *group.terms)
        if not term or term in usd_hour
    )
    alone_usd = sum(
        (stream.pool.machines_usd for stream in group.streams), Decimal(0)
    )
    shared_usd = exact_usd.quantize(CENT)
    # The lines of each bill are rounded by themselves.
    if abs(shared_usd - alone_usd) <= CENT * len(group.streams):
        shared_usd = alone_usd
    return SharedPlace(
        place=group.place,
        members=tuple(stream.service.name for stream in group.streams),
        peak_nodes=max((nodes[number] for nodes in minutes), default=0),
        owned=owned,
        committed=committed,
        # What is owned may be elsewhere in one hour: not all else at the peak.
        on_demand=max(level_hours, default=0) - committed,
        purchase=purchase,
        alone_usd=alone_usd,
        shared_usd=shared_usd,
    )


def _bought(
    level_hours: Mapping[int, Decimal],
    usd_hour: Mapping[str, Decimal],
    term: str,
) -> tuple[Decimal, int, str]:
    """Return what machines cost with a commitment, how many are committed to, and by which.

    Those that are committed to come before those on demand.
    """
    on_demand_usd = usd_hour[ON_DEMAND]
    base = (
        best_base(usd_hour[term], on_demand_usd, level_hours, HOURS_PER_MONTH)
        if term
        else 0
    )
    usd = base * HOURS_PER_MONTH * usd_hour[term] if term else Decimal(0)
    usd += on_demand_usd * sum(
        hours for level, hours in level_hours.items() if level > base
    )
    return usd, base, term if base else ""


def _joint_minutes(
    groups: Sequence[StreamGroup], minutes_ahead: MinutesAhead
) -> Counter[tuple[int, ...]]:
    """Return how many minutes of a year of weeks have so many machines of each group.

    Each service has hours of its own time zone. Their distances differ over a year where clocks
    are changed: each day counts with those that it has.
    """
    streams = [stream for group in groups for stream in group.streams]
    minutes: Counter[tuple[int, ...]] = Counter()
    days_of = Counter(
        zip(
            *(minutes_ahead(stream.service.timezone) for stream in streams),
            strict=True,
        )
    )
    for offsets, days in days_of.items():
        offset_of = iter(offsets)
        by_group = [
            map(
                sum,
                zip(
                    *(
                        stream.service.minute_nodes(
                            stream.pool, next(offset_of)
                        )
                        for stream in group.streams
                    ),
                    strict=True,
                ),
            )
            for group in groups
        ]
        for nodes, count in Counter(zip(*by_group, strict=True)).items():
            minutes[nodes] += count * days
    return minutes


def _level_hours(minutes_of: Mapping[int, int]) -> dict[int, Decimal]:
    """Return the hours of a month in which at least 1, 2, ... machines run."""
    total_minutes = sum(minutes_of.values())
    hours: dict[int, Decimal] = {}
    running_minutes = 0
    for level in range(max(minutes_of, default=0), 0, -1):
        running_minutes += minutes_of.get(level, 0)
        hours[level] = (
            Decimal(running_minutes) / total_minutes * HOURS_PER_MONTH
        )
    return hours
