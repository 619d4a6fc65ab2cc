"""Predicts rows of memory tables: what an engine reports when it starts, and checkpoints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from planner.estimate import names, trained
from planner.estimate.answer import Answer, Number
from planner.estimate.names import RefusedError
from planner.estimate.row import count, year_of
from planner.perf import memory, startup
from planner.perf.constant import constant
from planner.perf.layout import Layout
from planner.perf.memory import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.facts.accelerator import Accelerator

COLUMNS: Final = (
    "weights_gib_per_gpu",
    "kv_cache_gib_per_gpu",
    "kv_tokens",
    "state_gib_per_gpu",
    "activation_gib_per_gpu",
    "peak_mem_gib",
    "checkpoint_gib",
)
CONTEXT: Final = 8192
NEWEST: Final = 2026.8


def answer(row: Mapping[str, str]) -> Answer:
    """Predict one row, in GiB of each accelerator; raises RefusedError."""
    kind = (row.get("kind") or "").lower()
    if kind.startswith("inference"):
        return _serving(row)
    if kind.startswith("checkpoint"):
        llm = names.model(row["model"])
        size = memory.stored(llm, _layout(row, llm.precision)) / GIB
        return Answer(
            "physics", {"checkpoint_gib": _within(size, "checkpoint")}
        )
    if kind.startswith("training"):
        return Answer("physics", trained.held(row))
    raise RefusedError(f"no kind of memory is named '{kind}'")


def _serving(row: Mapping[str, str]) -> Answer:
    llm = names.model(row["model"])
    total, chip = _card(row)
    layout = _layout(row, llm.precision)
    if layout.precision == "bf16" and llm.precision == "mxfp4":
        layout = _layout({**row, "precision": "mxfp4"}, "mxfp4")
    year = year_of(row.get("source_date") or "", NEWEST)
    share = _real(row, "gpu_memory_utilization") or float(
        startup.era(year)["share"]
    )
    if share > 1:
        raise RefusedError(f"gpu_memory_utilization {share:g} is more than all")
    served = names.framework(row.get("framework") or "vllm")
    if served != "vllm":
        raise RefusedError(
            f"what {served} reports when it starts is not predicted yet"
        )
    card = startup.Card(
        total_gib=total,
        year=year,
        share=share,
        linked=chip is None or chip.link != "none",
        small=chip is not None and chip.architecture == "Ampere",
    )
    context = int(
        _real(row, "max_model_len") or min(CONTEXT, llm.max_context or CONTEXT)
    )
    found = startup.startup(llm, layout, card, startup.steps(card, context))
    if found.kv_gib <= 0:
        raise RefusedError(
            f"does not fit: weights and activation take {found.weights_gib:,.1f} and "
            f"{found.activation_gib:,.1f} of {share * total:,.1f} GiB"
        )
    error = constant("pool_error")
    numbers = {
        "weights_gib_per_gpu": _within(found.weights_gib, "weights"),
        "kv_cache_gib_per_gpu": _around(found.kv_gib, error),
        "kv_tokens": _around(
            found.kv_tokens, error / found.kv_gib * found.kv_tokens
        ),
        "activation_gib_per_gpu": _around(found.activation_gib, error),
        "peak_mem_gib": _within(share * total, "weights"),
    }
    return Answer("calibrated", numbers)


def _card(row: Mapping[str, str]) -> tuple[float, Accelerator | None]:
    """Return the memory of a card in GiB as the row states it, and the card if it is known."""
    stated = _real(row, "gpu_mem_gib")
    try:
        chip = names.gpu(row["gpu"])
    except RefusedError:
        if stated:
            return stated, None
        raise
    inside = re.search(r"([\d.]+)\s*(?:GiB|usable)", row["gpu"])
    return stated or (float(inside[1]) if inside else chip.memory_gib), chip


def _layout(row: Mapping[str, str], released: str) -> Layout:
    given = row.get("precision") or row.get("weight_precision") or released
    kept = names.kv_precision(row.get("kv_precision") or "") or "bf16"
    parts = {name: count(row, name, 1) for name in ("tp", "pp")}
    return Layout(precision=names.precision(given), kv_precision=kept, **parts)


def _real(row: Mapping[str, str], name: str) -> float:
    cell = (row.get(name) or "").strip()
    if not cell:
        return 0.0
    try:
        found = float(cell)
    except ValueError:
        raise RefusedError(f"{name} '{cell}' is not a number") from None
    if not 0 < found < 1e8:
        raise RefusedError(f"{name} {cell} is out of range")
    return found


def _within(value: float, name: str) -> Number:
    share = constant("memory_error", name)
    return Number(value, value * (1 - share), value * (1 + share))


def _around(value: float, error: float) -> Number:
    return Number(value, max(0.0, value - error), value + error)
