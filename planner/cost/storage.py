"""Parallel file systems: which sizes and speeds are sold, and what one costs.

Speed is bought with capacity: every TiB of a tier brings so many MB/s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from planner.cost.line import priced
from planner.facts import table

if TYPE_CHECKING:
    from planner.cost.line import Line
    from planner.cost.price import PriceBook

GIB: Final = 2.0**30
MB: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """A parallel file system: `gib` of a tier of `mb_s_tib`; `role` names its price."""

    provider: str
    gib: int
    mb_s_tib: int
    role: str

    @property
    def rate(self) -> float:
        """Bytes/s of all clients together."""
        return self.gib / 1024 * self.mb_s_tib * MB

    def line(self, book: PriceBook, months: Decimal) -> Line:
        """What it costs for so many months."""
        found = book.find(self.provider, self.role)
        unit = found[0].unit if found else "GiB-month"
        name = f"parallel file system, {self.mb_s_tib} MB/s/TiB"
        return priced(
            name, "storage", unit, Decimal(self.gib) * months, (*found, None)[0]
        )


def sized(provider: str, rate: float, held: float) -> list[FileSystem]:
    """The smallest file system of each tier that gives `rate` bytes/s and holds `held` bytes."""
    return [
        FileSystem(
            provider=provider,
            gib=_steps(row, rate, held),
            mb_s_tib=row["mb_s_tib"],
            role=row["price"],
        )
        for row in _tiers()
        if row["provider"] == provider
    ]


def _steps(row: table.Row, rate: float, held: float) -> int:
    """GiB that are sold: the least, or a multiple of the step."""
    wanted = max(held / GIB, rate / MB / row["mb_s_tib"] * 1024)
    least: int = row["least_gib"]
    return (
        least
        if wanted <= least
        else math.ceil(wanted / row["step_gib"]) * row["step_gib"]
    )


@cache
def _tiers() -> tuple[table.Row, ...]:
    columns = {
        "provider": table.text,
        "mb_s_tib": table.whole(1, 10_000),
        "least_gib": table.whole(1, 10**6),
        "step_gib": table.whole(1, 10**6),
        "price": table.text,
        **table.SOURCED,
    }
    text = (
        files("planner.cost")
        .joinpath("data", "file_systems.csv")
        .read_text(encoding="utf-8")
    )
    return tuple(table.rows(text, "file_systems.csv", columns))
