"""Commitments that a plan counts on, which people buy and apply does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner import figures
from planner.facts.commitment import commitment_forms
from planner.market.term import TERM_OF
from planner.units import HOURS_PER_MONTH, MONTHS_PER_YEAR, SECONDS_PER_DAY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal

    from planner.plan.types import Plan

# The clouds count the years of a commitment so.
DAYS_PER_YEAR: Final = 365


class Commitment(Struct, frozen=True, kw_only=True):
    """What somebody has to buy before an apply.

    term      for how long, and when it is paid: "3 years"
    owed_usd  what the whole term costs, however early a workload ends
    form      what it is called: "savings plan"; empty where that is not known
    command   shows what is sold, or buys it; empty likewise
    """

    nodes: int
    machine: str
    place: str
    term: str
    owed_usd: Decimal
    form: str
    command: str

    @property
    def text(self) -> str:
        """The commitment in words."""
        return f"{self.nodes} x {self.machine} in {self.place} for {self.term}"

    @property
    def purchase_text(self) -> str:
        """The commitment in words, with its form and what is owed."""
        form = f" ({self.form})" if self.form else ""
        return f"{self.text}{form}: {figures.dollars(self.owed_usd)} are owed"


def commitments_of(plan: Plan) -> Iterator[Commitment]:
    """Yield the commitments whose prices a plan has."""
    for pool in plan.solution.pools:
        for purchase in pool.purchases:
            term = TERM_OF.get(purchase.purchase)
            if term is None:
                continue
            facts = commitment_forms().get((pool.provider, purchase.form or ""))
            years = term.months // MONTHS_PER_YEAR
            yield Commitment(
                nodes=purchase.nodes,
                machine=pool.instance_type,
                place=f"{pool.provider} {pool.region}",
                term=term.name,
                owed_usd=purchase.nodes
                * purchase.usd_per_hour
                * HOURS_PER_MONTH
                * term.months,
                form=facts.name if facts else "",
                command=facts.command.format(
                    region=pool.region,
                    machine=pool.instance_type,
                    stack=plan.stack.name,
                    months=years * MONTHS_PER_YEAR,
                    seconds=years * DAYS_PER_YEAR * SECONDS_PER_DAY,
                    payment=facts.word_of(term.payment),
                )
                if facts
                else "",
            )
