"""How much a search may look at, so that it ends also where fleets are large.

Steps are counted, and no clock is asked: equal inputs give equal plans on every machine.
"""

from __future__ import annotations

import math
from decimal import ROUND_UP, Decimal
from typing import Final

# A step takes some 50 microseconds. These are of the search for two machine types in a plan.
PLAN_STEPS: Final = 500_000
# And of one of the searches that tell what a wish costs, of which there are a dozen.
WISH_STEPS: Final = 20_000
# Two kinds are looked at, a bill is made out, and a replica is simulated.
LOOK_STEPS: Final = 3
BILL_STEPS: Final = 20
SIMULATION_STEPS: Final = 300
THOUSANDTH: Final = Decimal("0.001")


class Effort:
    """The steps that a search has left, and what it did not look at when there were none."""

    def __init__(self, most_steps: float = math.inf) -> None:
        self._steps_left = most_steps
        self.unseen_usd = math.inf

    @property
    def is_spent(self) -> bool:
        """Whether no step is left."""
        return self._steps_left <= 0

    def spend(self, steps: float) -> None:
        """Count some steps that were taken."""
        self._steps_left -= steps

    def leave(self, bound_usd: float) -> None:
        """Leave something unseen that costs so much at least, USD in the period."""
        self.unseen_usd = min(self.unseen_usd, bound_usd)

    def gap(self, usd: Decimal) -> Decimal:
        """Return which share of a cost something unseen may cost less; up to a thousandth.

        max(0, 1 - least cost of what was not looked at / cost)
        """
        if self.unseen_usd >= usd:
            return Decimal(0)
        share = 1 - Decimal(self.unseen_usd) / usd
        return share.quantize(THOUSANDTH, ROUND_UP)
