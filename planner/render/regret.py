"""What a commitment loses in a future that was not planned, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner import figures
from planner.market.regret import comes_after
from planner.market.term import TERM_OF

if TYPE_CHECKING:
    from decimal import Decimal


def regret_text(usd: Decimal, scenario: str, purchase: str) -> str:
    """Return what is lost, USD, or that nothing is; also where the term is over before.

    scenario  name of the future
    purchase  the commitment, as prices name it
    """
    if usd:
        return figures.dollars(usd)
    if comes_after(scenario, TERM_OF[purchase].months):
        return "nothing: its term ends first"
    return "nothing"
