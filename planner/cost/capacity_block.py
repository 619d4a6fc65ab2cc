"""Capacity blocks: machines reserved for a fixed time, and the times that are sold.

The price is quoted at purchase. A block is compared with a plan, unless a spec has a quote.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final

from planner.facts import table
from planner.units import SECONDS_PER_DAY

# One that is bought as a whole, for a price that is quoted.
BLOCK_PURCHASE: Final = "capacity_block"


@cache
def _block_table() -> dict[tuple[str, str], table.TableRow]:
    number_type = table.integer_between(1, 10_000)
    column_types = {
        "purchase": table.nonempty_text,
        "provider": table.nonempty_text,
        "most_nodes": number_type,
        "days": number_type,
        "step_days": number_type,
        "longest_days": number_type,
        **table.SOURCE_COLUMNS,
    }
    keyed_rows = table.rows_by_key(
        table.load_rows("planner.cost", "blocks.csv", column_types),
        "purchase",
        "provider",
    )
    return {
        (purchase, provider): block_row
        for (purchase, provider), block_row in keyed_rows.items()
    }


def max_nodes(provider: str) -> int | None:
    """Return the most nodes of a block that a provider sells, None without blocks."""
    return max(
        (
            # The largest over all kinds of blocks of the provider.
            block_row["most_nodes"]
            for (_, block_provider), block_row in _block_table().items()
            if block_provider == provider
        ),
        default=None,
    )


def block_days(
    purchase: str, provider: str, node_count: int, duration_s: float
) -> int | None:
    """Return the days of the shortest block that covers a run, None without one.

    days = ceil(duration / 24 h)
    Beyond the limit `days` it is the next multiple of `step_days`, at most `longest_days`. The
    limits are rows of data/blocks.csv.
    """
    block_row = _block_table().get((purchase, provider))
    if block_row is None or node_count > block_row["most_nodes"]:
        return None
    # Seconds to whole days; the shortest block is one day.
    whole_days = max(1, math.ceil(duration_s / SECONDS_PER_DAY))
    # Long blocks are sold in steps, such as weeks.
    if whole_days > block_row["days"]:
        whole_days = (
            math.ceil(whole_days / block_row["step_days"])
            * block_row["step_days"]
        )
    return whole_days if whole_days <= block_row["longest_days"] else None
