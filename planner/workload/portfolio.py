"""Several services that share what is paid for in every hour: commitments, and what is owned.

A commitment is of an account, and serves whichever machine runs. Services that are busy at other
hours keep it busy together, so more of it pays than for each of them alone. Each keeps the
machines that its own plan has chosen.
"""

from __future__ import annotations

import posixpath
from collections import Counter, defaultdict
from decimal import ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from planner.cost.bill_line import CENT, MACHINE_KIND
from planner.market.mix import PlaceKey, best_base
from planner.market.offer import OWNED_PURCHASE
from planner.market.offer_filter import allowed_terms
from planner.market.owned import OwnedMachines, owned_machines
from planner.market.term import TERM_PURCHASES
from planner.spec.model import Inference
from planner.spec.schedule import open_minutes, parse_schedule
from planner.units import (
    HOURS_PER_MONTH,
    MINUTES_PER_HOUR,
    MINUTES_PER_WEEK,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from planner.market.offer import Catalog
    from planner.solve.solution import Solution
    from planner.spec.model import Spec

# By the name of a time zone: its minutes ahead of UTC on each day of a year.
MinutesAhead: TypeAlias = "Callable[[str], tuple[int, ...]]"
# Ways to buy that services share; of others each has its own.
SHARED: Final = frozenset({"on_demand", OWNED_PURCHASE, *TERM_PURCHASES})


class OwnedFile(Struct, frozen=True):
    """What a file says is paid for already; two specs that name one file own it together."""

    path: str
    machines: tuple[OwnedMachines, ...]


class SharingService(Struct, frozen=True, kw_only=True):
    """A service, as far as it shares what it buys.

    place         cloud, machine type and region of its machines
    hourly_nodes  machines of each hour of its week, without those on spot
    schedule      hours in which they run, None for all
    machines      what its plan buys, in words
    terms         commitments that its spec allows
    may_share     whether its machines above a base may be on demand, and are reserved by nobody
    owned         what is paid for already, None without it
    machines_usd  what these machines cost alone, USD a month
    total_usd     its whole bill alone, USD a month
    """

    name: str
    place: PlaceKey
    hourly_nodes: tuple[int, ...]
    schedule: str | None
    machines: str
    terms: tuple[str, ...]
    may_share: bool
    owned: OwnedFile | None
    machines_usd: Decimal
    total_usd: Decimal

    @property
    def timezone(self) -> str:
        """Time zone of its hours."""
        return parse_schedule(self.schedule)[3] if self.schedule else "UTC"

    def minute_nodes(self, offset_minutes: int) -> list[int]:
        """Return its machines in each minute of a week in UTC, Monday 00:00 first."""
        is_open = open_minutes(self.schedule)
        local = (
            (minute + offset_minutes) % MINUTES_PER_WEEK
            for minute in range(MINUTES_PER_WEEK)
        )
        return [
            self.hourly_nodes[minute // MINUTES_PER_HOUR]
            if is_open[minute]
            else 0
            for minute in local
        ]


class SharedPlace(Struct, frozen=True, kw_only=True):
    """Machines of one type in one region, of several services together.

    peak_nodes  machines that run at once at most
    owned       of them those that are paid for already
    committed   of them those that are committed to, by `purchase`
    alone_usd, shared_usd  what they cost bought by each service alone, and together, USD a month
    """

    place: PlaceKey
    members: tuple[str, ...]
    peak_nodes: int
    owned: int
    committed: int
    purchase: str
    alone_usd: Decimal
    shared_usd: Decimal


class SharedBill(Struct, frozen=True):
    """What a service pays a month alone, and its part of what all of them pay together, USD."""

    name: str
    machines: str
    alone_usd: Decimal
    shared_usd: Decimal


class Portfolio(Struct, frozen=True):
    """Services that buy together: the places that they share, and the bill of each."""

    places: tuple[SharedPlace, ...]
    bills: tuple[SharedBill, ...]


def member_of(
    spec: Spec,
    solution: Solution,
    read_file: Callable[[str], bytes],
    folder: str,
) -> SharingService | None:
    """Return what a service brings into a portfolio.

    None for what ends by itself, and for a service with two machine types.
    `folder` is that of the spec, so that files of one name in two folders are two files.
    """
    bill = solution.bill
    if (
        not isinstance(spec, Inference)
        or bill is None
        or solution.week is None
        or bill.period != "month"
        or len(solution.pools) > 1
    ):
        return None
    [pool] = solution.pools
    lines = [line for line in bill.lines if line.kind == MACHINE_KIND]
    shared_nodes = sum(
        part.nodes for part in pool.purchases if part.purchase in SHARED
    )
    hourly_nodes = solution.week.hourly_nodes(
        pool.peak_groups, pool.nodes_per_group, pool.spares
    )
    return SharingService(
        name=spec.name,
        place=(
            pool.instance.provider,
            pool.instance.instance_type,
            pool.region,
        ),
        hourly_nodes=tuple(min(nodes, shared_nodes) for nodes in hourly_nodes),
        schedule=spec.shutdown.schedule,
        machines=f"{pool.nodes} x {pool.instance.instance_type} {pool.region}",
        terms=allowed_terms(spec),
        may_share="none" in spec.buy.commit
        and all(
            part.purchase in (*SHARED, "spot") and not part.reservation
            for part in pool.purchases
        ),
        owned=OwnedFile(
            own_path(folder, spec.buy.owned), owned_machines(spec, read_file)
        )
        if spec.buy.owned is not None
        else None,
        machines_usd=sum(
            (
                line.usd or Decimal(0)
                for part, line in zip(pool.purchases, lines, strict=True)
                if part.purchase in SHARED
            ),
            Decimal(0),
        ),
        total_usd=bill.total,
    )


def own_path(folder: str, name: str) -> str:
    """Return the one path of a file that specs of a folder may name in several ways."""
    return posixpath.normpath(posixpath.join(folder, name))


def share(
    members: Sequence[SharingService],
    catalog: Catalog,
    minutes_ahead: MinutesAhead,
) -> Portfolio:
    """Return what services pay together: at each place the cheapest base for their joint hours.

    `minutes_ahead` says of a time zone how far it is ahead of UTC on each day of a year.

    Services share where they allow the same commitments and own the same.

    The k-th machine of all of them together is committed to when that costs less than the hours
    in which it runs. That is never dearer than what each commits to alone, but for what several
    of them own together: alone each of them counts on all of it.
    What is saved at a place is divided by what its services pay there alone, to the cent.
    """
    alike: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, member in enumerate(members):
        if not member.may_share:
            continue
        owned_path = member.owned.path if member.owned is not None else ""
        alike[*member.place, *member.terms, owned_path].append(number)
    factor = catalog.price_book.surcharges.factor
    places = []
    shared_usd = [member.total_usd for member in members]
    for _, numbers in sorted(alike.items()):
        group = [members[number] for number in numbers]
        place = (
            _shared_place(group, catalog, minutes_ahead)
            if len(group) > 1
            else None
        )
        if place is None:
            continue
        places.append(place)
        parts = divided(
            (place.alone_usd - place.shared_usd) * factor,
            [member.machines_usd for member in group],
        )
        for number, part in zip(numbers, parts, strict=True):
            shared_usd[number] -= part
    return Portfolio(
        tuple(places),
        tuple(
            SharedBill(member.name, member.machines, member.total_usd, usd)
            for member, usd in zip(members, shared_usd, strict=True)
        ),
    )


def divided(amount_usd: Decimal, weights: Sequence[Decimal]) -> list[Decimal]:
    """Return an amount in parts by their weights, which sum to it to the cent.

    Each part is rounded down; the cents that are left go to those that lost most of one, the
    first first. Without any weight all parts are equal.
    """
    amount = amount_usd.quantize(CENT)
    total_weight = sum(weights, Decimal(0))
    exact = [
        amount * weight / total_weight
        if total_weight
        else amount / len(weights)
        for weight in weights
    ]
    parts = [part.quantize(CENT, ROUND_FLOOR) for part in exact]
    cents_left = int((amount - sum(parts)) / CENT)
    by_loss = sorted(
        range(len(parts)), key=lambda number: parts[number] - exact[number]
    )
    for number in by_loss[:cents_left]:
        parts[number] += CENT
    return parts


def _shared_place(
    members: list[SharingService],
    catalog: Catalog,
    minutes_ahead: MinutesAhead,
) -> SharedPlace | None:
    """Return the machines of services that buy alike; None where they are not sold on demand."""
    place = members[0].place
    usd_hour = {
        offer.purchase: offer.usd_hour
        for offer in catalog.offers
        if offer.key[:3] == place
    }
    if "on_demand" not in usd_hour:
        return None
    level_hours = _level_hours(members, minutes_ahead)
    owned = _owned_nodes(members[0])
    cheapest = min(
        _bought(level_hours, owned, usd_hour, term)
        for term in ("", *members[0].terms)
        if not term or term in usd_hour
    )
    exact_usd, committed, purchase = cheapest
    alone_usd = sum((member.machines_usd for member in members), Decimal(0))
    shared_usd = exact_usd.quantize(CENT)
    # The lines of each bill are rounded by themselves.
    if abs(shared_usd - alone_usd) <= CENT * len(members):
        shared_usd = alone_usd
    return SharedPlace(
        place=place,
        members=tuple(member.name for member in members),
        peak_nodes=max(level_hours, default=0),
        owned=min(owned, max(level_hours, default=0)),
        committed=committed,
        purchase=purchase,
        alone_usd=alone_usd,
        shared_usd=shared_usd,
    )


def _bought(
    level_hours: Mapping[int, Decimal],
    owned: int,
    usd_hour: Mapping[str, Decimal],
    term: str,
) -> tuple[Decimal, int, str]:
    """Return what machines cost with a commitment, how many are committed to, and by which.

    Those that are owned come first and cost nothing, then those that are committed to, then those
    on demand.
    """
    on_demand_usd = usd_hour["on_demand"]
    base = (
        best_base(usd_hour[term], on_demand_usd, level_hours, HOURS_PER_MONTH)
        if term
        else 0
    )
    committed = max(0, base - owned)
    cost = committed * HOURS_PER_MONTH * usd_hour[term] if term else Decimal(0)
    first = max(owned, base)
    cost += on_demand_usd * sum(
        hours for level, hours in level_hours.items() if level > first
    )
    return cost, committed, term if committed else ""


def _owned_nodes(member: SharingService) -> int:
    """Return how many machines at the place of a service are paid for already."""
    if member.owned is None:
        return 0
    return sum(
        machines.count
        for machines in member.owned.machines
        if machines.are_at(*member.place)
    )


def _level_hours(
    members: list[SharingService], minutes_ahead: MinutesAhead
) -> dict[int, Decimal]:
    """Return the hours of a month in which at least 1, 2, ... machines run, of all services.

    Each has hours of its own time zone. Their distances differ over a year where clocks are
    changed, so it is the mean of the days of a year.
    """
    minutes_of: Counter[int] = Counter()
    days_of = Counter(
        zip(
            *(minutes_ahead(member.timezone) for member in members),
            strict=True,
        )
    )
    for offsets, days in days_of.items():
        totals = Counter(
            map(
                sum,
                zip(
                    *(
                        member.minute_nodes(offset)
                        for member, offset in zip(members, offsets, strict=True)
                    ),
                    strict=True,
                ),
            )
        )
        for nodes, minutes in totals.items():
            minutes_of[nodes] += minutes * days
    hours: dict[int, Decimal] = {}
    running_minutes = 0
    for level in range(max(minutes_of, default=0), 0, -1):
        running_minutes += minutes_of[level]
        hours[level] = (
            Decimal(running_minutes)
            / (MINUTES_PER_WEEK * days_of.total())
            * HOURS_PER_MONTH
        )
    return hours
