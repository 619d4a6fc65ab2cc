"""Serving engines: what they are called, how old they are, what they keep in which precision."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from planner.facts import table

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.common.layout import Node, ReplicaLayout

EARLY_YEAR: Final = (
    2024.5  # engines of before this date had other attention kernels
)
VARIED_LENGTHS: Final = ("spread", "varied")
QUANTIZED_FORMATS: Final = ("fp8", "fp4", "mxfp4")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingEngine:
    """A serving engine: its kind, and the year (with fraction) from which its version is.

    `max_sequences` is the most that it runs at once on one accelerator group; `latency_tuned` marks a server
    that is tuned for one latency limit and measured by a load generator.
    """

    kind: str
    software_year: float
    max_sequences: int = 1024
    latency_tuned: bool = False


@cache
def engine_rows() -> dict[str, dict[str, Any]]:
    """Return the kinds of engines with their default limits and default KV precision."""
    columns: dict[str, Any] = {
        "engine": table.nonempty_text,
        "kind": table.nonempty_text,
        "sequences": table.integer_between(1, 100_000),
        "kv_quantized": table.yes_or_no,
        "year": table.real_between(2022, 2100),
        **table.SOURCE_COLUMNS,
    }
    csv_text = (
        files("planner.perf")
        .joinpath("data", "engines.csv")
        .read_text(encoding="utf-8")
    )
    return {
        engine_row["engine"]: engine_row.cells
        for engine_row in table.read_rows(csv_text, "engines.csv", columns)
    }


def find_engine(
    engine_name: str, requested_year: float | None = None
) -> ServingEngine:
    """Return an engine by name, of its newest known version unless a year is given."""
    engine_row = engine_rows()[engine_name]
    software_year = (
        engine_row["year"] if requested_year is None else requested_year
    )
    return ServingEngine(
        kind=engine_row["kind"],
        software_year=software_year,
        max_sequences=engine_row["sequences"],
    )


def kv_precision(engine_name: str, llm: Llm, precision: str) -> str:
    """Return what an engine keeps in its KV cache when nobody says.

    Engines that quantize by themselves do so for quantized weights; latent attention is kept in
    16 bit by those that only read a checkpoint's own scales.
    """
    quantizes_kv = (
        engine_rows()[engine_name]["kv_quantized"]
        and precision in QUANTIZED_FORMATS
    )
    return (
        "fp8"
        if quantizes_kv and not (llm.kv_lora_rank and engine_name == "sglang")
        else "bf16"
    )


def coefficient_keys(
    layout: ReplicaLayout,
    node: Node,
    serving_engine: ServingEngine,
    length_keys: tuple[str, ...] = VARIED_LENGTHS,
) -> frozenset[str]:
    """Name what selects coefficients: architecture, precision, engine, links, lengths.

    `length_keys` are "spread" when they differ a little, and "varied" too when they do so widely.
    """
    accelerator = node.accelerator
    compute_format = accelerator.compute_precision(layout.precision)
    key_names = {
        accelerator.architecture,
        accelerator.memory_type,
        accelerator.vendor,
        compute_format,
        serving_engine.kind,
    }
    if compute_format == "bf16" and layout.precision not in ("bf16", "auto"):
        key_names.add("unpacked")
    if serving_engine.software_year < EARLY_YEAR:
        key_names.add("early")
    if serving_engine.latency_tuned:
        key_names.add("tuned")
    if layout.ep > 1:
        key_names.add("ep")
    if not node.has_link(layout.tp):
        key_names.add("pcie")
    return frozenset(key_names.union(length_keys))
