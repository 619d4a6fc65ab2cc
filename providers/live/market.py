"""What clouds answer about what they sell: prices, reservations, and how likely machines are.

`providers.<cloud>.market` is a `MarketModule`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from planner.market.live import BlockFact, ReclaimFact, ReservationFact


class MarketModule(Protocol):
    """Every function raises the errors of `providers.live.access`.

    What a cloud does not answer is left out, and never zero. A price of zero, or one that is no
    number, is left out too.

    PUBLIC_QUESTIONS  fields of PlaceFacts that are answered without a login
    """

    PUBLIC_QUESTIONS: tuple[str, ...]

    def on_demand_prices(
        self, region: str, machine_types: Sequence[str]
    ) -> dict[str, Decimal]:
        """Return USD an hour of machine types on demand, Linux, without any agreement."""

    def spot_prices(
        self, region: str, machine_types: Sequence[str]
    ) -> dict[str, dict[str, Decimal]]:
        """Return USD an hour of machine types on spot, by zone.

        NO_ZONE has the price where a cloud has one for the whole region.
        """

    def reservations(self, region: str) -> list[ReservationFact]:
        """Return what the account has reserved in a region, and pays for."""

    def spot_scores(
        self, region: str, machine_types: Sequence[str], machines: int
    ) -> dict[str, dict[str, float]]:
        """Return how likely so many machines on spot are to be had, from 0 to 1, by type and zone.

        NO_ZONE has the score where a cloud has one for the whole region.
        """

    def own_reclaims(
        self, region: str, machine_types: Sequence[str]
    ) -> dict[str, ReclaimFact]:
        """Return how often the account's own machines on spot were taken back, by type.

        A type of which none ran is left out. Raises LookupError where the account does not count
        them; a cloud that counts them for nobody tells nothing.
        """

    def block_offers(
        self, region: str, machine_type: str, machines: int, hours: int
    ) -> list[BlockFact]:
        """Return the capacity blocks that are offered for so many machines, the cheapest first."""
