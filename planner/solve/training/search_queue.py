"""Entries of the queue of a search over clusters, and the state of each offer in it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.solve.cause import because
from planner.solve.training.ranking import RejectedOffer

if TYPE_CHECKING:
    from planner.market.offer import Offer
    from planner.solve.cause import Cause
    from planner.solve.training.ranking import FeasibleCluster


class OfferState(Struct):
    """State of an offer in the search.

    open_candidates  entries of the offer in the frontier, and sizes that were cut off unseen
    duration_s       shortest duration among its late sizes, or a lower bound of it, seconds
    nodes            machine count of that duration
    cut_by           why larger sizes cannot be had, where that cut sizes off; else nothing
    machine_limit    most machines that can
    incumbent        best feasible cluster so far
    broken_budget    key of a budget that a size violates
    time_limit_key   key of the limit that late sizes violate
    unmixed          why sizes of a mix cannot be bought in two ways; else nothing
    """

    offer: Offer
    time_limit_key: str
    open_candidates: int = 1
    duration_s: float = math.inf
    nodes: int = 0
    cut_by: Cause | None = None
    machine_limit: int = 0
    incumbent: FeasibleCluster | None = None
    broken_budget: str = ""
    unmixed: Cause | None = None

    def record_late(self, duration_s: float, nodes: int) -> None:
        """Record a late machine count with its duration, or a bound of it."""
        self.duration_s, self.nodes = min(
            (self.duration_s, self.nodes), (duration_s, nodes)
        )

    def rejection(self) -> RejectedOffer:
        """Return the offer as rejected, with the constraint that it violates."""
        # More machines might do: how late fewer of them end says nothing.
        if self.cut_by is not None and not self.broken_budget:
            return RejectedOffer(
                self.offer, self.machine_limit, math.inf, self.cut_by
            )
        # A size that is late is nearer to being bought than one that cannot be.
        if self.unmixed is not None and self.duration_s == math.inf:
            return RejectedOffer(self.offer, 0, math.inf, self.unmixed)
        rejected_by = (
            because("memory-layout", "memory")
            if self.duration_s == math.inf
            else because("limit", self.time_limit_key)
        )
        return RejectedOffer(
            self.offer,
            self.nodes,
            self.duration_s,
            # A size in time that only breaks a budget is the better reason.
            because("limit", self.broken_budget)
            if self.broken_budget
            else rejected_by,
        )


class Candidate(Struct, frozen=True):
    """An entry of the frontier: an offer, with every machine count or with one.

    bound       lower bound of the objective, USD or seconds
    nodes       machine count; 0 stands for every count
    refinement  bounds of this machine count that are computed
    """

    bound: float
    offer_state: OfferState
    nodes: int = 0
    refinement: int = 0
