"""The cheapest machines for several services with an engine of each on every accelerator.

All machines are alike: each accelerator is divided in the same way, and has one engine of each
service. So the fleet is as large as that of the service which needs most machines. On each offer
every division is tried: shares of the time, with shares of the memory, and MIG slices.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from planner.facts.mig import chip_profiles, placed
from planner.numeric import last_true
from planner.perf.common.constant import constant
from planner.perf.common.device_part import slice_part, time_part
from planner.solve.serving.best_fleets import BestFleets
from planner.solve.serving.candidate import ServingCandidate
from planner.solve.serving.cloud_limit import obtainable
from planner.solve.serving.cost_bound import offer_bound_usd
from planner.solve.serving.group_search import FleetPricer, GroupSearch
from planner.solve.serving.sizing import (
    ONE_NODE,
    SCREEN_FACTOR,
    FleetSizing,
    NeighborSizing,
    idle_rejection,
    predict_service,
    sized_fleet,
    unfit_rejection,
    violated_limit,
)
from planner.solve.serving.spare_groups import counted_zones

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.facts.accelerator import MigProfile
    from planner.market.offer import Offer
    from planner.perf.common.device_part import DevicePart
    from planner.perf.common.layout import Node
    from planner.solve.serving.cost_bound import LayoutOption
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import LayoutRejection
    from planner.solve.serving.verify import FleetJudge

# A choice of ours: memory is divided in twentieths, about a gigabyte of the smallest accelerators.
MEMORY_STEPS: Final = 20
# More machines than this many times the fewest of the largest parts are not tried: what one more
# machine gives each service grows smaller.
MOST_GROWTH: Final = 4
NVIDIA: Final = "nvidia"


class FleetBuilder(FleetPricer, Protocol):
    """What the search of shared machines asks of the search of fleets."""

    judge: FleetJudge
    markup: float

    def node_options(
        self,
        requirement: ServingRequirement,
        node: Node,
        zones: int,
        group_sizes: tuple[int, ...],
    ) -> list[LayoutOption]:
        """Return each layout on a kind of node with its group bound."""

    def bought(
        self,
        requirement: ServingRequirement,
        offer: Offer,
        outcome: FleetSizing | LayoutRejection,
    ) -> ServingCandidate | LayoutRejection:
        """Return a fleet with its bill, or what keeps it from being had."""


class _Place(Struct, frozen=True):
    """Machines on which services are tried: an offer of them, and the zones that count."""

    offer: Offer
    node: Node
    zones: int


class _IsEnough(Protocol):
    """Whether a part is enough for a service, by its number, in some respect."""

    def __call__(self, number: int, part: DevicePart, /) -> bool:
        """Ask it."""


class _Division(Protocol):
    """A way to divide an accelerator among engines."""

    def largest(self, node: Node) -> DevicePart | None:
        """Return the largest part that one engine can have beside the others."""

    def parts(
        self, node: Node, is_enough: _IsEnough
    ) -> tuple[DevicePart, ...] | None:
        """Return a part for each service that is enough for it, None where there are none."""


class SharedSearch:
    """Finds the cheapest machines for one requirement and those beside it."""

    def __init__(
        self, requirement: ServingRequirement, builder: FleetBuilder
    ) -> None:
        self._requirement = requirement
        self._builder = builder
        self._services = (
            replace(requirement, beside=()),
            *(neighbor.requirement for neighbor in requirement.beside),
        )
        # Of a service, a part of a kind of machine, and so many of them: the first layout that
        # passes.
        self._passing: dict[
            tuple[int, DevicePart, Node, int, int], LayoutOption | None
        ] = {}

    def cheapest(
        self,
        offers: Sequence[Offer],
        result_count: int,
        ceiling_usd: float = math.inf,
    ) -> list[ServingCandidate]:
        """Return the cheapest fleets, one of each machine type and purchase, the cheapest first.

        No fleet on an offer costs less than its bound, so the search ends where the bounds are
        above what was found.
        """
        best = BestFleets(result_count, ceiling_usd)
        # Equal bounds in the order of names, so that an answer depends on no other order.
        by_bound = sorted(
            (offer_bound_usd(self._requirement, offer), offer.key, number)
            for number, offer in enumerate(offers)
        )
        for bound_usd, _, number in by_bound:
            if bound_usd * self._builder.markup > best.cutoff_usd:
                break
            offer = offers[number]
            if not self._has_room(offer):
                continue
            for sizing in self._fleets(offer, best.cutoff_usd):
                candidate = self._candidate(offer, sizing)
                if candidate is not None:
                    best.keep(candidate)
                    break
        return best.ranked()

    def _has_room(self, offer: Offer) -> bool:
        """Whether a machine has accelerators that engines can share, and processors for all.

        Of whole accelerators of NVIDIA it is documented how processes take turns. Processors:
        threads >= engines of a machine * engine_threads + host_threads
        """
        instance = offer.instance
        if instance.chip.vendor != NVIDIA or instance.fraction < 1:
            return False
        engines = len(self._services) * instance.accelerators
        return offer.instance.vcpu >= engines * constant(
            "engine_threads"
        ) + constant("host_threads")

    def _candidate(
        self, offer: Offer, sizing: FleetSizing
    ) -> ServingCandidate | None:
        outcome = obtainable(self._requirement, offer, sizing)
        if not isinstance(outcome, FleetSizing):
            return None
        found = self._builder.bought(self._requirement, offer, outcome)
        return found if isinstance(found, ServingCandidate) else None

    def _fleets(self, offer: Offer, limit_usd: float) -> list[FleetSizing]:
        """Return the fewest machines of each division, the fewest first, slices before shares.

        Those that cost more than `limit_usd` are left out. Slices keep engines apart better, so
        they come first where both take as many machines.
        """
        place = _Place(
            offer, offer.instance.node, counted_zones(self._requirement, offer)
        )
        divisions: list[_Division] = [_TimeShares(len(self._services))]
        profiles = self._profiles(offer)
        # Of equal numbers of machines the sort below keeps the first.
        if profiles:
            divisions.insert(0, _Slices(profiles, len(self._services)))
        found = [
            fleet
            for division in divisions
            if (fleet := self._fewest(place, division, limit_usd)) is not None
        ]
        return sorted(found, key=lambda fleet: fleet.peak_groups)

    def _profiles(self, offer: Offer) -> tuple[MigProfile, ...]:
        """Return the slices of the accelerator of a machine; none where it has several.

        A process sees one slice alone, so an engine has no replicas on slices of several.
        """
        instance = offer.instance
        if instance.accelerators > 1 or instance.fraction < 1:
            return ()
        return chip_profiles(instance.accelerator)

    def _fewest(
        self, place: _Place, division: _Division, limit_usd: float
    ) -> FleetSizing | None:
        """Return the fewest machines on which a division lets every service pass."""
        largest = division.largest(place.node)
        # Without room for all weights no simulation is needed.
        if largest is None or not division.parts(
            place.node, partial(self._fits, place)
        ):
            return None
        least = 1
        # A service with the largest part needs no more machines than with any other one.
        for service in self._services:
            groups = self._least_groups(service, place, largest)
            if groups is None or self._costs_more(place, groups, limit_usd):
                return None
            least = max(least, groups)
        for groups in range(least, least * MOST_GROWTH + 1):
            if self._costs_more(place, groups, limit_usd):
                return None
            parts = division.parts(
                place.node, partial(self._passes, place, groups)
            )
            if parts is not None:
                return self._sized(place, parts, groups)
        return None

    def _costs_more(self, place: _Place, groups: int, limit_usd: float) -> bool:
        """Whether so many machines alone cost more than a limit, USD in the period."""
        if limit_usd == math.inf:
            return False
        requirement = self._services[0]
        # Any layout has the same machines; a bill has more lines with neighbors.
        replica, group, _ = self._builder.node_options(
            requirement, place.node, place.zones, ONE_NODE
        )[0]
        fleet = sized_fleet(requirement, replica, group, groups)
        bill = self._builder.bill(requirement, fleet, place.offer)
        return float(bill.total) > limit_usd

    def _fits(self, place: _Place, number: int, part: DevicePart) -> bool:
        """Whether the weights of a service and its longest sequence fit in its part."""
        return any(
            replica.max_batch
            for replica, _, _ in self._options(
                self._services[number], place, part
            )
        )

    def _least_groups(
        self, service: ServingRequirement, place: _Place, part: DevicePart
    ) -> int | None:
        """Return the fewest machines with which a service passes on a part, None for none."""
        groups = GroupSearch(service, self._builder, self._builder.judge)
        sizes = [
            outcome.peak_groups
            for option in self._options(service, place, part)
            if isinstance(
                outcome := groups.fewest(
                    place.offer, option, math.inf, tells_why=False
                ),
                FleetSizing,
            )
        ]
        return min(sizes, default=None)

    def _passes(
        self, place: _Place, groups: int, number: int, part: DevicePart
    ) -> bool:
        return self._layout_on(place, groups, number, part) is not None

    def _layout_on(
        self, place: _Place, groups: int, number: int, part: DevicePart
    ) -> LayoutOption | None:
        """Return the first layout of a service that passes on its part of so many machines."""
        key = (number, part, place.node, place.zones, groups)
        if key not in self._passing:
            service = self._services[number]
            self._passing[key] = next(
                (
                    option
                    for option in self._options(service, place, part)
                    if self._keeps_limits(service, option, groups)
                ),
                None,
            )
        return self._passing[key]

    def _options(
        self, service: ServingRequirement, place: _Place, part: DevicePart
    ) -> list[LayoutOption]:
        """Return the layouts of a service on a part, which is of one accelerator."""
        return [
            option
            for option in self._builder.node_options(
                service,
                part.node(place.node),
                place.zones,
                ONE_NODE,
            )
            if option[0].layout.accelerators == 1
        ]

    def _keeps_limits(
        self,
        requirement: ServingRequirement,
        option: LayoutOption,
        groups: int,
    ) -> bool:
        """Whether so many groups keep all limits of a service: by formula, then simulated."""
        replica, group, least_groups = option
        # 1e-9 absorbs floating-point error at whole numbers.
        if groups < least_groups - 1e-9:
            return False
        if unfit_rejection(requirement, replica, group) is not None:
            return False
        factor = SCREEN_FACTOR if requirement.is_simulated else 1.0
        if idle_rejection(requirement, replica, factor) is not None:
            return False
        service = predict_service(requirement, replica, groups * group.replicas)
        if service is None or violated_limit(
            service, requirement.limits, factor
        ):
            return False
        fleet = sized_fleet(requirement, replica, group, groups)
        return not self._builder.judge.misses(requirement, fleet)

    def _sized(
        self, place: _Place, parts: Sequence[DevicePart], groups: int
    ) -> FleetSizing:
        """Return so many machines with an engine of each service on its part."""
        fleets = []
        for number, (service, part) in enumerate(
            zip(self._services, parts, strict=True)
        ):
            option = self._layout_on(place, groups, number, part)
            assert option is not None  # noqa: S101 - the division has asked
            replica, group, _ = option
            fleets.append(
                replace(sized_fleet(service, replica, group, groups), part=part)
            )
        # The machines are those of all: the fleet of the host stands for them.
        host, *others = fleets
        return replace(
            host,
            beside=tuple(
                NeighborSizing(neighbor=neighbor, sizing=sizing)
                for neighbor, sizing in zip(
                    self._requirement.beside, others, strict=True
                )
            ),
        )


class _TimeShares(Struct, frozen=True):
    """Engines that take turns, each with a share of the memory in steps."""

    engines: int

    @property
    def most_steps(self) -> int:
        """Steps that one engine has when every other has one."""
        return MEMORY_STEPS - self.engines + 1

    def largest(self, node: Node) -> DevicePart | None:
        """Return the largest part of one engine, None where there are too many engines."""
        if self.most_steps < 1:
            return None
        return self._part(node, self.most_steps)

    def parts(
        self, node: Node, is_enough: _IsEnough
    ) -> tuple[DevicePart, ...] | None:
        """Return a part for each engine that is enough for it, None where memory is short.

        Each has the least memory that is enough, and an equal part of what is left.
        """
        least = []
        for number in range(self.engines):

            def is_short(steps: int, number: int = number) -> bool:
                return not is_enough(number, self._part(node, steps))

            # Not even with the least for all others.
            if is_short(self.most_steps):
                return None
            least.append(1 + last_true(is_short, 0, self.most_steps - 1))
        left = MEMORY_STEPS - sum(least)
        # Each would have enough alone, and together they do not.
        if left < 0:
            return None
        each, rest = divmod(left, self.engines)
        roomy = tuple(
            self._part(node, own + each + (number < rest))
            for number, own in enumerate(least)
        )
        # More room lets more requests in at once, which may take longer each.
        if all(is_enough(number, part) for number, part in enumerate(roomy)):
            return roomy
        return tuple(self._part(node, own) for own in least)

    def _part(self, node: Node, steps: int) -> DevicePart:
        return time_part(node, self.engines, steps / MEMORY_STEPS)


class _Slices(Struct, frozen=True):
    """MIG slices, one of each engine, at places where the driver makes them together."""

    profiles: tuple[MigProfile, ...]
    engines: int

    def largest(self, node: Node) -> DevicePart | None:
        """Return the largest slice that leaves room for the smallest ones of the others."""
        smallest = [self.profiles[0]] * (self.engines - 1)
        return next(
            (
                slice_part(node, profile)
                for profile in reversed(self.profiles)
                if placed([profile, *smallest]) is not None
            ),
            None,
        )

    def parts(
        self, node: Node, is_enough: _IsEnough
    ) -> tuple[DevicePart, ...] | None:
        """Return a slice for each engine that is enough, None where they do not fit."""

        def rest(
            chosen: tuple[MigProfile, ...],
        ) -> tuple[MigProfile, ...] | None:
            # More slices never free a place.
            if placed(chosen) is None:
                return None
            number = len(chosen)
            if number == self.engines:
                return chosen
            for profile in self.profiles:
                if is_enough(number, slice_part(node, profile)):
                    found = rest((*chosen, profile))
                    if found is not None:
                        return found
            return None

        profiles = rest(())
        if profiles is None:
            return None
        return tuple(slice_part(node, profile) for profile in profiles)
