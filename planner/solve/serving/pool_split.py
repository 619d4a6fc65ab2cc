"""What to ask next to learn whether groups of two kinds carry all requests together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence


class PoolBounds(Struct, frozen=True):
    """So many groups, each of which carries `low_rps` requests/s, and `high_rps` at most.

    `useful_rps` is the least that another fleet may ask of one of them.
    """

    groups: int
    low_rps: float
    high_rps: float
    useful_rps: float = math.inf

    @property
    def carried_rps(self) -> float:
        """What all groups are known to carry, requests/s."""
        return self.groups * self.low_rps

    @property
    def most_rps(self) -> float:
        """What all groups carry at most, requests/s."""
        return self.groups * self.high_rps

    @property
    def unknown_rps(self) -> float:
        """What they may carry beyond what they are known to, requests/s."""
        return self.most_rps - self.carried_rps


def telling_rate(
    pools: Sequence[PoolBounds], rate_rps: float, close_share: float
) -> tuple[int, float] | None:
    """Return which of two pools to simulate, and at what rate of one of its groups.

    `rate_rps` is that of all requests. The pools carry so much at most or more, and are known to
    carry less. The one of which less is known is asked for a part of the requests:

        rate - most of the other <= part <= most of the one that is asked

    The middle of that range is asked for, or of a wider one from what other fleets may ask of the
    pool: the answer tells of all of them. Its lower end is asked for, below which the pools are
    not enough, where a pool may carry nothing; its upper end, where the range is not wider than
    `close_share` of all requests. A pool that is known to carry its part leaves the question to
    the other one: it carries the rest, and the pools are enough, or the range is halved.

    None where the pools are too few or hardly enough: they carry all requests and `close_share`
    of them at most.
    """
    first = max((0, 1), key=lambda index: pools[index].unknown_rps)
    asked, other = pools[first], pools[1 - first]
    least_rps = max(0.0, rate_rps - other.most_rps)
    most_rps = min(rate_rps, asked.most_rps)
    useful_rps = asked.groups * max(asked.low_rps, asked.useful_rps)
    # More is not needed, since the other one is known to carry the rest.
    needed_rps = rate_rps - other.carried_rps
    if most_rps - least_rps <= close_share * rate_rps:
        if asked.most_rps <= needed_rps:
            return None
        part_rps = needed_rps
    elif useful_rps < least_rps:
        part_rps = min(needed_rps, (useful_rps + most_rps) / 2)
    elif not asked.low_rps and least_rps > most_rps / 2:
        part_rps = least_rps
    else:
        part_rps = min(needed_rps, (least_rps + most_rps) / 2)
    # A part that is hardly more than what it carries was asked for before.
    if asked.carried_rps >= part_rps * (1 - close_share / 100):
        rest_rps = rate_rps - asked.carried_rps
        return 1 - first, rest_rps / other.groups
    return first, part_rps / asked.groups
