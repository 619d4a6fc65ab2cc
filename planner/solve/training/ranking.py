"""What a search over clusters returns: feasible clusters in order, and rejected offers."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.units import HOURS_PER_MONTH, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from planner.cost.bill import Bill
    from planner.market.offer import Offer
    from planner.solve.cause import Cause
    from planner.solve.training.cluster import Cluster


class FeasibleCluster(Struct, frozen=True):
    """A cluster that meets the time limit, with the expected bill of its run."""

    cluster: Cluster
    bill: Bill

    @property
    def rank(
        self,
    ) -> tuple[Decimal, tuple[int, int], int, tuple[str, str, str, str]]:
        """Order of clusters: USD of the run, place in the spec, accelerators, key of the offer."""
        accelerators = self.cluster.timed_layout.job.layout.accelerators
        offer = self.cluster.offer
        return (self.bill.total, offer.place_rank, accelerators, offer.key)

    @property
    def monthly_usd(self) -> Decimal:
        """Mean cost in a month, USD; the total cost of a run shorter than a month."""
        # Months of 730 hours, the billing convention of the clouds.
        duration_months = (
            Decimal(self.cluster.expected_s / SECONDS_PER_HOUR)
            / HOURS_PER_MONTH
        )
        return self.bill.total / max(Decimal(1), duration_months)


class RejectedOffer(Struct, frozen=True):
    """An offer without a feasible cluster, and the constraint that it violates.

    nodes       machine count of the shortest duration
    duration_s  shortest duration or a lower bound of it, seconds; infinite without a layout, and
                where capacity keeps the machines away that it would take
    reason      violated constraint
    """

    offer: Offer
    nodes: int
    duration_s: float
    reason: Cause


class ClusterRanking(Struct, frozen=True):
    """Feasible clusters in the order of the search, and rejected offers."""

    feasible: tuple[FeasibleCluster, ...]
    rejected: tuple[RejectedOffer, ...]
