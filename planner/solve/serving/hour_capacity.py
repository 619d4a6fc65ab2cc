"""How many requests a second a group carries in hours of different loads.

Requests come in clumps, and a random share of them varies less than all of them. In an hour of
little load a group gets a larger share for the same rate, so it may carry less. Where requests
come by chance alone, it carries the same in all hours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from planner.solve.serving.replica_capacity import (
    LEAST_SHARE,
    SAME_SHARE,
    CapacityBounds,
    carries,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.perf.serving.replica import Replica
    from planner.solve.serving.hour_program import HourLoad
    from planner.solve.serving.mixed_fleet import PoolKind
    from planner.solve.serving.pool_kind import PoolKinds
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.verify import FleetJudge


class _Trials(Struct, frozen=True):
    """What was seen of a replica: rates in requests/s, each with its share of all requests.

    What it carries, it carries at a lower rate and at a smaller share too.
    """

    carried: tuple[tuple[float, float], ...] = ()
    missed: tuple[tuple[float, float], ...] = ()


class HourCapacity:
    """Bounds of what groups carry in hours in which all requests come at some rate."""

    def __init__(
        self,
        requirement: ServingRequirement,
        judge: FleetJudge,
        kinds: PoolKinds,
        loads: tuple[HourLoad, ...],
    ) -> None:
        # What may fail is a matter of a whole fleet.
        self._requirement = replace(
            requirement, availability=None, survives=None
        )
        self._judge = judge
        self._kinds = kinds
        self._loads = loads
        self._has_clumps = requirement.load.arrival_variation != 1
        self._trials: dict[Replica, _Trials] = {}
        # Simulations that bounds rest on: they change with each.
        self.learned = 0
        self._bounds: dict[Replica, dict[float, CapacityBounds]] = {}
        self._most: dict[Replica, dict[int, Mapping[float, float]]] = {}

    def most_rps(self, kind: PoolKind) -> Mapping[float, float]:
        """Return what a group carries at most in hours of each rate, requests/s."""
        known = self._most.setdefault(kind.replica, {})
        replicas = kind.group.replicas
        if replicas not in known:
            known[replicas] = {
                load.rate_rps: self.group_bounds(kind, load.rate_rps).high_rps
                for load in self._loads
            }
        return known[replicas]

    def group_bounds(self, kind: PoolKind, hour_rps: float) -> CapacityBounds:
        """Return bounds of what a group carries in hours of a rate, requests/s."""
        known = self._bounds.setdefault(kind.replica, {})
        if hour_rps not in known:
            known[hour_rps] = self._find_bounds(kind, hour_rps)
        bounds, replicas = known[hour_rps], kind.group.replicas
        return CapacityBounds(
            bounds.low_rps * replicas, bounds.high_rps * replicas
        )

    def refine(
        self,
        kind: PoolKind,
        hour_rps: float,
        group_rps: float,
        *,
        is_alone: bool,
    ) -> None:
        """Simulate a replica of a group that gets so many requests/s in hours of a rate.

        Bounds that are close and miss it become one number: the lower one, which was seen to hold.
        Of a type alone they are only as close as two whole numbers of its groups.
        """
        replica = kind.replica
        trials = self._trials.get(replica, _Trials())
        bounds = self._find_bounds(kind, hour_rps)
        rate_rps = group_rps / kind.group.replicas
        if self._carries(replica, hour_rps, rate_rps):
            seen = (rate_rps, rate_rps / hour_rps)
            trials = replace(trials, carried=(*trials.carried, seen))
        else:
            missed_rps = rate_rps * (1 - SAME_SHARE)
            if bounds.are_close and not is_alone:
                missed_rps = bounds.low_rps
            # Below a small part of its upper bound it is taken to carry nothing.
            elif rate_rps < LEAST_SHARE * self._kinds.most_rps(kind):
                missed_rps = 0.0
            seen = (missed_rps, missed_rps / hour_rps)
            trials = replace(trials, missed=(*trials.missed, seen))
        self._trials[replica] = trials
        self.learned += 1
        self._bounds.pop(replica, None)
        self._most.pop(replica, None)

    def _carries(
        self, replica: Replica, hour_rps: float, rate_rps: float
    ) -> bool:
        load = hour_rps / self._requirement.load.rate_per_s
        hour = self._requirement.with_scaled_load(load)
        return carries(hour, self._judge, replica, rate_rps)

    def _find_bounds(self, kind: PoolKind, hour_rps: float) -> CapacityBounds:
        """Return bounds of what a replica carries, by all that was seen of it.

        It carries the lower of a rate and of its share of the hour, and misses the higher one.
        """
        # No group gets more than all requests of an hour.
        most_rps = min(hour_rps, self._kinds.most_rps(kind))
        trials = self._trials.get(kind.replica)
        # Of most replicas nothing was seen.
        if trials is None:
            return CapacityBounds(0.0, most_rps)
        carried, missed = (
            [
                (rate_rps, share * hour_rps if self._has_clumps else rate_rps)
                for rate_rps, share in seen
            ]
            for seen in (trials.carried, trials.missed)
        )
        high_rps = min(most_rps, min(map(max, missed), default=most_rps))
        low_rps = max(map(min, carried), default=0.0)
        return CapacityBounds(min(low_rps, high_rps), high_rps)
