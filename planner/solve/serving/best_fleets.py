"""The cheapest fleets that a search has found so far, and what a better one may cost."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.market.offer import Offer
    from planner.perf.common.layout import ReplicaLayout
    from planner.solve.serving.candidate import ServingCandidate

# Cloud, machine type, purchase option.
PurchaseKey: TypeAlias = "tuple[str, str, str]"
TIE_USD: Final = Decimal("0.005")
CENT_USD: Final = Decimal("0.01")


def purchase_key(offer: Offer) -> PurchaseKey:
    """Return what an offer rents, wherever that is."""
    return offer.provider, offer.instance.instance_type, offer.purchase


class BestFleets:
    """The cheapest fleet of each machine type and purchase, within a ceiling.

    result_count  fleets that are asked for
    ceiling_usd   USD in the period of the bill that none of them exceeds
    """

    def __init__(
        self,
        result_count: int,
        ceiling_usd: float,
        known: Iterable[ServingCandidate] = (),
    ) -> None:
        self._result_count = result_count
        self._ceiling_usd = ceiling_usd
        self.by_purchase: dict[PurchaseKey, ServingCandidate] = {
            purchase_key(candidate.offer): candidate for candidate in known
        }
        self.cutoff_usd = self._cutoff_usd()

    def keep(self, candidate: ServingCandidate) -> None:
        """Store a fleet within the ceiling that ranks first for its machine type and purchase."""
        if float(candidate.bill.total) > self._ceiling_usd:
            return
        key = purchase_key(candidate.offer)
        known = self.by_purchase.get(key)
        if known is None or candidate.rank < known.rank:
            self.by_purchase[key] = candidate
            self.cutoff_usd = self._cutoff_usd()

    def limit_usd(self, offer: Offer, layout: ReplicaLayout) -> float:
        """Return the cost above which a fleet of a layout is of no use.

        Beside a known fleet on the same machine type the first in the order of ties stays, at
        equal cost.
        """
        known = self.by_purchase.get(purchase_key(offer))
        if known is None:
            return self.cutoff_usd
        comes_first = layout.tie_order < known.sizing.layout.tie_order
        return min(
            self.cutoff_usd,
            float(
                known.bill.total if comes_first else known.bill.total - CENT_USD
            ),
        )

    def ranked(self) -> list[ServingCandidate]:
        """Return as many fleets as are asked for, the cheapest first."""
        return sorted(
            self.by_purchase.values(), key=lambda candidate: candidate.rank
        )[: self._result_count]

    def _cutoff_usd(self) -> float:
        """Return the cost of the last fleet that is asked for + 0.005 USD, or the ceiling."""
        costs = sorted(
            candidate.bill.total for candidate in self.by_purchase.values()
        )[self._result_count - 1 : self._result_count]
        return (
            # A bill is rounded to the cent: it may lie half a cent below its bound.
            min(self._ceiling_usd, float(costs[0] + TIE_USD))
            if costs
            else self._ceiling_usd
        )
