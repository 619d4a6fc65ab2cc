"""Serving engines: what they are called, how old they are, what they keep in which precision."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from planner.facts import table

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.layout import Layout, Node

EARLY: Final = 2024.5  # engines of before this date had other attention kernels
VARIED: Final = ("spread", "varied")
QUANTIZED: Final = ("fp8", "fp4", "mxfp4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A serving engine: its kind, and the year (with fraction) from which its version is.

    `sequences` is the most that it runs at once on one accelerator group; `tuned` marks a server
    that is tuned for one latency limit and measured by a load generator.
    """

    kind: str
    year: float
    sequences: int = 1024
    tuned: bool = False


@cache
def engines() -> dict[str, dict[str, Any]]:
    """Return the kinds of engines with their default limits and default KV precision."""
    columns: dict[str, Any] = {
        "engine": table.text,
        "kind": table.text,
        "sequences": table.whole(1, 100_000),
        "kv_quantized": table.yes,
        "year": table.real(2022, 2100),
        **table.SOURCED,
    }
    text = (
        files("planner.perf")
        .joinpath("data", "engines.csv")
        .read_text(encoding="utf-8")
    )
    return {
        row["engine"]: row.cells
        for row in table.rows(text, "engines.csv", columns)
    }


def engine(name: str, year: float | None = None) -> Engine:
    """Return an engine by name, of its newest known version unless a year is given."""
    known = engines()[name]
    when = known["year"] if year is None else year
    return Engine(kind=known["kind"], year=when, sequences=known["sequences"])


def kv_precision(name: str, llm: Llm, precision: str) -> str:
    """Return what an engine keeps in its KV cache when nobody says.

    Engines that quantize by themselves do so for quantized weights; latent attention is kept in
    16 bit by those that only read a checkpoint's own scales.
    """
    quantizes = engines()[name]["kv_quantized"] and precision in QUANTIZED
    return (
        "fp8"
        if quantizes and not (llm.kv_lora_rank and name == "sglang")
        else "bf16"
    )


def keys(
    layout: Layout, node: Node, used: Engine, lengths: tuple[str, ...] = VARIED
) -> frozenset[str]:
    """Name what selects coefficients: architecture, precision, engine, links, lengths.

    `lengths` are "spread" when they differ a little, and "varied" too when they do so widely.
    """
    chip = node.accelerator
    compute = chip.computes(layout.precision)
    found = {
        chip.architecture,
        chip.memory_type,
        chip.vendor,
        compute,
        used.kind,
    }
    if compute == "bf16" and layout.precision not in ("bf16", "auto"):
        found.add("unpacked")
    if used.year < EARLY:
        found.add("early")
    if used.tuned:
        found.add("tuned")
    if layout.ep > 1:
        found.add("ep")
    if not node.linked(layout.tp):
        found.add("pcie")
    return frozenset(found.union(lengths))
