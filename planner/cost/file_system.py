"""Parallel file systems: sizes and tiers that are sold, throughput and price.

Throughput comes with capacity: each TiB of a tier adds its MB/s.
"""

from __future__ import annotations

import math
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.cost.bill_line import priced_line
from planner.facts import table
from planner.units import BYTES_PER_GIB, BYTES_PER_MB, GIB_PER_TIB

if TYPE_CHECKING:
    from planner.cost.bill_line import BillLine
    from planner.cost.service_price import PriceBook


class FileSystem(Struct, frozen=True, kw_only=True):
    """A parallel file system of one tier.

    `capacity_gib`  size, GiB
    `mb_s_per_tib`  throughput of the tier, MB/s per TiB
    `role`  role of its price in the price book
    """

    provider: str
    capacity_gib: int
    mb_s_per_tib: int
    role: str

    @property
    def bytes_per_s(self) -> float:
        """Throughput of all clients together, bytes/s: TiB * MB/s per TiB * 10^6."""
        return (
            self.capacity_gib / GIB_PER_TIB * self.mb_s_per_tib * BYTES_PER_MB
        )

    def priced_line(self, price_book: PriceBook, months: Decimal) -> BillLine:
        """Return the bill line for a number of months."""
        tier_prices = price_book.find(self.provider, self.role)
        price_unit = tier_prices[0].unit if tier_prices else "GiB-month"
        line_name = f"parallel file system, {self.mb_s_per_tib} MB/s/TiB"
        return priced_line(
            line_name,
            "storage",
            price_unit,
            # Quantity in GiB-months.
            Decimal(self.capacity_gib) * months,
            (*tier_prices, None)[0],
        )


def file_systems(
    provider: str, bytes_per_s: float, stored_bytes: float
) -> list[FileSystem]:
    """Return the smallest file system of each tier with the throughput and the size.

    `bytes_per_s`  throughput needed, bytes/s
    `stored_bytes`  size needed, bytes
    """
    return [
        FileSystem(
            provider=provider,
            capacity_gib=_sold_gib(tier_row, bytes_per_s, stored_bytes),
            mb_s_per_tib=tier_row["mb_s_tib"],
            role=tier_row["price"],
        )
        # One candidate for each tier: more MB/s per TiB or more TiB.
        for tier_row in _tier_table()
        if tier_row["provider"] == provider
    ]


def _sold_gib(
    tier_row: table.TableRow, bytes_per_s: float, stored_bytes: float
) -> int:
    """Return the GiB to buy: the smallest size, or a multiple of the step.

    need = max(stored GiB, MB/s needed / MB/s per TiB * GIB_PER_TIB)
    """
    # Capacity for the data, and capacity that brings the throughput.
    required_gib = max(
        stored_bytes / BYTES_PER_GIB,
        bytes_per_s / BYTES_PER_MB / tier_row["mb_s_tib"] * GIB_PER_TIB,
    )
    # The smallest size need not be a multiple of the step.
    smallest_gib: int = tier_row["least_gib"]
    return (
        smallest_gib
        if required_gib <= smallest_gib
        else math.ceil(required_gib / tier_row["step_gib"])
        * tier_row["step_gib"]
    )


@cache
def _tier_table() -> tuple[table.TableRow, ...]:
    column_types = {
        "provider": table.nonempty_text,
        "mb_s_tib": table.integer_between(1, 10_000),
        "least_gib": table.integer_between(1, 10**6),
        "step_gib": table.integer_between(1, 10**6),
        "price": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return tuple(
        table.load_rows("planner.cost", "file_systems.csv", column_types)
    )
