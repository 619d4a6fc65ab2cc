"""What clouds answer about the prices of their commitments.

`providers.<cloud>.term_price` is a `TermPriceModule`, of clouds whose price list names its terms.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal


class TermPriceModule(Protocol):
    """Every function raises the errors of `providers.live.access`."""

    def committed_prices(
        self, region: str, machine_types: Sequence[str]
    ) -> dict[str, dict[str, Decimal]]:
        """Return USD an hour of machine types, by way to buy: reserved_1y, reserved_1y_partial.

        What is paid at the start is spread over the term. A term without a price is left out.
        """


def term_prices_of(cloud: str) -> TermPriceModule:
    """Return the module that asks a cloud what its commitments cost."""
    module: TermPriceModule = import_module(f"providers.{cloud}.term_price")
    return module
