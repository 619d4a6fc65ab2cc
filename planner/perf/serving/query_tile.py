"""Heads that the kernels of sparse latent attention compute: queries are padded to whole tiles."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.facts import table

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm
    from planner.perf.common.layout import ReplicaLayout


class _QueryTile(Struct, frozen=True, kw_only=True):
    """Query heads of a tile on accelerators from one compute capability to another."""

    from_capability: float
    to_capability: float
    query_heads: int


@cache
def _query_tiles() -> tuple[_QueryTile, ...]:
    """Return all rows. Raises CatalogError for an invalid one."""
    columns: table.Columns = {
        "from_capability": table.real_between(1, 100),
        "to_capability": table.real_between(1, 100),
        "query_heads": table.integer_between(1, 1024),
        **table.SOURCE_COLUMNS,
    }
    return tuple(
        _QueryTile(
            from_capability=row["from_capability"],
            to_capability=row["to_capability"],
            query_heads=row["query_heads"],
        )
        for row in table.load_rows("planner.perf", "query_tiles.csv", columns)
    )


def computed_heads(
    llm: Llm, layout: ReplicaLayout, accelerator: Accelerator
) -> float:
    """Return the query heads that one accelerator computes in each layer.

    heads / attention_tp, and with sparse latent attention the next multiple of a tile
    """
    heads = llm.heads / layout.attention_tp
    if not llm.chooses_latents:
        return heads
    tile = next(
        (
            row.query_heads
            for row in _query_tiles()
            if accelerator.has_capability(
                row.from_capability, row.to_capability
            )
        ),
        1,
    )
    return math.ceil(heads / tile) * tile
