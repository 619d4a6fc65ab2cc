"""Services that cost less together on machines which are not the cheapest for each alone."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from decimal import Decimal

    from planner.workload.sharing import AcceleratorPlace, SharingService

# Choices of ours: each plan takes a tenth of a second and more, and each choice some milliseconds.
MOST_PLANS: Final = 24
MOST_IN_ALL_CHOICES: Final = 5

# What services bring into a portfolio from other places, by their number and the place.
MovedServices: TypeAlias = (
    "Mapping[tuple[int, AcceleratorPlace], SharingService]"
)
# Where services are that have not the machines that are the cheapest for each alone.
Moves: TypeAlias = "dict[int, AcceleratorPlace]"


class PlannedMoves(Struct, frozen=True):
    """Which service is to be planned at which place, and whether that is all that may save."""

    services: tuple[tuple[int, AcceleratorPlace], ...]
    are_all: bool


def planned_moves(
    members: Sequence[SharingService],
    rivals: Sequence[Sequence[AcceleratorPlace]],
) -> PlannedMoves:
    """Return which services are to be planned at which place.

    Those that may commit are planned at all places of others. `rivals` has the places that each
    could have instead, the cheapest first: one that is the best of none may be the best of all.
    The places that services have come first, then those that most of them could have. Whole places
    are left out beyond `MOST_PLANS`.
    """
    sharing = [
        number
        for number, member in enumerate(members)
        if member.terms and all(pool.may_share for pool in member.pools)
    ]
    if len(sharing) < 2:
        return PlannedMoves((), are_all=True)
    moves: list[tuple[int, AcceleratorPlace]] = []
    places = _candidates(sharing, members, rivals)
    for place in places:
        here = [
            (number, place)
            for number in sharing
            if members[number].places != {place}
        ]
        if len(moves) + len(here) > MOST_PLANS:
            return PlannedMoves(tuple(moves), are_all=False)
        moves += here
    return PlannedMoves(tuple(moves), are_all=True)


def _candidates(
    sharing: Sequence[int],
    members: Sequence[SharingService],
    rivals: Sequence[Sequence[AcceleratorPlace]],
) -> list[AcceleratorPlace]:
    """Return the places of services, then those that they could have, by how many could."""
    had = {place for number in sharing for place in members[number].places}
    ranks: dict[AcceleratorPlace, list[int]] = {}
    for number in sharing:
        for rank, place in enumerate(dict.fromkeys(rivals[number])):
            ranks.setdefault(place, []).append(rank)
    could = sorted(
        ranks.keys() - had,
        key=lambda place: (-len(ranks[place]), sum(ranks[place]), place),
    )
    return [*sorted(had), *could]


def cheapest_moves(
    members: Sequence[SharingService],
    moved: MovedServices,
    together_usd: Callable[[Sequence[SharingService]], Decimal],
) -> Moves:
    """Return which services move so that all of them pay less together; empty where none do.

    `moved` has those that anything serves at a place. `together_usd` is what services pay
    together, USD a month. Each step takes the choice of services for one place, or back to their
    own, that saves most, until none saves: so no choice of services for one place costs less.
    Of a place all choices are compared, and of more than `MOST_IN_ALL_CHOICES` services each
    alone and all of them. Of equal costs the fewest services move, the first by name.
    """
    moves: Moves = {}
    usd = together_usd(members)
    while True:
        step = min(
            (
                (next_usd, len(changed), _names(members, changed), changed)
                for changed in _steps(moves, moved)
                if (
                    next_usd := together_usd(
                        at_moves(members, moved, _applied(moves, changed))
                    )
                )
                < usd
            ),
            key=lambda found: found[:3],
            default=None,
        )
        if step is None:
            return moves
        usd = step[0]
        moves = _applied(moves, step[3])


def at_moves(
    members: Sequence[SharingService], moved: MovedServices, moves: Moves
) -> list[SharingService]:
    """Return services at the places that they move to, the others as they are."""
    return [
        moved[number, moves[number]] if number in moves else member
        for number, member in enumerate(members)
    ]


def _steps(
    moves: Moves, moved: MovedServices
) -> Iterator[dict[int, AcceleratorPlace | None]]:
    """Yield choices of services for one place, each with the place or None for their own."""
    targets: list[tuple[AcceleratorPlace | None, list[int]]] = [
        (place, [n for n, at in moved if at == place and moves.get(n) != place])
        for place in sorted({place for _, place in moved})
    ]
    targets.append((None, [*moves]))
    for place, numbers in targets:
        for chosen in _choices(numbers):
            yield dict.fromkeys(chosen, place)


def _choices(numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the choices of services that are compared."""
    sizes: Iterable[int] = range(1, len(numbers) + 1)
    if len(numbers) > MOST_IN_ALL_CHOICES:
        sizes = (1, len(numbers))
    for size in sizes:
        yield from combinations(numbers, size)


def _applied(
    moves: Moves, changed: Mapping[int, AcceleratorPlace | None]
) -> Moves:
    return {
        number: place
        for number, place in {**moves, **changed}.items()
        if place is not None
    }


def _names(
    members: Sequence[SharingService], numbers: Iterable[int]
) -> tuple[str, ...]:
    return tuple(sorted(members[number].name for number in numbers))
