"""Predicts rows of memory tables: what an engine reports when it starts, and checkpoints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from planner.estimate import names, training
from planner.estimate.inference import BandedValue, Estimate
from planner.estimate.inference_row import date_year, read_count
from planner.estimate.names import RefusedError
from planner.perf.common import memory
from planner.perf.common.constant import constant
from planner.perf.common.layout import ReplicaLayout
from planner.perf.common.memory import GIB
from planner.perf.serving import memory as startup

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
DEFAULT_CONTEXT: Final = 8192
DEFAULT_YEAR: Final = 2026.8


def predict_memory(table_row: Mapping[str, str]) -> Estimate:
    """Predict one row, in GiB of each accelerator; raises RefusedError."""
    memory_kind = (table_row.get("kind") or "").lower()
    if memory_kind.startswith("inference"):
        return _predict_startup(table_row)
    if memory_kind.startswith("checkpoint"):
        language_model = names.resolve_model(table_row["model"])
        checkpoint_gib = (
            memory.checkpoint_bytes(
                language_model, _row_layout(table_row, language_model.precision)
            )
            / GIB
        )
        return Estimate(
            "physics",
            {"checkpoint_gib": _relative_band(checkpoint_gib, "checkpoint")},
        )
    if memory_kind.startswith("training"):
        return Estimate("physics", training.training_memory(table_row))
    raise RefusedError(f"no kind of memory is named '{memory_kind}'")


def _predict_startup(table_row: Mapping[str, str]) -> Estimate:
    language_model = names.resolve_model(table_row["model"])
    total_gib, accelerator = _card_memory(table_row)
    replica_layout = _row_layout(table_row, language_model.precision)
    if (
        replica_layout.precision == "bf16"
        and language_model.precision == "mxfp4"
    ):
        replica_layout = _row_layout(
            {**table_row, "precision": "mxfp4"}, "mxfp4"
        )
    source_year = date_year(table_row.get("source_date") or "", DEFAULT_YEAR)
    memory_share = _read_number(table_row, "gpu_memory_utilization") or float(
        startup.vllm_constants(source_year)["share"]
    )
    if memory_share > 1:
        raise RefusedError(
            f"gpu_memory_utilization {memory_share:g} is more than all"
        )
    engine_name = names.resolve_engine(table_row.get("framework") or "vllm")
    if engine_name != "vllm":
        raise RefusedError(
            f"what {engine_name} reports when it starts is not predicted yet"
        )
    startup_card = startup.VllmAccelerator(
        total_gib=total_gib,
        software_year=source_year,
        memory_share=memory_share,
        has_link=accelerator is None or accelerator.link != "none",
        small_defaults=accelerator is not None
        and accelerator.architecture == "Ampere",
    )
    context_tokens = int(
        _read_number(table_row, "max_model_len")
        or min(DEFAULT_CONTEXT, language_model.max_context or DEFAULT_CONTEXT)
    )
    startup_memory = startup.startup_memory(
        language_model,
        replica_layout,
        startup_card,
        startup.default_limits(startup_card, context_tokens),
    )
    if startup_memory.kv_gib <= 0:
        raise RefusedError(
            f"does not fit: weights and activation take {startup_memory.weights_gib:,.1f} and "
            f"{startup_memory.activation_gib:,.1f} of {memory_share * total_gib:,.1f} GiB"
        )
    pool_error_gib = constant("pool_error")
    columns = {
        "weights_gib_per_gpu": _relative_band(
            startup_memory.weights_gib, "weights"
        ),
        "kv_cache_gib_per_gpu": _absolute_band(
            startup_memory.kv_gib, pool_error_gib
        ),
        "kv_tokens": _absolute_band(
            startup_memory.kv_tokens,
            pool_error_gib / startup_memory.kv_gib * startup_memory.kv_tokens,
        ),
        "activation_gib_per_gpu": _absolute_band(
            startup_memory.activation_gib, pool_error_gib
        ),
        "peak_mem_gib": _relative_band(memory_share * total_gib, "weights"),
    }
    return Estimate("calibrated", columns)


def _card_memory(
    table_row: Mapping[str, str],
) -> tuple[float, Accelerator | None]:
    """Return the memory of a card in GiB as the row states it, and the card if it is known."""
    stated_gib = _read_number(table_row, "gpu_mem_gib")
    try:
        accelerator = names.resolve_gpu(table_row["gpu"])
    except RefusedError:
        if stated_gib:
            return stated_gib, None
        raise
    memory_match = re.search(r"([\d.]+)\s*(?:GiB|usable)", table_row["gpu"])
    return stated_gib or (
        float(memory_match[1]) if memory_match else accelerator.memory_gib
    ), accelerator


def _row_layout(
    table_row: Mapping[str, str], released_precision: str
) -> ReplicaLayout:
    weight_precision = (
        table_row.get("precision")
        or table_row.get("weight_precision")
        or released_precision
    )
    kv_precision = (
        names.resolve_kv_cache(table_row.get("kv_precision") or "") or "bf16"
    )
    parallel_degrees = {
        column: read_count(table_row, column, 1) for column in ("tp", "pp")
    }
    return ReplicaLayout(
        precision=names.resolve_precision(weight_precision),
        kv_precision=kv_precision,
        **parallel_degrees,
    )


def _read_number(table_row: Mapping[str, str], column: str) -> float:
    cell_text = (table_row.get(column) or "").strip()
    if not cell_text:
        return 0.0
    try:
        cell_number = float(cell_text)
    except ValueError:
        raise RefusedError(f"{column} '{cell_text}' is not a number") from None
    if not 0 < cell_number < 1e8:
        raise RefusedError(f"{column} {cell_text} is out of range")
    return cell_number


def _relative_band(predicted: float, error_name: str) -> BandedValue:
    error_share = constant("memory_error", error_name)
    return BandedValue(
        predicted, predicted * (1 - error_share), predicted * (1 + error_share)
    )


def _absolute_band(predicted: float, half_width: float) -> BandedValue:
    return BandedValue(
        predicted, max(0.0, predicted - half_width), predicted + half_width
    )
