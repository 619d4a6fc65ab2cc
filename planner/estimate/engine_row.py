"""Which serving engine a row names: its kind, its age and its limits."""

from __future__ import annotations

from typing import Final

from planner.estimate.cell import (
    Row,
    read_cell,
    read_choice,
    read_count,
    read_flag,
    read_number,
    read_version,
    read_year,
)
from planner.estimate.engine_release import find_release
from planner.estimate.names import RefusedError
from planner.perf.common.coefficient_table import REFERENCE_YEAR
from planner.perf.serving.drafting import PROMPT_LOOKUP
from planner.perf.serving.engine import ServingEngine, engine_rows, plans_ahead

BACKENDS: Final = ("pytorch", "cpp")
BENCHMARKS: Final = ("mlperf_offline", "mlperf_server", "mlperf_interactive")
KV_PRECISIONS: Final = {
    "auto": "",
    "bf16": "bf16",
    "fp16": "bf16",  # as many bytes
    "fp8": "fp8",
}


def read_benchmark(table_row: Row) -> str:
    """Return the benchmark whose rules a run followed, or nothing; raises RefusedError."""
    return read_choice(table_row, "benchmark", BENCHMARKS) or ""


def read_kv_precision(table_row: Row) -> str:
    """Return what the KV cache is kept in, or nothing when the engine decides."""
    precision = read_choice(table_row, "kv_precision", tuple(KV_PRECISIONS))
    return KV_PRECISIONS[precision or "auto"]


def row_engine(table_row: Row, engine_name: str) -> ServingEngine:
    """Return the engine of a row; what is blank is what the engine does by itself."""
    engine_facts = engine_rows()[engine_name]
    dated_year = read_year(table_row, "date", engine_facts["year"])
    version = read_version(table_row, "version")
    is_dated = bool(read_cell(table_row, "date"))
    release = (
        find_release(engine_name, version, dated_year if is_dated else None)
        if version
        else None
    )
    engine_year = release.year if release else dated_year
    backend = read_choice(table_row, "backend", BACKENDS)
    if backend and engine_name != "trtllm":
        raise RefusedError(f"backend is of trtllm, and not of {engine_name}")
    benchmark = read_benchmark(table_row)
    if engine_name == "trtllm" and not backend:
        # Entries of benchmarks are built as engines whatever the release.
        is_modern = engine_year >= REFERENCE_YEAR
        own_backend = "pytorch" if is_modern else "cpp"
        if release:
            own_backend = release.backend
        backend = "cpp" if benchmark else own_backend
    if backend == "cpp":
        engine_facts = engine_rows()["trtllm-cpp"]
    # A guess from the prompt is made on the CPU, from the tokens of the step before.
    may_plan = read_cell(table_row, "draft").lower() != PROMPT_LOOKUP
    return ServingEngine(
        kind=engine_facts["kind"],
        software_year=engine_year,
        max_sequences=read_count(
            table_row, "max_sequences", engine_facts["sequences"]
        ),
        latency_tuned=benchmark in ("mlperf_server", "mlperf_interactive"),
        token_budget=int(read_number(table_row, "token_budget")),
        plans_ahead=read_flag(
            table_row,
            "async_scheduling",
            default=may_plan and plans_ahead(engine_name, engine_year),
        ),
    )
