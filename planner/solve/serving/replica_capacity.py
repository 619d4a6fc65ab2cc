"""How many requests a second one replica carries within the limits: bounds, drawn closer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.solve.serving.sizing import (
    ReplicaGroup,
    predict_service,
    sized_fleet,
)

if TYPE_CHECKING:
    from planner.perf.serving.replica import Replica
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.verify import FleetJudge

LONE_REPLICA: Final = ReplicaGroup(nodes=1, replicas=1)
# Bounds within so much of each other are not drawn closer.
CLOSE_SHARE: Final = 0.01
# Rates within so much of each other are the same.
SAME_SHARE: Final = 1e-6
# Below so much of its upper bound a replica is taken to carry nothing.
LEAST_SHARE: Final = 0.02


class CapacityBounds(Struct, frozen=True):
    """Requests a second of one replica: it carries `low_rps`, and no more than `high_rps`."""

    low_rps: float
    high_rps: float

    @property
    def are_close(self) -> bool:
        """Whether they are as close as they will be."""
        return self.high_rps - self.low_rps <= CLOSE_SHARE * self.high_rps

    def is_near_high(self, rate_rps: float) -> bool:
        """Whether a rate is so near to the higher bound that it tells little about it."""
        return rate_rps > (1 - CLOSE_SHARE) * self.high_rps

    def group_range(self, rate_rps: float) -> float:
        """Return how many more groups a rate takes at the lower bound than at the higher one."""
        if not self.low_rps:
            return math.inf
        return rate_rps / self.low_rps - rate_rps / self.high_rps


class ReplicaCapacity:
    """Bounds of what replicas carry under a load that a router spreads at random.

    A random share of the arrivals varies in a way that depends on the share alone. So a replica
    carries as much beside machines of another type as beside its own, and one number describes
    it.
    """

    def __init__(
        self, requirement: ServingRequirement, judge: FleetJudge
    ) -> None:
        # What may fail is a matter of a whole fleet.
        self._requirement = replace(
            requirement, availability=None, survives=None
        )
        self._judge = judge
        self._bounds: dict[Replica, CapacityBounds] = {}
        self._first_high: dict[Replica, float] = {}

    def bounds(self, replica: Replica, high_rps: float) -> CapacityBounds:
        """Return what is known of a replica; `high_rps` is where the search starts."""
        if replica not in self._bounds:
            rate_rps = self._requirement.load.rate_per_s
            high_rps = min(high_rps, rate_rps)
            self._bounds[replica] = CapacityBounds(0.0, high_rps)
            self._first_high[replica] = high_rps
        return self._bounds[replica]

    def is_open(self, replica: Replica) -> bool:
        """Return whether the bounds of a replica differ."""
        known = self._bounds[replica]
        return known.low_rps < known.high_rps

    def halve(self, replica: Replica) -> None:
        """Halve the distance of the bounds of a replica."""
        known = self._bounds[replica]
        self.refine(replica, (known.low_rps + known.high_rps) / 2)

    def refine(self, replica: Replica, rate_rps: float) -> None:
        """Simulate a replica at a rate between its bounds, which becomes one of them."""
        known = self._bounds[replica]
        if known.are_close:
            # As good as one number: the lower one, which was seen to hold.
            self._bounds[replica] = CapacityBounds(known.low_rps, known.low_rps)
        elif carries(self._requirement, self._judge, replica, rate_rps):
            self._bounds[replica] = CapacityBounds(rate_rps, known.high_rps)
        elif rate_rps < LEAST_SHARE * self._first_high[replica]:
            self._bounds[replica] = CapacityBounds(0.0, 0.0)
        else:
            self._bounds[replica] = CapacityBounds(
                known.low_rps, rate_rps * (1 - SAME_SHARE)
            )


def carries(
    requirement: ServingRequirement,
    judge: FleetJudge,
    replica: Replica,
    rate_rps: float,
) -> bool:
    """Return whether a replica keeps all limits at a rate, by formula and by simulation.

    The rate is a random share of that of the requirement.
    """
    share = rate_rps / requirement.load.rate_per_s
    shared = requirement.with_share(min(1.0, share))
    if predict_service(shared, replica, 1) is None:
        return False
    fleet = sized_fleet(shared, replica, LONE_REPLICA, 1)
    return not judge.misses(shared, fleet)


def groups_for(rate_rps: float, group_rps: float) -> float:
    """Return the fewest groups, one at least, that carry a rate; infinite where none does."""
    if group_rps <= 0:
        return math.inf
    # 1e-9 absorbs floating-point error at whole numbers.
    return max(1, math.ceil(rate_rps / group_rps - 1e-9))
