"""Formats of the KV cache that an engine can be asked for, beside the one that it takes itself."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from msgspec import Struct

from planner.facts import table
from planner.facts.accelerator import UNQUANTIZED
from planner.facts.serving_engine import has_gap
from planner.perf.common.memory import KV_ELEMENT_BYTES, cache_precision

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm

Attention: TypeAlias = Literal["full", "windows", "latent", "sparse", "mixed"]


class CacheFormat(Struct, frozen=True, kw_only=True):
    """A format that an engine has kernels for.

    attention        kind of attention of the model
    kv_precision     number format of the KV cache
    from_capability  first compute capability with these kernels
    to_capability    last one
    """

    engine: str
    attention: Attention
    kv_precision: str
    from_capability: float
    to_capability: float
    source: str
    as_of: str

    def runs_on(self, accelerator: Accelerator) -> bool:
        """Whether the kernels run on an accelerator; those of other vendors have none."""
        return accelerator.has_capability(
            self.from_capability, self.to_capability
        )


@cache
def cache_formats() -> tuple[CacheFormat, ...]:
    """Return all rows. Raises CatalogError for an invalid one."""
    columns: table.Columns = {
        "engine": table.nonempty_text,
        "attention": table.one_of(*get_args(Attention)),
        "kv_precision": table.one_of(*KV_ELEMENT_BYTES),
        "from_capability": table.real_between(1, 100),
        "to_capability": table.real_between(1, 100),
        **table.SOURCE_COLUMNS,
    }
    rows = table.load_rows("planner.perf", "cache_formats.csv", columns)
    return tuple(CacheFormat(**row.cells) for row in rows)


def attention_kind(llm: Llm) -> Attention:
    """Return how a model attends, as far as kernels differ by it.

    mixed: some layers keep a state of constant size in place of keys and values.
    """
    if llm.sparse:
        return "sparse"
    if llm.state_layers:
        return "mixed"
    if llm.kv_lora_rank:
        return "latent"
    return "windows" if llm.window_layers else "full"


def default_cache(engine: str, precision: str, kv_precision: str) -> str:
    """Return the format of the cache beside weights in a precision, as the engine makes it.

    `kv_precision` may be auto. An engine that cannot be asked for 16 bits beside quantized weights
    is asked for 8.
    """
    if has_gap(engine, "wide-cache") and precision not in UNQUANTIZED:
        return "fp8"
    return cache_precision(precision, kv_precision)


def has_cache_format(
    engine: str, llm: Llm, accelerator: Accelerator, kv_precision: str
) -> bool:
    """Whether an engine has kernels for a cache in a format, as far as rows say so."""
    attention = attention_kind(llm)
    return any(
        row.runs_on(accelerator)
        for row in cache_formats()
        if (row.engine, row.attention, row.kv_precision)
        == (engine, attention, kv_precision)
    )
