"""A fleet that a search has found: sized, and with its bill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from planner.solve.solution import FleetSummary

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.cost.bill import Bill
    from planner.market.offer import Offer
    from planner.solve.serving.sizing import FleetSizing


class ServingCandidate(Struct, frozen=True, kw_only=True):
    """A sized fleet on an offer, with its monthly bill.

    `bought` is the offer as this fleet takes it: how many machines are committed to is decided.
    """

    offer: Offer
    bought: Offer
    sizing: FleetSizing
    bill: Bill

    @property
    def summary(self) -> FleetSummary:
        """Cloud, region, machine type and nodes."""
        return FleetSummary(
            self.offer.provider,
            self.offer.region,
            self.offer.instance.instance_type,
            self.sizing.nodes,
        )

    @property
    def rank(
        self,
    ) -> tuple[
        Decimal,
        tuple[int, int],
        int,
        int,
        int,
        int,
        int,
        tuple[str, str, str, str],
    ]:
        """Sort key in the documented order of ties.

        Cost, place in the lists of the spec, nodes, a cache of 16 bit, accelerators of a replica,
        pipeline stages, whole experts, names of the offer.
        """
        return (
            self.bill.total,
            self.offer.place_rank,
            self.sizing.nodes,
            *self.sizing.layout.tie_order,
            self.bought.key,
        )
