"""How machines of an answer are bought, and what commitments to them would save."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.market.regret import Regret


class CommitmentSaving(Struct, frozen=True, kw_only=True):
    """A commitment to some machines of a fleet, against all of them on demand.

    cloud, form    who sells it, and of which form it is; no form where two pools have two
    saved_usd      a month, over the whole bill
    committed_usd  what its whole term costs
    pays_after_months  until the term costs no more than on demand would have
    pays_above_hours   of a machine in a month, above which it costs less committed
    regrets        what it loses where the future is another one
    """

    cloud: str
    form: str
    purchase: str
    nodes: int
    saved_usd: Decimal
    committed_usd: Decimal
    pays_after_months: float
    pays_above_hours: float
    regrets: tuple[Regret, ...]


class PoolPurchase(Struct, frozen=True):
    """Nodes of a pool that are bought in one way. `usd_hour` is the price of one of them.

    `reservation` is the id of what they are taken from, empty where nothing is reserved. `form`
    is of which form their commitment is, empty where there is none.
    """

    purchase: str
    nodes: int
    usd_hour: Decimal
    reservation: str = ""
    form: str = ""
