"""Adds to published rows, in typed columns, what only their notes and names tell.

The program reads typed columns and exact spellings (docs/estimate.md). What publications say in
prose is understood here, and nowhere else: a row that is written by hand never passes this module.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from planner.estimate import names
from planner.estimate.names import RefusedError
from planner.estimate.spelling import TableKind, typed_row
from planner.facts.llm import COUNT_COLUMNS

Row: TypeAlias = Mapping[str, str]
TypedRow: TypeAlias = dict[str, str]
TRUTH: Final = Path(__file__).parents[1] / "data" / "truth"
SERVING_COLUMNS: Final = (  # of the truth, that say what ran
    "row_id",
    "model",
    "gpu",
    "n_gpus",
    "tp",
    "pp",
    "ep",
    "attn_dp",
    "replicas",
    "serving_mode",
    "disagg_layout",
    "framework",
    "framework_version",
    "source_date",
    "scenario",
    "weight_precision",
    "kv_precision",
    "load_kind",
    "concurrency",
    "request_rate_rps",
    "input_len",
    "output_len",
    "len_kind",
    "spec_decode",
    "token_budget",
    "stream_interval",
    "async_scheduling",
    "n_requests",
    "sla_ttft_p99_ms",
    "sla_tpot_p99_ms",
)
TRAINING_COLUMNS: Final = (
    "row_id",
    "kind",
    "task",
    "model",
    "gpu",
    "n_gpus",
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "dp",
    "seq_len",
    "micro_batch",
    "global_batch",
    "grad_accum",
    "sharding",
    "act_ckpt",
    "precision",
    "fabric",
    "framework",
    "framework_version",
    "source_date",
)
STARTUP_COLUMNS: Final = (
    "row_id",
    "kind",
    "model",
    "gpu",
    "gpu_mem_gib",
    "tp",
    "pp",
    "max_model_len",
    "gpu_memory_utilization",
    "framework",
    "source_date",
    "precision",
    "kv_precision",
)


def serving_row(truth_row: Row) -> TypedRow:
    """Return the typed columns of a measured deployment."""
    notes = _text(truth_row, "notes")
    return _typed("inference", truth_row, SERVING_COLUMNS) | {
        "interconnect": "pcie" if "interconnect: PCIe" in notes else "",
        "max_sequences": _captured(r"max batch per engine=(\d+)", notes),
    }


def training_row(truth_row: Row) -> TypedRow:
    """Return the typed columns of a measured training run."""
    return _run_row("training", truth_row)


def memory_row(truth_row: Row) -> TypedRow:
    """Return the typed columns of a row of measured memory."""
    if _text(truth_row, "kind").startswith("training"):
        return _run_row("memory", truth_row)
    return _typed("memory", truth_row, STARTUP_COLUMNS)


def startup_row(log_row: Row) -> TypedRow:
    """Return the typed columns of a published log of vLLM.

    Cards that logs only hint at are named by their memory alone.
    """
    typed = memory_row(
        {
            **log_row,
            "kind": "inference_vllm_startup",
            "gpu_mem_gib": log_row["gpu_total_gib"],
            "source_date": log_row["date"],
        }
    )
    try:
        names.resolve_gpu(typed["gpu"])
    except RefusedError:
        typed["gpu"] = ""
    return typed


ADAPTERS: Final[Mapping[str, Callable[[Row], TypedRow]]] = {
    "inference.csv": serving_row,
    "training.csv": training_row,
    "memory.csv": memory_row,
}


def typed_rows(name: str) -> list[TypedRow]:
    """Return the rows of a table of the truth in typed columns."""
    lines = (TRUTH / name).read_text(encoding="utf-8").splitlines()
    return [ADAPTERS[name](row) for row in csv.DictReader(lines)]


def written(table_rows: Sequence[Row]) -> str:
    """Return rows as the text of a table."""
    buffer = io.StringIO()
    header = dict.fromkeys(column for row in table_rows for column in row)
    writer = csv.DictWriter(buffer, list(header), restval="")
    writer.writeheader()
    writer.writerows(table_rows)
    return buffer.getvalue()


def _text(truth_row: Row, name: str) -> str:
    return (truth_row.get(name) or "").strip()


def _yes(stated: bool) -> str:
    """A typed flag: what is not stated stays blank."""
    return "yes" if stated else ""


def _captured(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else ""


def _typed(
    table_kind: TableKind, truth_row: Row, columns: Sequence[str]
) -> TypedRow:
    """Return what the program makes of the columns of a row, without prose and measurements."""
    return typed_row(
        table_kind,
        {name: truth_row[name] for name in columns if name in truth_row},
    )


def _run_row(table_kind: TableKind, truth_row: Row) -> TypedRow:
    """Return the typed columns of a training run, with what its notes and its name tell."""
    typed = _typed(table_kind, truth_row, TRAINING_COLUMNS)
    notes = _text(truth_row, "notes").lower()
    framework = typed["framework"].lower()
    is_torchtune = framework == "torchtune"
    return typed | {
        "method": _method(truth_row, typed),
        "compiled": _yes(_is_compiled(framework, notes)),
        "async_tp": _yes("async" in notes),
        "gather_precision": "fp8" if "all-gather" in notes else "",
        "routing": "token_drop" if "tokendrop)" in notes else "",
        "optimizer": _optimizer(notes) if is_torchtune else "",
        "expert_precision": _text(truth_row, "expert_precision"),
        "mtp_layers": _text(truth_row, "mtp_layers"),
        "early_stop": _text(truth_row, "early_stop"),
        "cuda_graphs": _text(truth_row, "cuda_graphs"),
        "exchange": _text(truth_row, "exchange"),
        "exchange_overlap": _text(truth_row, "exchange_overlap"),
        "expert_slowdown": _text(truth_row, "slow_kernel"),
        "offload_states": _yes(is_torchtune and "cpu offload" in notes),
        "optimizer_in_backward": _yes(
            is_torchtune and "optimizer-in-backward" in notes
        ),
        # The shape of a model that nobody lists, such as one of two layers for an experiment.
        **{
            name: cell
            for name in COUNT_COLUMNS
            if (cell := _text(truth_row, name))
        },
    }


def _method(truth_row: Row, typed: Row) -> str:
    """What is trained; some sources say it in their notes or in the name of a row only."""
    told = (_text(truth_row, "notes") + _text(truth_row, "row_id")).lower()
    method = _text(typed, "method") or "full"
    if method == "full" and "lora" in told:
        return "qlora" if "qlora" in told else "lora"
    return method


def _is_compiled(framework: str, notes: str) -> bool:
    """Whether torch.compile ran; torchtitan's tensor parallelism was measured with it."""
    is_tensor_parallel = framework == "torchtitan" and re.search(
        r"\btp\b", notes
    )
    return "compile" in notes or bool(is_tensor_parallel)


def _optimizer(notes: str) -> str:
    if "paged" in notes:
        return "paged"
    return "adam8bit" if "8bit" in notes else ""
