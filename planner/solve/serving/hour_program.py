"""How many groups of one or two kinds run in each hour of a week, so that it costs the least.

Each hour has a load of its own, but starts and commitments couple the hours: a group that comes
back is started again, and one that is committed to is paid for in all of them.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from planner.perf.reliability.quorum import likely_numbers
from planner.solve.serving.cheapest_round import CheapestRound
from planner.solve.serving.effort import Effort
from planner.solve.serving.hour_levels import cheapest_levels

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from planner.solve.serving.cheapest_round import Counts

# Absorbs floating-point error at whole numbers of groups.
WHOLE_ERROR: Final = 1e-9
# A step looks at so many numbers of groups in commitments, or moves to so many states.
CHOICES_OF_A_STEP: Final = 800
MOVES_OF_A_STEP: Final = 7
# What runs while a service is closed.
CLOSED: Final = (0, 0)


class HourLoad(Struct, frozen=True):
    """An hour of the week, or several with the same load.

    rate_rps  requests/s that arrive
    hours     how many they are, or which part of one; 0 where the service is closed
    """

    rate_rps: float
    hours: float


class HourKind(Struct, frozen=True, kw_only=True):
    """Groups of a kind: what one carries, and what it costs in USD in the period.

    group_rps     requests/s that a group carries within the limits, by the rate of an hour
    weight        of a group, where a router picks a group in proportion; 0 where that is what it
                  carries in each hour
    up_share      share of the time in which a group is up
    most_groups   that may be had
    machine_usd   its machines in one hour of each week, on demand; infinite where they are sold by
                  commitment alone
    other_usd     what else it costs in such an hour, however it is bought
    start_usd     one start in each week, with the time before its hour
    opening_usd   one start in each week when the service opens, before which there is no time
    owned_groups  those whose machines are paid for already
    always_usd    its machines in all hours, committed to; infinite where they may not be
    most_always   groups that may be committed to
    """

    group_rps: Mapping[float, float]
    weight: int = 0
    up_share: float = 1.0
    most_groups: int
    machine_usd: float
    other_usd: float
    start_usd: float = 0.0
    opening_usd: float = 0.0
    owned_groups: int = 0
    always_usd: float = math.inf
    most_always: int = 0

    def hour_usd(self, groups: int, always: int) -> float:
        """Return what some groups cost in an hour, of which so many are committed to."""
        usd = groups * self.other_usd
        bought = groups - self.owned_groups - always
        return usd + bought * self.machine_usd if bought > 0 else usd

    def least_usd(self, week_hours: float) -> float:
        """Return the least that a group costs in an hour of a week in which so many hours run."""
        # Of which hours what is owned serves is not known yet, so all of them count.
        if self.owned_groups:
            return self.other_usd
        return self.other_usd + min(
            self.machine_usd, self.always_usd / week_hours
        )

    def weight_at(self, rate_rps: float) -> float:
        """Return the weight of a group in hours of a rate."""
        return self.weight or self.group_rps[rate_rps]

    def wanted_weight(self, rate_rps: float) -> float:
        """Return the least weight of all groups with which one of these gets no more than it can.

        weight / weight of all * rate <= requests/s of a group
        """
        if not self.group_rps[rate_rps]:
            return math.inf
        return self.weight_at(rate_rps) * rate_rps / self.group_rps[rate_rps]


KindPair: TypeAlias = "tuple[HourKind, HourKind]"
# An hour, and how many of its kind follow each other.
_Stretch: TypeAlias = "tuple[HourLoad, int]"


def no_kind(hours: Sequence[HourLoad]) -> HourKind:
    """Return what stands beside a kind that is alone: it costs nothing, and there is none."""
    return HourKind(
        group_rps=dict.fromkeys((hour.rate_rps for hour in hours), 0.0),
        weight=1,
        most_groups=0,
        machine_usd=0.0,
        other_usd=0.0,
    )


class HourProgram:
    """Groups of two kinds, and the hours that they serve.

    A router picks each group in proportion to its weight. In each hour those that are up with the
    chance of `availability` carry the load; all of them, without one.
    """

    def __init__(
        self,
        kinds: KindPair,
        hours: Sequence[HourLoad],
        availability: float | None = None,
    ) -> None:
        self._kinds = kinds
        self._hours = hours
        self._availability = availability
        self._week_hours = sum(hour.hours for hour in hours)
        self._sure_weights: dict[tuple[Counts, float, float], float] = {}
        self._fewest: dict[float, tuple[Counts, ...]] = {}

    def cheapest(
        self, ceiling_usd: float = math.inf, effort: Effort | None = None
    ) -> tuple[Counts, ...] | None:
        """Return the groups of both kinds in each hour, which cost the least in all.

        minimize  sum of hours * (other USD * n + machine USD * max(0, n - owned - c))
                  + start USD * max(0, n - n of the hour before) + USD of all hours * c
                  with the USD of an opening for a start after a closed hour
        while     weight / weight of all that are up * rate <= requests/s of a group, of each kind
                  that runs, and sum of n >= 1, in each hour

        over n of each kind and hour, and c of each kind. The last hour of a week comes before the
        first. None where no groups carry the load. Two kinds that would cost a ceiling without any
        start are not looked for. Where the steps of an effort end, it is the cheapest until then.
        """
        if not self._kinds[1].most_groups:
            return self._cheapest_alone()
        effort = effort or Effort()
        # Those that may cost least come first, so few ways through the hours are looked for.
        plans = sorted(self._always_bounds(ceiling_usd, effort))
        # A commitment costs the same in whatever hours its machines run.
        best_usd = math.inf
        best: tuple[Counts, ...] | None = None
        for bound_usd, always in plans:
            if bound_usd >= best_usd or effort.is_spent:
                break
            usd, counts = self._through_all(always, effort)
            usd += self._always_usd(always)
            if usd < best_usd:
                best_usd, best = usd, counts
        return best

    def _cheapest_alone(self) -> tuple[Counts, ...] | None:
        """Return the groups of the first kind, where there is none of the second one."""
        needed: list[int] = []
        for hour in self._hours:
            enough = self._enough(hour.rate_rps) if hour.hours else (CLOSED,)
            if not enough:
                return None
            needed.append(enough[0][0])
        groups = cheapest_levels(self._kinds[0], self._hours, needed)
        return tuple((count, 0) for count in groups)

    @property
    def _hours_by_rate(self) -> dict[float, float]:
        """Each rate at which the service runs, with its hours: no order matters to a bound."""
        hours: dict[float, float] = {}
        for hour in self._hours:
            if hour.hours:
                hours[hour.rate_rps] = (
                    hours.get(hour.rate_rps, 0.0) + hour.hours
                )
        return hours

    def _enough(self, rate_rps: float) -> tuple[Counts, ...]:
        """Return for each number of groups of the first kind the fewest of the second one."""
        if rate_rps not in self._fewest:
            self._fewest[rate_rps] = tuple(self._find_enough(rate_rps))
        return self._fewest[rate_rps]

    def _find_enough(self, rate_rps: float) -> Iterator[Counts]:
        """Yield what one kind needs alone, and for each number of the stronger one the other."""
        wanted = [kind.wanted_weight(rate_rps) for kind in self._kinds]
        each = [kind.weight_at(rate_rps) for kind in self._kinds]
        most = [kind.most_groups for kind in self._kinds]
        # A kind alone needs no more than its own groups get.
        for number in (0, 1):
            alone = self._fewest_of(number, 0, wanted[number], rate_rps)
            if alone <= most[number]:
                yield (alone, 0) if number == 0 else (0, alone)
        together = max(wanted)
        if together == math.inf:
            return
        # Of the stronger kind there are fewer numbers to go through.
        strong = 0 if each[0] >= each[1] else 1
        for count in range(1, most[strong] + 1):
            left = together - count * each[strong]
            rest = self._fewest_of(1 - strong, count, left, rate_rps)
            if rest <= most[1 - strong]:
                yield (count, rest) if strong == 0 else (rest, count)
            # One of the other kind is the least there is beside it.
            if rest == 1:
                return

    def _fewest_of(
        self, number: int, beside: int, weight: float, rate_rps: float
    ) -> int:
        """Return the fewest groups of a kind that have a weight, beside some of the other kind."""
        kind = self._kinds[number]
        if weight == math.inf:
            return kind.most_groups + 1
        groups = max(
            1, math.ceil(weight / kind.weight_at(rate_rps) - WHOLE_ERROR)
        )
        if self._availability is None:
            return groups
        # When all are up these are enough; a promise may take more.
        while groups <= kind.most_groups and not self._carry(
            (groups, beside) if number == 0 else (beside, groups), rate_rps
        ):
            groups += 1
        return groups

    def _carry(self, counts: Counts, rate_rps: float) -> bool:
        """Whether some groups carry a rate; without a group nothing is answered."""
        wanted = max(
            (
                kind.wanted_weight(rate_rps)
                for kind, groups in zip(self._kinds, counts, strict=True)
                if groups
            ),
            default=math.inf,
        )
        return self.sure_weight(counts, rate_rps) >= wanted * (1 - WHOLE_ERROR)

    def sure_weight(self, counts: Counts, rate_rps: float) -> float:
        """Return the weight of the groups that are up as often as they have to be."""
        first, second = (kind.weight_at(rate_rps) for kind in self._kinds)
        if self._availability is None:
            return counts[0] * first + counts[1] * second
        key = (counts, first, second)
        if key not in self._sure_weights:
            self._sure_weights[key] = self._quantile(counts, (first, second))
        return self._sure_weights[key]

    def _quantile(self, counts: Counts, each: tuple[float, float]) -> float:
        """Return the weight that is up with the promised chance; failures are independent."""
        first, second = self._kinds
        weights = sorted(
            (
                (up * each[0] + beside_up * each[1], up_chance * beside_chance)
                for up, up_chance in likely_numbers(counts[0], first.up_share)
                for beside_up, beside_chance in likely_numbers(
                    counts[1], second.up_share
                )
            ),
            reverse=True,
        )
        # From the most that may be up downwards.
        sure_chance = 0.0
        for weight, chance in weights:
            sure_chance += chance
            if sure_chance >= (self._availability or 0.0):
                return weight
        return 0.0

    def _always_bounds(
        self, ceiling_usd: float, effort: Effort
    ) -> Iterator[tuple[float, Counts]]:
        """Yield what all hours cost at least for each number of groups that are committed to, USD.

        bound = USD of all hours * c + sum over loads of hours * least USD of groups that carry it

        Those that cost a ceiling are left out.
        """
        # Hours of much load cost most, and tell first that a commitment is too dear.
        loads = [
            (hours, self._enough(rate_rps))
            for rate_rps, hours in sorted(
                self._hours_by_rate.items(), reverse=True
            )
        ]
        if not all(enough for _, enough in loads):
            return
        # No more are committed to than ever run.
        most = [
            max(counts[number] for _, enough in loads for counts in enough)
            for number in (0, 1)
        ]

        # Hundreds of commitments have the same few numbers of groups.
        @cache
        def hour_usd(number: int, always: int) -> list[float]:
            kind = self._kinds[number]
            return [
                kind.hour_usd(groups, always)
                for groups in range(most[number] + 1)
            ]

        first_most, second_most = (
            min(kind.most_always, groups) + 1
            for kind, groups in zip(self._kinds, most, strict=True)
        )
        for always in itertools.product(range(first_most), range(second_most)):
            usd = self._always_usd(always)
            # Looking at what is too dear is a choice too.
            choices = 1
            if usd < ceiling_usd:
                first, second = map(hour_usd, (0, 1), always)
            for hours, enough in loads:
                if usd >= ceiling_usd:
                    break
                choices += len(enough)
                usd += hours * min(
                    [first[each] + second[other] for each, other in enough]
                )
            effort.spend(choices / CHOICES_OF_A_STEP)
            if usd < ceiling_usd:
                yield usd, always

    def _always_usd(self, always: Sequence[int]) -> float:
        return sum(
            kind.always_usd * groups
            for kind, groups in zip(self._kinds, always, strict=True)
            if groups
        )

    def _hour_usd(self, counts: Sequence[int], always: Sequence[int]) -> float:
        return sum(
            kind.hour_usd(groups, committed)
            for kind, groups, committed in zip(
                self._kinds, counts, always, strict=True
            )
        )

    def _through_all(
        self, always: Sequence[int], effort: Effort
    ) -> tuple[float, tuple[Counts, ...]]:
        """Return the cheapest groups of all hours where so many are committed to, and their cost.

        The cost is without that of the commitment. It is infinite where there are none, or no step
        of the effort is left.
        """
        # Nothing is gained by a change between hours of the same load.
        stretches = [
            (hour, len([*same]))
            for hour, same in itertools.groupby(self._hours)
        ]
        # Stretches of many days are as long, and have the same load: each is one object.
        states_of: dict[tuple[_Stretch, bool], dict[Counts, float]] = {}
        states: list[dict[Counts, float]] = []
        for number, stretch in enumerate(stretches):
            is_opened = bool(
                stretch[0].hours and not stretches[number - 1][0].hours
            )
            key = stretch, is_opened
            if key not in states_of:
                states_of[key] = self._stretch_states(
                    stretch, always, is_opened=is_opened
                )
            states.append(states_of[key])
        if not all(states):
            return math.inf, ()
        first, second = self._kinds
        week = CheapestRound(states, (first.start_usd, second.start_usd))
        effort.spend(week.move_count / MOVES_OF_A_STEP)
        if effort.is_spent:
            return math.inf, ()
        usd, path = week.cheapest()
        return usd, tuple(
            counts
            for counts, (_, count) in zip(path, stretches, strict=True)
            for _ in range(count)
        )

    def _stretch_states(
        self, stretch: _Stretch, always: Sequence[int], *, is_opened: bool
    ) -> dict[Counts, float]:
        """Return the useful states of a stretch with their cost, USD.

        Where the service opens there is one way from before, which costs what an opening does.
        """
        hour, count = stretch
        states = self._useful_states(hour.rate_rps, hour.hours * count, always)
        if not is_opened:
            return states
        return {
            counts: usd + self._opening_usd(counts)
            for counts, usd in states.items()
        }

    def _started_usd(self, counts: Counts) -> float:
        """Return what it costs to start some groups, USD."""
        first, second = self._kinds
        return counts[0] * first.start_usd + counts[1] * second.start_usd

    def _opening_usd(self, counts: Counts) -> float:
        """Return how much more it costs to start some groups at an opening, USD."""
        first, second = self._kinds
        opening_usd = (
            counts[0] * first.opening_usd + counts[1] * second.opening_usd
        )
        return opening_usd - self._started_usd(counts)

    def _useful_states(
        self, rate_rps: float, hours: float, always: Sequence[int]
    ) -> dict[Counts, float]:
        """Return the states of a stretch that may be in the cheapest week, with their cost, USD.

        A state is of no use when it costs more than the cheapest one, all groups of it started
        before the stretch and all of its own after it.
        """
        if not hours:
            # A service that is closed has no machine.
            return {CLOSED: 0.0}
        enough = {
            counts: hours * self._hour_usd(counts, always)
            for counts in self._enough(rate_rps)
        }
        least_usd, least = min(
            ((usd, counts) for counts, usd in enough.items()),
            default=(math.inf, CLOSED),
        )
        if least_usd == math.inf:
            return {}
        most_usd = least_usd + self._started_usd(least)
        useful: dict[Counts, float] = {}
        waiting = [*enough]
        seen = set(waiting)
        while waiting:
            counts = waiting.pop()
            usd = hours * self._hour_usd(counts, always)
            if usd > most_usd + self._started_usd(counts):
                continue
            if self._carry(counts, rate_rps):
                useful[counts] = usd
            # What it has more than it needs may be kept for the hours around it.
            for more in (
                (counts[0] + 1, counts[1]),
                (counts[0], counts[1] + 1),
            ):
                if more not in seen and self._may_be_had(more):
                    seen.add(more)
                    waiting.append(more)
        return useful

    def _may_be_had(self, counts: Counts) -> bool:
        return all(
            groups <= kind.most_groups
            for kind, groups in zip(self._kinds, counts, strict=True)
        )
