"""Predicts rows of memory tables: what an engine reports when it starts, and checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.estimate import names, training
from planner.estimate.cell import (
    Row,
    read_cell,
    read_choice,
    read_count,
    read_number,
    read_year,
)
from planner.estimate.engine_row import read_kv_precision
from planner.estimate.inference import BandedValue, Estimate
from planner.estimate.model_row import row_model
from planner.estimate.names import RefusedError
from planner.perf.common import memory
from planner.perf.common.constant import constant
from planner.perf.common.layout import ReplicaLayout
from planner.perf.serving import memory as startup
from planner.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm

COLUMNS: Final = (
    "weights_gib_per_gpu",
    "kv_cache_gib_per_gpu",
    "kv_tokens",
    "state_gib_per_gpu",
    "activation_gib_per_gpu",
    "peak_mem_gib",
    "checkpoint_gib",
)
STARTUP_KIND: Final = "inference_vllm_startup"
CHECKPOINT_KIND: Final = "checkpoint_size"
KINDS: Final = (STARTUP_KIND, CHECKPOINT_KIND, *training.MEMORY_KINDS)
DEFAULT_CONTEXT: Final = 8192
DEFAULT_YEAR: Final = 2026.8


def predict_memory(table_row: Row) -> Estimate:
    """Predict one row, in GiB of each accelerator; raises RefusedError."""
    memory_kind = read_choice(table_row, "kind", KINDS)
    if memory_kind is None:
        raise RefusedError(f"kind is missing: one of {', '.join(KINDS)}")
    if memory_kind == STARTUP_KIND:
        return _predict_startup(table_row)
    if memory_kind == CHECKPOINT_KIND:
        language_model = row_model(table_row)
        checkpoint_gib = (
            memory.checkpoint_bytes(
                language_model, _row_layout(table_row, language_model.precision)
            )
            / BYTES_PER_GIB
        )
        return Estimate(
            "physics",
            {"checkpoint_gib": _relative_band(checkpoint_gib, "checkpoint")},
        )
    return training.training_memory(table_row)


def _predict_startup(table_row: Row) -> Estimate:
    """Predict what vLLM reports when it starts."""
    language_model = row_model(table_row)
    total_gib, accelerator = _card_memory(table_row)
    replica_layout = _startup_layout(table_row, language_model)
    startup_card = _startup_card(table_row, total_gib, accelerator)
    _refuse_other_engines(table_row)
    context_tokens = int(
        read_number(table_row, "max_model_len")
        or min(DEFAULT_CONTEXT, language_model.max_context or DEFAULT_CONTEXT)
    )
    startup_memory = startup.startup_memory(
        language_model,
        replica_layout,
        startup_card,
        startup.default_limits(startup_card, context_tokens),
    )
    usable_gib = startup_card.memory_share * total_gib
    if startup_memory.kv_gib <= 0:
        raise RefusedError(
            f"does not fit: weights and activation take {startup_memory.weights_gib:,.1f} and "
            f"{startup_memory.activation_gib:,.1f} of {usable_gib:,.1f} GiB"
        )
    return Estimate("calibrated", _startup_bands(startup_memory, usable_gib))


def _startup_layout(table_row: Row, language_model: Llm) -> ReplicaLayout:
    """Return the layout of a row; a model released in mxfp4 keeps it where bf16 is stated."""
    replica_layout = _row_layout(table_row, language_model.precision)
    if (
        replica_layout.precision == "bf16"
        and language_model.precision == "mxfp4"
    ):
        return _row_layout({**table_row, "precision": "mxfp4"}, "mxfp4")
    return replica_layout


def _startup_card(
    table_row: Row, total_gib: float, accelerator: Accelerator | None
) -> startup.VllmAccelerator:
    """Return the card under the vLLM of the row; raises RefusedError for a share above 1."""
    source_year = read_year(table_row, "date", DEFAULT_YEAR)
    memory_share = read_number(table_row, "gpu_memory_utilization") or float(
        startup.vllm_constants(source_year)["share"]
    )
    if memory_share > 1:
        raise RefusedError(
            f"gpu_memory_utilization {memory_share:g} is more than all"
        )
    return startup.VllmAccelerator(
        total_gib=total_gib,
        software_year=source_year,
        memory_share=memory_share,
        has_link=accelerator is None or accelerator.link != "none",
        small_defaults=accelerator is not None
        and accelerator.architecture == "Ampere",
    )


def _refuse_other_engines(table_row: Row) -> None:
    engine_name = names.resolve_engine(
        read_cell(table_row, "framework") or "vllm"
    )
    if engine_name != "vllm":
        raise RefusedError(
            f"what {engine_name} reports when it starts is not predicted yet"
        )


def _startup_bands(
    startup_memory: startup.StartupMemory, usable_gib: float
) -> dict[str, BandedValue]:
    """Return the columns of a start-up, in GiB of each accelerator and in tokens."""
    pool_error_gib = constant("pool_error")
    return {
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
        "peak_mem_gib": _relative_band(usable_gib, "weights"),
    }


def _card_memory(
    table_row: Row,
) -> tuple[float, Accelerator | None]:
    """Return the memory of a card in GiB, and the card unless only its memory is named."""
    stated_gib = read_number(table_row, "gpu_mem_gib")
    if stated_gib and not read_cell(table_row, "gpu"):
        return stated_gib, None
    accelerator = names.resolve_gpu(table_row["gpu"])
    return stated_gib or accelerator.memory_gib, accelerator


def _row_layout(table_row: Row, released_precision: str) -> ReplicaLayout:
    weight_precision = (
        table_row.get("precision")
        or table_row.get("weight_precision")
        or released_precision
    )
    parallel_degrees = {
        column: read_count(table_row, column, 1) for column in ("tp", "pp")
    }
    return ReplicaLayout(
        precision=names.resolve_precision(weight_precision),
        kv_precision=read_kv_precision(table_row) or "bf16",
        **parallel_degrees,
    )


def _relative_band(predicted: float, error_name: str) -> BandedValue:
    error_share = constant("memory_error", error_name)
    return BandedValue(
        predicted, predicted * (1 - error_share), predicted * (1 + error_share)
    )


def _absolute_band(predicted: float, half_width: float) -> BandedValue:
    return BandedValue(
        predicted, max(0.0, predicted - half_width), predicted + half_width
    )
