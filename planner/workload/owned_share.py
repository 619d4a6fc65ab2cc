"""What is paid for already, used by the machines of several services in each minute."""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from decimal import Decimal

    from planner.market.mix import PlaceKey
    from planner.market.owned import OwnedMachines


class JointCommitment(Struct, frozen=True):
    """One commitment, and how many machines of each group it pays for if of no other.

    A machine of a group takes 1 / nodes of it.
    """

    machines: OwnedMachines
    nodes: tuple[int, ...]


class CoveredHours(Struct, frozen=True):
    """What a commitment leaves to buy.

    bought_minutes  for each group: minutes by the machines that are not paid for
    most_covered    for each group: machines that are paid for at once at most
    used_shares     for each commitment: the share of its hours in which it is used
    """

    bought_minutes: tuple[Mapping[int, int], ...]
    most_covered: tuple[int, ...]
    used_shares: tuple[Fraction, ...]


def joint_commitments(
    owned: Sequence[OwnedMachines], places: Sequence[PlaceKey]
) -> list[JointCommitment]:
    """Return what is owned, each thing once, with the groups that it pays for.

    What an account has bought may pay for several machine types, and is listed for each of them.
    Those that pay for the fewest groups come first: what they leave, others may take.
    """
    bought: defaultdict[object, list[OwnedMachines]] = defaultdict(list)
    for number, machines in enumerate(owned):
        found_key = (machines.source, machines.cloud, machines.region)
        bought[found_key if machines.are_found else number].append(machines)
    commitments = [
        JointCommitment(
            _told(entries, places),
            tuple(
                sum(each.count for each in entries if each.are_at(*place))
                for place in places
            ),
        )
        for entries in bought.values()
    ]
    return sorted(commitments, key=lambda each: sum(map(bool, each.nodes)))


def _told(
    entries: Sequence[OwnedMachines], places: Sequence[PlaceKey]
) -> OwnedMachines:
    """Return the machines by which a commitment is told: those that a group has, if any."""
    return next(
        (
            machines
            for place in places
            for machines in entries
            if machines.are_at(*place)
        ),
        entries[0],
    )


def cover(
    minutes: Mapping[tuple[int, ...], int],
    commitments: Sequence[JointCommitment],
    usd_hour: Sequence[Decimal],
    term_counts: Sequence[int],
) -> CoveredHours:
    """Return what is left to buy where what is owned is used first, in every minute.

    `minutes` by the machines of each group then. A commitment is used first where all of it saves
    most, by the price of a machine on demand, and then by those who may commit to the least: who
    may commit needs it less.
    """
    orders = [
        _order(commitment, usd_hour, term_counts) for commitment in commitments
    ]
    groups = range(len(usd_hour))
    bought: tuple[Counter[int], ...] = tuple(Counter() for _ in groups)
    most_covered = [0 for _ in groups]
    used = [Fraction(0) for _ in commitments]
    for nodes, count in minutes.items():
        left = list(nodes)
        for number, (commitment, order) in enumerate(
            zip(commitments, orders, strict=True)
        ):
            share = Fraction(0)
            for group, taken in _taken(left, commitment, order):
                left[group] -= taken
                share += Fraction(taken, commitment.nodes[group])
            used[number] += share * count
        for group in groups:
            bought[group][left[group]] += count
            most_covered[group] = max(
                most_covered[group], nodes[group] - left[group]
            )
    total = sum(minutes.values())
    return CoveredHours(
        bought, tuple(most_covered), tuple(share / total for share in used)
    )


def _order(
    commitment: JointCommitment,
    usd_hour: Sequence[Decimal],
    term_counts: Sequence[int],
) -> list[int]:
    """Return the groups that a commitment pays for, those first that it is used for first."""
    nodes = commitment.nodes
    return sorted(
        (group for group, count in enumerate(nodes) if count),
        key=lambda group: (
            -usd_hour[group] * nodes[group],
            term_counts[group],
            group,
        ),
    )


def _taken(
    nodes: Sequence[int], commitment: JointCommitment, order: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Yield the groups in which a commitment pays for machines, and for how many."""
    share = Fraction(1)
    for group in order:
        most = int(share * commitment.nodes[group])
        taken = min(nodes[group], most)
        if taken:
            share -= Fraction(taken, commitment.nodes[group])
            yield group, taken
