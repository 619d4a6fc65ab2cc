"""Services that would cost less together on machines that another one has already."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from decimal import Decimal

    from planner.market.mix import PlaceKey
    from planner.workload.sharing import SharingService

# What services bring into a portfolio, by their number and the place of their machines.
MovedServices: TypeAlias = "dict[tuple[int, PlaceKey], SharingService]"
# Choices of ours: each plan takes a tenth of a second and more, and each choice some milliseconds.
MOST_PLANS: Final = 24
MOST_IN_ALL_CHOICES: Final = 5


class JointMove(Struct, frozen=True, kw_only=True):
    """Services that would have their machines at a place of another one.

    place      cloud, machine type and region
    usd        what all services pay together then, USD a month
    saved_usd  how much less that is than where each has its own cheapest machines
    """

    names: tuple[str, ...]
    place: PlaceKey
    usd: Decimal
    saved_usd: Decimal


def planned_moves(
    members: Sequence[SharingService],
) -> tuple[tuple[int, PlaceKey], ...]:
    """Return which service is to be planned at which place: those that may commit, at all others.

    None at all where these are more than `MOST_PLANS`.
    """
    sharing = [
        number
        for number, member in enumerate(members)
        if member.terms and all(pool.may_share for pool in member.pools)
    ]
    places = sorted(
        {pool.place for number in sharing for pool in members[number].pools}
    )
    moves = tuple(
        (number, place)
        for place in places
        for number in sharing
        if {pool.place for pool in members[number].pools} != {place}
    )
    return moves if len(moves) <= MOST_PLANS else ()


def best_move(
    members: Sequence[SharingService],
    moved: MovedServices,
    together_usd: Callable[[Sequence[SharingService]], Decimal],
) -> JointMove | None:
    """Return the services that cost all of them least at a place of another; None if none do.

    `moved` has those that anything serves at a place. `together_usd` is what services pay
    together, USD a month. Of a place all choices of services are compared, and of more than
    `MOST_IN_ALL_CHOICES` each alone and all of them. Of equal costs the fewest services move, the
    first by name.
    """
    usual_usd = together_usd(members)
    found = [
        JointMove(
            names=tuple(sorted(members[number].name for number in numbers)),
            place=place,
            usd=usd,
            saved_usd=usual_usd - usd,
        )
        for place in sorted({place for _, place in moved})
        for numbers in _choices([n for n, at in moved if at == place])
        if (
            usd := together_usd(
                [
                    moved[number, place] if number in numbers else member
                    for number, member in enumerate(members)
                ]
            )
        )
        < usual_usd
    ]
    return min(
        found,
        key=lambda move: (move.usd, len(move.names), move.names, move.place),
        default=None,
    )


def _choices(numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the choices of services that are compared."""
    sizes = range(1, len(numbers) + 1)
    if len(numbers) > MOST_IN_ALL_CHOICES:
        sizes = range(1, len(numbers) + 1, len(numbers) - 1)
    for size in sizes:
        yield from combinations(numbers, size)
