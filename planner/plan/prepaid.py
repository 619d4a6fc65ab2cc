"""Machines of a plan that a person pays for beside its stack: commitments, and what is owned."""

from __future__ import annotations

from decimal import Decimal  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.market.offer import OWNED_PURCHASE
from planner.market.term import TERM_PURCHASES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.plan.pool import Pool, Purchase


class PrepaidMachines(Struct, frozen=True, kw_only=True):
    """Machines of a type in a region that are paid for whether they run or not.

    nodes     how many the plan counts on
    usd_hour  what they cost together, USD an hour; what is owned costs nothing further
    """

    provider: str
    region: str
    instance_type: str
    purchase: str
    nodes: int
    usd_hour: Decimal

    @property
    def text(self) -> str:
        """How many of which type are bought in which way."""
        return f"{self.nodes} x {self.instance_type} {self.purchase}"


def is_prepaid(purchase: Purchase) -> bool:
    """Whether a person buys these machines, and apply does not."""
    return purchase.nodes > 0 and purchase.purchase in (
        *TERM_PURCHASES,
        OWNED_PURCHASE,
    )


def prepaid_machines(pools: Iterable[Pool]) -> tuple[PrepaidMachines, ...]:
    """Return what a plan counts on that a person has bought, in the order of its pools."""
    return tuple(
        PrepaidMachines(
            provider=pool.provider,
            region=pool.region,
            instance_type=pool.instance_type,
            purchase=part.purchase,
            nodes=part.nodes,
            usd_hour=part.nodes * part.usd_per_hour,
        )
        for pool in pools
        for part in pool.purchases
        if is_prepaid(part)
    )
