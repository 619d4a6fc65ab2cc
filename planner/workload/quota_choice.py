"""The cheapest choice of one option each, while what they use together stays within limits."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.cost.bill_line import CENT
from planner.workload.binary_program import MOST_NODES, ProgramRow, minimize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.workload.quota_share import ChoiceOption

# What a bound may be wrong by, as floating-point numbers are, cents.
BOUND_ERROR: Final = 1e-3
# Above it, a solver cannot tell the last digit of an objective from rounding.
MOST_RANK: Final = 100_000


class OptionChoice(Struct, frozen=True):
    """The cheapest choice, and how sure that is.

    picks      position of each one's option; None where no choice was found
    bound_usd  no choice costs less; None where none fits at all
    """

    picks: tuple[int, ...] | None
    bound_usd: Decimal | None


def cheapest_choice(
    options: Sequence[Sequence[ChoiceOption]],
    limits: Sequence[float],
    most_nodes: int = MOST_NODES,
) -> OptionChoice:
    """Return the position of each one's option so that all cost the least.

    minimize  sum of cost * chosen, in cents
    while     sum of chosen = 1, over the options of each
              sum of units * chosen <= limit, for each limit
              chosen is 0 or 1

    Of choices that cost the same, the first one has the earliest option that it has in any of
    them, then the second in those that are left, and so on. So neither a solver nor its version
    decides. The search ends after so many nodes; then the bound says how far off it may be.
    """
    if any(not own for own in options):
        return OptionChoice(None, None)
    program = _ChoiceProgram(options, limits)
    answer = minimize(program.cents, program.rows, most_nodes)
    if answer.bound == math.inf:
        return OptionChoice(None, None)
    if answer.ones is None or not answer.is_optimal:
        return OptionChoice(
            None if answer.ones is None else program.picks(answer.ones),
            program.usd(math.ceil(answer.bound - BOUND_ERROR)),
        )
    picks = program.picks(answer.ones)
    cents = program.cost_cents(picks)
    return OptionChoice(
        program.first_of_equals(picks, cents, most_nodes), program.usd(cents)
    )


class _ChoiceProgram:
    """The choice as a program: a variable for each option of each one, in their order."""

    def __init__(
        self,
        options: Sequence[Sequence[ChoiceOption]],
        limits: Sequence[float],
    ) -> None:
        self._sizes = [len(own) for own in options]
        # Of its first option, by the number of the one whose option it is.
        self._columns = [
            sum(self._sizes[:number]) for number in range(len(options))
        ]
        least_usd = [min(option.usd for option in own) for own in options]
        self._least_usd = sum(least_usd, Decimal(0))
        # Above the cheapest option of each, so that numbers are small.
        self.cents = [
            int((option.usd - least) / CENT)
            for own, least in zip(options, least_usd, strict=True)
            for option in own
        ]
        self.rows = [*self._one_each(), *_limit_rows(options, limits)]

    def usd(self, cents: int) -> Decimal:
        """Return the cost of a choice, from that above the cheapest options."""
        return self._least_usd + cents * CENT

    def picks(self, ones: frozenset[int]) -> tuple[int, ...]:
        """Return the positions of the options that are chosen."""
        return tuple(
            next(
                position
                for position in range(size)
                if column + position in ones
            )
            for column, size in zip(self._columns, self._sizes, strict=True)
        )

    def cost_cents(self, picks: Sequence[int]) -> int:
        """Return the cost of a choice above the cheapest options."""
        return sum(
            self.cents[column + position]
            for column, position in zip(self._columns, picks, strict=True)
        )

    def first_of_equals(
        self, picks: tuple[int, ...], cents: int, most_nodes: int
    ) -> tuple[int, ...]:
        """Return the first choice in the order of positions that costs no more than one.

        Positions of a few at once are the digits of a number, which is minimized; then those of
        the next few. Whoever has its first option already is passed over.
        """
        # Costs are whole cents, so half of one is no choice.
        same_cost = ProgramRow(dict(enumerate(self.cents)), most=cents + 0.5)
        rows = [*self.rows, same_cost]
        number = 0
        while number < len(picks):
            end = number + 1
            if picks[number]:
                end = self._group_end(number)
                answer = minimize(self._ranks(number, end), rows, most_nodes)
                if answer.ones is None or not answer.is_optimal:
                    return picks
                picks = self.picks(answer.ones)
            for settled in range(number, end):
                column = self._columns[settled] + picks[settled]
                rows.append(ProgramRow({column: 1.0}, least=1.0))
            number = end
        return picks

    def _group_end(self, first: int) -> int:
        """Return the number after those whose positions one number can tell."""
        ranks = 1
        for number in range(first, len(self._sizes)):
            ranks *= self._sizes[number]
            if ranks > MOST_RANK:
                return max(number, first + 1)
        return len(self._sizes)

    def _ranks(self, first: int, end: int) -> list[float]:
        """Return what each option adds to the number that tells the positions of a few."""
        ranks = [0.0] * len(self.cents)
        weight = 1
        for number in reversed(range(first, end)):
            for position in range(self._sizes[number]):
                ranks[self._columns[number] + position] = float(
                    position * weight
                )
            weight *= self._sizes[number]
        return ranks

    def _one_each(self) -> Iterator[ProgramRow]:
        for column, size in zip(self._columns, self._sizes, strict=True):
            yield ProgramRow(
                dict.fromkeys(range(column, column + size), 1.0),
                least=1.0,
                most=1.0,
            )


def _limit_rows(
    options: Sequence[Sequence[ChoiceOption]], limits: Sequence[float]
) -> Iterator[ProgramRow]:
    """Yield the rows of the limits that can be exceeded, and that no other row implies.

    A limit implies another one of which every option uses as much or less, and which is as large
    or larger.
    """
    columns = [option for own in options for option in own]
    units = [
        tuple(option.units[number] for option in columns)
        for number in range(len(limits))
    ]
    kept: list[int] = []
    for number, limit in enumerate(limits):
        most = sum(
            max(option.units[number] for option in own) for own in options
        )
        if most > limit and not any(
            limits[other] <= limit
            and all(map(float.__ge__, units[other], units[number]))
            for other in kept
        ):
            kept = [
                other
                for other in kept
                if limits[other] < limit
                or not all(map(float.__ge__, units[number], units[other]))
            ]
            kept.append(number)
    for number in kept:
        used = {column: own for column, own in enumerate(units[number]) if own}
        is_whole = all(own.is_integer() for own in used.values())
        limit = limits[number]
        # Of whole units a part of one is of no use, and rounding must not add one.
        yield ProgramRow(used, most=math.floor(limit) if is_whole else limit)
