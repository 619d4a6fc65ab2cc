"""Several services that share what is paid for in every hour: commitments, and what is owned.

A commitment is of an account, and serves whichever machine runs. Services that are busy at other
hours keep it busy together, so more of it pays than for each of them alone. Each keeps the
machines that its own plan has chosen.
"""

from __future__ import annotations

from collections import defaultdict
from decimal import ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.cost.bill_line import CENT
from planner.workload.joint_purchase import (
    ON_DEMAND,
    SharedPlace,
    Stream,
    StreamGroup,
    joint_places,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.market.mix import PlaceKey
    from planner.market.offer import Catalog
    from planner.market.owned import OwnedMachines, OwnedUse
    from planner.workload.sharing import MinutesAhead, SharingService

# Whose commitments serve those who name no file: no path of a file is so.
ACCOUNT: Final = "the account"


class SharedBill(Struct, frozen=True):
    """What a service pays a month alone, and its part of what all of them pay together, USD.

    Alone it has its cheapest machines, wherever it has them together.
    """

    name: str
    alone_usd: Decimal
    shared_usd: Decimal


class Portfolio(Struct, frozen=True):
    """Services that buy together: the places that they share, and the bill of each.

    `owned` is what is paid for already, with the share of it that all of them use.
    """

    places: tuple[SharedPlace, ...]
    bills: tuple[SharedBill, ...]
    owned: tuple[OwnedUse, ...]


def share(
    members: Sequence[SharingService],
    catalog: Catalog,
    minutes_ahead: MinutesAhead,
) -> Portfolio:
    """Return what services pay together: at each place the cheapest base for their joint hours.

    `minutes_ahead` says of a time zone how far it is ahead of UTC on each day of a year.

    What a file or the account of the catalog owns is used first by all who own it, over the sum
    of their hours; it costs nothing more, so owning more never costs more. Of what is left, those
    who allow the same commitments share them: the k-th machine of all of them together is
    committed to when that costs less than the hours in which it runs. That is never dearer than
    what each commits to alone, but for what several own together: alone each counts on all of it.
    What is saved at a place is divided by what its services pay there alone, to the cent. A
    service that would pay less elsewhere alone is paid that difference first.
    """
    factor = catalog.price_book.surcharges.factor
    places: list[SharedPlace] = []
    owned: list[OwnedUse] = []
    shared_usd = [member.total_usd for member in members]
    for machines, groups in _owners(members, catalog):
        found = joint_places(machines, groups, catalog, minutes_ahead)
        owned += found.owned
        for group, place in zip(groups, found.places, strict=True):
            if place is None:
                continue
            dearer_usd = [stream.service.dearer_usd for stream in group.streams]
            parts = divided(
                (place.alone_usd - place.shared_usd) * factor
                - sum(dearer_usd, Decimal(0)),
                group.weights,
            )
            places.append(replace(place, saved_parts=tuple(parts)))
            for stream, part, dearer in zip(
                group.streams, parts, dearer_usd, strict=True
            ):
                shared_usd[stream.number] -= part + dearer
    return Portfolio(
        tuple(sorted(places, key=lambda place: (place.place, place.members))),
        tuple(
            SharedBill(member.name, member.total_usd - member.dearer_usd, usd)
            for member, usd in zip(members, shared_usd, strict=True)
        ),
        tuple(owned),
    )


def _owners(
    members: Sequence[SharingService], catalog: Catalog
) -> Iterator[tuple[tuple[OwnedMachines, ...], list[StreamGroup]]]:
    """Yield what is owned, with the groups that own it; each group of its own that owns nothing.

    Machines that are reserved, or at a place where none are sold on demand, are shared by nobody.
    """
    owned: dict[str, tuple[OwnedMachines, ...]] = {}
    groups: defaultdict[
        str, defaultdict[tuple[PlaceKey, tuple[str, ...]], list[Stream]]
    ] = defaultdict(lambda: defaultdict(list))
    for number, member in enumerate(members):
        owner, machines = _owner(member, catalog)
        owned[owner] = machines
        for pool in member.pools:
            sold = catalog.offers_by_place.get(pool.place, {})
            if pool.may_share and ON_DEMAND in sold:
                groups[owner][pool.place, member.terms].append(
                    Stream(number, member, pool)
                )
    for owner, alike in sorted(groups.items()):
        own_groups = [
            StreamGroup(
                place,
                terms,
                # Cents that are left go by name, whatever the order of the files.
                tuple(sorted(streams, key=lambda each: each.service.name)),
            )
            for (place, terms), streams in sorted(alike.items())
        ]
        if owned[owner]:
            yield owned[owner], own_groups
        else:
            yield from (((), [group]) for group in own_groups)


def _owner(
    member: SharingService, catalog: Catalog
) -> tuple[str, tuple[OwnedMachines, ...]]:
    """Return who owns what a service may use first, and what that is; it may be nothing."""
    if member.owned is not None:
        return member.owned.path, member.owned.machines
    if member.counts_account and catalog.owned:
        return ACCOUNT, catalog.owned
    return "", ()


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
