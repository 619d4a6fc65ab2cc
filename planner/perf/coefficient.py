"""The coefficients of the physics: what hardware and engines reach of what they could.

A coefficient is its base value times the factor of every key that applies, and its yearly factor
to the power of the years since mid-2025. Values are fitted, shrunk to their priors; a spread of 0
holds a coefficient at its physical value.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final

from planner.facts import table

REFERENCE: Final = 2025.5
YEARS: Final = (2023.5, 2026.5)  # the span of the measurements; trends are not carried beyond it
YEARLY: Final = "year"


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """The coefficients that apply to one replica; units and meaning stand in the table."""

    answer_share: float
    answer_variance: float
    expert_bytes: float
    expert_flops: float
    expert_imbalance: float
    expert_padding: float
    expert_width: float
    first_token: float
    flops: float
    gather_bandwidth: float
    gather_latency: float
    hop_latency: float
    interference: float
    kv_bandwidth: float
    latent_flops: float
    latent_overhead: float
    layer_overhead: float
    link_bandwidth: float
    link_latency: float
    link_latency_growth: float
    link_phase: float
    memory_share: float
    moe_overhead: float
    network_bandwidth: float
    overhead: float
    overlap: float
    prompt_attention: float
    prompt_base: float
    prompt_full: float
    prompt_queue: float
    prompt_share: float
    reserve_gib: float
    run_time: float
    sampling: float
    sequence_overhead: float
    server_time: float
    step_overhead: float
    step_wait: float
    stream: float
    unpack_experts: float
    unpack_flops: float
    wave: float
    weight_bandwidth: float


@dataclass(frozen=True, slots=True)
class Row:
    """One factor of a coefficient, with what it was before the fit and how far it may move."""

    coefficient: str
    key: str
    value: float
    prior: float
    spread: float


@cache
def rows() -> tuple[Row, ...]:
    """Return the table; raises CatalogError on a bad row."""
    names = {field.name for field in fields(Coefficients)}
    columns: dict[str, Any] = {
        "coefficient": table.one_of(*sorted(names)), "key": table.free,
        "value": table.real(1e-9, 1e6), "prior": table.real(1e-9, 1e6),
        "spread": table.real(0, 1), "unit": table.text, "meaning": table.text, **table.SOURCED,
    }  # fmt: skip
    text = files("planner.perf").joinpath("data", "coefficients.csv").read_text(encoding="utf-8")
    found = table.keyed(table.rows(text, "coefficients.csv", columns), "coefficient", "key")
    return tuple(
        Row(name, key, row["value"], row["prior"], row["spread"])
        for (name, key), row in found.items()
    )


def years(year: float) -> float:
    """Years since the reference date, held to the span of the measurements."""
    return min(max(year, YEARS[0]), YEARS[1]) - REFERENCE


@lru_cache(maxsize=4096)
def coefficients(keys: frozenset[str], year: float) -> Coefficients:
    """Return the coefficients for a set of keys and the year of an engine."""
    found = {field.name: 1.0 for field in fields(Coefficients)}
    for row in rows():
        if row.key == YEARLY:
            found[row.coefficient] *= row.value ** years(year)
        elif not row.key or row.key in keys:
            found[row.coefficient] *= row.value
    return Coefficients(**found)
