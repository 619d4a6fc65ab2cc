"""Commitments that a plan counts on, which people buy and apply does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.facts.commitment import commitments
from planner.units import MONTHS_PER_YEAR, SECONDS_PER_DAY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.plan.types import Plan

# The clouds count the years of a commitment so.
DAYS_PER_YEAR: Final = 365


class Commitment(Struct, frozen=True, kw_only=True):
    """What somebody has to buy before an apply.

    years    of its term
    name     what the cloud calls it; empty where that is not known
    command  shows what is sold, or buys it
    """

    nodes: int
    machine: str
    place: str
    years: int
    name: str
    command: str

    @property
    def text(self) -> str:
        """The commitment in words."""
        years_text = "a year" if self.years == 1 else f"{self.years} years"
        return f"{self.nodes} x {self.machine} in {self.place} for {years_text}"


def commitments_of(plan: Plan) -> Iterator[Commitment]:
    """Yield the commitments whose prices a plan has."""
    for pool in plan.solution.pools:
        facts = commitments().get(pool.provider)
        for purchase in pool.purchases:
            if purchase.term is None:
                continue
            years = int(purchase.term.removesuffix("y"))
            yield Commitment(
                nodes=purchase.nodes,
                machine=pool.instance_type,
                place=f"{pool.provider} {pool.region}",
                years=years,
                name=facts.name if facts else "",
                command=facts.command.format(
                    region=pool.region,
                    machine=pool.instance_type,
                    stack=plan.stack.name,
                    months=years * MONTHS_PER_YEAR,
                    seconds=years * DAYS_PER_YEAR * SECONDS_PER_DAY,
                )
                if facts
                else "",
            )
