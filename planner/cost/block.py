"""Machines that are reserved for a time: which times are sold.

Their price is quoted when they are bought, so it is never part of a plan, only compared with it.
"""

from __future__ import annotations

import math
from functools import cache
from importlib.resources import files
from typing import Final

from planner.facts import table

HOURS: Final = 24


@cache
def _blocks() -> dict[tuple[str, str], table.Row]:
    number = table.whole(1, 10_000)
    columns = {
        "purchase": table.text,
        "provider": table.text,
        "most_nodes": number,
        "days": number,
        "step_days": number,
        "longest_days": number,
        **table.SOURCED,
    }
    text = (
        files("planner.cost")
        .joinpath("data", "blocks.csv")
        .read_text(encoding="utf-8")
    )
    rows = table.keyed(
        table.rows(text, "blocks.csv", columns), "purchase", "provider"
    )
    return {
        (purchase, provider): row for (purchase, provider), row in rows.items()
    }


def most(provider: str) -> int | None:
    """Machines that a provider sells in blocks at most, or nothing when it sells none."""
    return max(
        (r["most_nodes"] for (_, p), r in _blocks().items() if p == provider),
        default=None,
    )


def days(
    purchase: str, provider: str, nodes: int, seconds: float
) -> int | None:
    """Days of the shortest block that holds a run, or nothing when none is sold.

    Whole days up to a limit, then whole steps.
    """
    row = _blocks().get((purchase, provider))
    if row is None or nodes > row["most_nodes"]:
        return None
    whole = max(1, math.ceil(seconds / 3600 / HOURS))
    if whole > row["days"]:
        whole = math.ceil(whole / row["step_days"]) * row["step_days"]
    return whole if whole <= row["longest_days"] else None
