"""Several workloads of one account: the cheapest fleets that fit into its quotas together.

A quota bounds what all of them use at each minute of the year. Those that share their hours with
others use what their load takes then; all others what they take at their peak.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.cost.weekly_load import standing_minutes
from planner.market.live import QuotaCap, QuotaKey
from planner.units import MINUTES_PER_WEEK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from planner.workload.sharing import MinutesAhead

PEAK_LOAD: Final = 1.0
CLOSED: Final = -1.0


class ChoiceOption(Struct, frozen=True):
    """What a workload may choose: its cost, and what it uses of each limit."""

    usd: Decimal
    units: tuple[float, ...]


class QuotaUse(Struct, frozen=True, kw_only=True):
    """What a fleet adds to a quota.

    limit           units that the account has left, without what the stacks have that stand
    units_by_load   by the load relative to the peak; -1 is outside of its schedule
    """

    key: QuotaKey
    limit: float
    units_by_load: dict[float, float]


class FleetChoice(Struct, frozen=True):
    """A fleet of a workload: its cost, USD a month, and what it uses of the quotas."""

    usd: Decimal
    uses: tuple[QuotaUse, ...]

    def units(self, key: QuotaKey, load: float) -> float:
        """Return what it adds to a quota at a load."""
        return sum(
            use.units_by_load[load] for use in self.uses if use.key == key
        )


class WorkloadHours(Struct, frozen=True, dict=True):
    """When a workload needs how much, relative to its peak.

    hourly_load  of each hour of its week; None for one that may need its peak at any time
    schedule     hours in which it runs, None for all
    timezone     that of both
    lead_minutes how long before an hour of more load its machines are there
    """

    hourly_load: tuple[float, ...] | None
    schedule: str | None
    timezone: str
    lead_minutes: int = 0

    @cached_property
    def loads(self) -> tuple[float, ...]:
        """All of its loads, that of the peak and that of closed hours included."""
        return tuple(sorted({CLOSED, PEAK_LOAD, *(self.hourly_load or ())}))

    def minute_loads(self, offset_minutes: int) -> tuple[float, ...]:
        """Return its load in each minute of a week in UTC, Monday 00:00 first."""
        if self.hourly_load is None:
            return (PEAK_LOAD,) * MINUTES_PER_WEEK
        # The rank of a load among all: 0 is what is closed.
        ranks = {load: rank for rank, load in enumerate(self.loads)}
        local = tuple(
            map(
                self.loads.__getitem__,
                standing_minutes(
                    tuple(map(ranks.__getitem__, self.hourly_load)),
                    self.schedule,
                    self.lead_minutes,
                ),
            )
        )
        start = offset_minutes % MINUTES_PER_WEEK
        return (*local[start:], *local[:start])


ANY_TIME: Final = WorkloadHours(None, None, "UTC")


class QuotaQuestion(Struct, frozen=True):
    """What the cheapest fleet of a workload is that adds no more than this to quotas."""

    number: int
    caps: tuple[QuotaCap, ...]


class QuotaNeed(Struct, frozen=True):
    """What the cheapest fleets of all would add to a quota together, and what is left of it."""

    key: QuotaKey
    units: float
    limit: float


class SharedChoice(Struct, frozen=True, kw_only=True):
    """The fleets of workloads that fit into the quotas of their account together.

    caps         what makes each of them the cheapest of its workload; None where none were found
    usd          what they cost together, USD a month; None where none were found
    bound_usd    no fleets that fit cost less; None where none fit at all
    usd_alone    what the cheapest fleet of each would cost, without the others
    needs        the quotas that these exceed together
    """

    caps: tuple[tuple[QuotaCap, ...], ...] | None
    usd: Decimal | None
    bound_usd: Decimal | None
    usd_alone: Decimal
    needs: tuple[QuotaNeed, ...]

    @property
    def gap_usd(self) -> Decimal:
        """By how much others might cost less; 0 where these are proved to cost the least."""
        if self.usd is None or self.bound_usd is None:
            return Decimal(0)
        return self.usd - self.bound_usd


class _Moment(Struct, frozen=True):
    """A minute in which a quota was exceeded: the load of each workload then."""

    key: QuotaKey
    limit: float
    loads: tuple[float, ...]


class _Fleets:
    """What is known of the fleets of a workload: some exactly, of others a lower bound.

    Each answer settles the cheapest fleet of a box of caps. Fleets of the box that use no less
    of any moment cost no less, so only those are left that use less of one of them.
    """

    def __init__(self, number: int, first: FleetChoice) -> None:
        self._number = number
        self._settled: dict[tuple[QuotaCap, ...], FleetChoice] = {(): first}
        self._asked: set[tuple[QuotaCap, ...]] = {()}
        self._open: dict[tuple[QuotaCap, ...], Decimal] = {}

    def options(
        self, moments: Sequence[_Moment]
    ) -> list[tuple[tuple[QuotaCap, ...], ChoiceOption]]:
        """Return what may be chosen: settled fleets, and boxes that might use nothing.

        The cheapest come first; of those that cost the same, fleets before boxes.
        """
        fleets = sorted(
            (choice.usd, caps) for caps, choice in self._settled.items()
        )
        boxes = sorted((usd, caps) for caps, usd in self._open.items())
        options = [
            *(
                (
                    caps,
                    ChoiceOption(
                        usd, self._units(self._settled[caps], moments)
                    ),
                )
                for usd, caps in fleets
            ),
            *(
                (caps, ChoiceOption(usd, (0.0,) * len(moments)))
                for usd, caps in boxes
            ),
        ]
        return sorted(options, key=lambda option: option[1].usd)

    def choice(self, caps: tuple[QuotaCap, ...]) -> FleetChoice | None:
        """Return the cheapest fleet of a box; None for one that is not settled."""
        return self._settled.get(caps)

    def settle(
        self,
        caps: tuple[QuotaCap, ...],
        choice: FleetChoice | None,
        moments: Sequence[_Moment],
    ) -> None:
        """Enter the answer to a question; None where no fleet is in the box."""
        self._open.pop(caps)
        if choice is None or any(
            choice.units(cap.key, cap.load) > cap.units for cap in caps
        ):
            return
        self._settled[caps] = choice
        self._split(caps, choice, moments)

    def take_up(self, moments: Sequence[_Moment]) -> None:
        """Open the boxes of fleets that use less of new moments than those that are settled."""
        for caps, choice in list(self._settled.items()):
            self._split(caps, choice, moments)

    def _split(
        self,
        caps: tuple[QuotaCap, ...],
        choice: FleetChoice,
        moments: Sequence[_Moment],
    ) -> None:
        for moment in moments:
            load = moment.loads[self._number]
            units = choice.units(moment.key, load)
            if not units:
                continue
            # Machines have whole units.
            cap = QuotaCap(moment.key, load, math.ceil(units) - 1.0)
            box = _with_cap(caps, cap)
            if box not in self._asked:
                self._asked.add(box)
                self._open[box] = choice.usd

    def _units(
        self, choice: FleetChoice, moments: Sequence[_Moment]
    ) -> tuple[float, ...]:
        return tuple(
            float(choice.units(moment.key, moment.loads[self._number]))
            for moment in moments
        )


def _with_cap(
    caps: tuple[QuotaCap, ...], cap: QuotaCap
) -> tuple[QuotaCap, ...]:
    """Return caps with one more, which takes the place of that of the same quota and load."""
    others = (
        other
        for other in caps
        if (other.key, other.load) != (cap.key, cap.load)
    )
    return tuple(
        sorted((*others, cap), key=lambda other: (other.key, other.load))
    )


def choose_together(
    hours: Sequence[WorkloadHours],
    first: Sequence[FleetChoice],
    answers: Callable[[Sequence[QuotaQuestion]], Sequence[FleetChoice | None]],
    minutes_ahead: MinutesAhead,
) -> SharedChoice:
    """Return the fleets of workloads that cost the least while all quotas hold at every minute.

    `first` are the cheapest fleets of each alone; `answers` finds the cheapest within caps.

    Exact: a minute is taken up when a choice exceeds a quota in it, and a fleet is asked for when
    a choice would want one that uses less. Until then it counts as one that uses nothing and costs
    what the fleet does that uses more, so no choice is cheaper than the one that is returned. A
    larger quota leaves every choice possible, so it never costs more.
    """
    calendar = _Calendar(hours, minutes_ahead)
    usd_alone = sum((choice.usd for choice in first), Decimal(0))
    moments = calendar.exceeded(first)
    if not moments:
        return SharedChoice(
            caps=((),) * len(first),
            usd=usd_alone,
            bound_usd=usd_alone,
            usd_alone=usd_alone,
            needs=(),
        )
    chosen = _FleetSearch(first, calendar, moments).cheapest(answers)
    return replace(chosen, needs=_needs(moments, first))


def joint_needs(
    hours: Sequence[WorkloadHours],
    chosen: Sequence[FleetChoice],
    minutes_ahead: MinutesAhead,
) -> tuple[QuotaNeed, ...]:
    """Return the quotas that fleets exceed together, each at the minute in which most is used."""
    return _needs(_Calendar(hours, minutes_ahead).exceeded(chosen), chosen)


def _needs(
    moments: Sequence[_Moment], chosen: Sequence[FleetChoice]
) -> tuple[QuotaNeed, ...]:
    return tuple(
        QuotaNeed(moment.key, _total(moment, chosen), moment.limit)
        for moment in moments
    )


class _FleetSearch:
    """Asks for fleets and takes up minutes until the cheapest choice is of fleets that fit."""

    def __init__(
        self,
        first: Sequence[FleetChoice],
        calendar: _Calendar,
        moments: Sequence[_Moment],
    ) -> None:
        self._first = first
        self._calendar = calendar
        self._fleets = [
            _Fleets(number, choice) for number, choice in enumerate(first)
        ]
        self._moments: list[_Moment] = []
        self._take_up(moments)

    def cheapest(
        self,
        answers: Callable[
            [Sequence[QuotaQuestion]], Sequence[FleetChoice | None]
        ],
    ) -> SharedChoice:
        """Return the cheapest fleets that fit; what they lack of quotas is for others to say."""
        while True:
            boxes, bound_usd = self._cheapest_boxes()
            if boxes is None:
                return self._choice(None, None, bound_usd)
            questions = [
                QuotaQuestion(number, caps)
                for number, caps in enumerate(boxes)
                if self._fleets[number].choice(caps) is None
            ]
            if questions:
                self._settle(questions, answers(questions))
                continue
            chosen = [
                choice
                for own, caps in zip(self._fleets, boxes, strict=True)
                if (choice := own.choice(caps)) is not None
            ]
            broken = self._calendar.exceeded(chosen)
            if not broken:
                usd = sum((choice.usd for choice in chosen), Decimal(0))
                return self._choice(tuple(boxes), usd, bound_usd)
            self._take_up(broken)

    def _settle(
        self,
        questions: Sequence[QuotaQuestion],
        choices: Sequence[FleetChoice | None],
    ) -> None:
        for question, choice in zip(questions, choices, strict=True):
            self._fleets[question.number].settle(
                question.caps, choice, self._moments
            )

    def _take_up(self, moments: Sequence[_Moment]) -> None:
        self._moments += moments
        for own in self._fleets:
            own.take_up(moments)

    def _cheapest_boxes(
        self,
    ) -> tuple[list[tuple[QuotaCap, ...]] | None, Decimal | None]:
        """Return the boxes that cost the least together, and a bound of what any cost, USD.

        No boxes where none were found; no bound where none fit.
        """
        # Only what is coupled by a quota waits for a solver to be loaded.
        from planner.workload.quota_choice import cheapest_choice

        options = [own.options(self._moments) for own in self._fleets]
        chosen = cheapest_choice(
            [[option for _, option in own] for own in options],
            [moment.limit for moment in self._moments],
        )
        if chosen.picks is None:
            return None, chosen.bound_usd
        boxes = [
            own[pick][0]
            for own, pick in zip(options, chosen.picks, strict=True)
        ]
        return boxes, chosen.bound_usd

    def _choice(
        self,
        caps: tuple[tuple[QuotaCap, ...], ...] | None,
        usd: Decimal | None,
        bound_usd: Decimal | None,
    ) -> SharedChoice:
        return SharedChoice(
            caps=caps,
            usd=usd,
            bound_usd=bound_usd,
            usd_alone=sum((choice.usd for choice in self._first), Decimal(0)),
            needs=(),
        )


def _total(moment: _Moment, chosen: Sequence[FleetChoice]) -> float:
    return sum(
        choice.units(moment.key, load)
        for choice, load in zip(chosen, moment.loads, strict=True)
    )


class _Calendar:
    """The minutes of a week in UTC on the different days of a year, with the load of each."""

    def __init__(
        self, hours: Sequence[WorkloadHours], minutes_ahead: MinutesAhead
    ) -> None:
        self._hours = hours
        # Clocks are changed on few days of a year.
        self._offsets = list(
            Counter(
                zip(
                    *(minutes_ahead(own.timezone) for own in hours), strict=True
                )
            )
        )
        self._minute_loads: dict[
            tuple[WorkloadHours, int], tuple[float, ...]
        ] = {}

    def exceeded(self, chosen: Sequence[FleetChoice]) -> list[_Moment]:
        """Return for each quota that fleets exceed together the minute in which most is used."""
        users: defaultdict[QuotaKey, list[int]] = defaultdict(list)
        limits: dict[QuotaKey, float] = {}
        for number, choice in enumerate(chosen):
            for use in choice.uses:
                limits[use.key] = use.limit
                if number not in users[use.key]:
                    users[use.key].append(number)
        moments = []
        for key, numbers in sorted(users.items()):
            if self._most_units(key, numbers, chosen) <= limits[key]:
                continue
            units, loads = max(self._worst(key, numbers, chosen))
            if units > limits[key]:
                moments.append(_Moment(key, limits[key], loads))
        return moments

    def _most_units(
        self,
        key: QuotaKey,
        numbers: Sequence[int],
        chosen: Sequence[FleetChoice],
    ) -> float:
        """Return what fleets use of a quota if each has its most at once."""
        return sum(
            max(chosen[number].units(key, load) for load in own.loads)
            for number, own in enumerate(self._hours)
            if number in numbers
        )

    def _worst(
        self,
        key: QuotaKey,
        numbers: Sequence[int],
        chosen: Sequence[FleetChoice],
    ) -> Iterator[tuple[float, tuple[float, ...]]]:
        """Yield the most that is used of a quota on days of each kind, and the loads then."""
        for offsets in self._offsets:
            by_minute = []
            for number in numbers:
                units = {
                    load: chosen[number].units(key, load)
                    for load in self._hours[number].loads
                }
                by_minute.append(
                    map(
                        units.__getitem__,
                        self._loads(number, offsets[number]),
                    )
                )
            totals = list(map(sum, zip(*by_minute, strict=True)))
            most = max(totals)
            minute = totals.index(most)
            yield (
                most,
                tuple(
                    self._loads(number, offset)[minute]
                    for number, offset in enumerate(offsets)
                ),
            )

    def _loads(self, number: int, offset: int) -> tuple[float, ...]:
        key = (self._hours[number], offset)
        if key not in self._minute_loads:
            self._minute_loads[key] = self._hours[number].minute_loads(offset)
        return self._minute_loads[key]
