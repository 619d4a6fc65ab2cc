"""Tables in the calibration format: exact spellings, and nothing read from prose."""

from __future__ import annotations

import csv

import pytest

from planner.estimate import names, table
from planner.estimate.cell import (
    read_choice,
    read_count,
    read_flag,
    read_number,
    read_version,
    read_year,
)
from planner.estimate.draft import DRAFT_KINDS
from planner.estimate.engine_row import BACKENDS, BENCHMARKS, KV_PRECISIONS
from planner.estimate.inference_row import (
    DEMAND_KINDS,
    LENGTH_SPREADS,
    SERVING_MODES,
)
from planner.estimate.names import RefusedError
from planner.estimate.software import (
    DOCUMENTS,
    FRAMEWORK_KERNELS,
    PRODUCT_PRECISIONS,
    SCOPES,
)
from planner.estimate.spelling import (
    ANY_OTHER,
    TableKind,
    calibration_spellings,
    typed_row,
)
from planner.estimate.training_layout import (
    RECOMPUTE_KINDS,
    SCHEDULES,
    SHARDINGS,
)
from planner.estimate.training_row import METHODS
from tests.accuracy import adapter
from tests.conftest import ROOT

DATA = ROOT / "tests" / "data"
CHOICES = {
    "backend": BACKENDS,
    "benchmark": BENCHMARKS,
    "documents": DOCUMENTS,
    "draft": DRAFT_KINDS,
    "kv_precision": tuple(KV_PRECISIONS),
    "length_spread": tuple(LENGTH_SPREADS),
    "load_kind": tuple(DEMAND_KINDS),
    "method": METHODS,
    "recompute": RECOMPUTE_KINDS,
    "schedule": SCHEDULES,
    "scope": SCOPES,
    "serving_mode": SERVING_MODES,
    "sharding": SHARDINGS,
}
READERS = {
    "concurrency": read_number,
    "date": lambda cells, column: read_year(cells, column, 0.0),
    "draft_tokens": lambda cells, column: read_count(cells, column, 0),
    "gpu_mem_gib": read_number,
    "network_gb_s": read_number,
    "pp": lambda cells, column: read_count(cells, column, 0),
    "request_count": read_number,
    "sequence_parallel": read_flag,
    "shard_size": lambda cells, column: read_count(cells, column, 0),
    "tp": lambda cells, column: read_count(cells, column, 0),
    "version": read_version,
}
PUBLISHED_TABLES: dict[str, TableKind] = {
    "inference_throughput": "inference",
    "training_throughput": "training",
    "memory": "memory",
}
# What the list of names holds, and nobody can size: no data sheet, no architecture.
NOT_SIZED = {
    "Arc-Pro-B60-Dual-48GB",
    "hybrid mamba model (unnamed)",
    "unknown MoE (B12X DCP4)",
}
LIES = "lora qlora compile async paged 8bit cpu offload interconnect: PCIe tp"
UNREAD = {
    "notes": f"{LIES}; max batch per engine=1; all-gather; tokendrop)",
    "arch_note": LIES,
    "source_group": "mlperf_training_v5.1 lora",
    "source_repo": LIES,
    "source_path": LIES,
    "source_commit_or_url": LIES,
    "submitter": LIES,
    "system": LIES,
    "recipe": LIES,
}


def accepted(kind: str, column: str, text: str) -> None:
    """Read a typed cell as its table does; raises RefusedError."""
    cells = {column: text}
    if not text:
        return
    if column in CHOICES:
        read_choice(cells, column, CHOICES[column])
    elif column == "model":
        names.resolve_model(text)
    elif column == "gpu":
        names.resolve_gpu(text)
    elif column == "weight_precision":
        names.resolve_precision(text)
    elif column == "precision":
        try:
            read_choice(cells, column, PRODUCT_PRECISIONS)
        except RefusedError:
            assert kind == "memory"  # which is of weights and of products
            names.resolve_precision(text)
    elif (column, kind) == ("framework", "training"):
        assert names.resolve_trainer(text, FRAMEWORK_KERNELS)
    elif column == "framework":
        try:
            names.resolve_engine(text)
        except RefusedError:
            assert kind == "memory"  # which is of engines and of trainers
            assert names.resolve_trainer(text, FRAMEWORK_KERNELS)
    else:
        READERS[column](cells, column)


def read(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((DATA / name).read_text().splitlines()))


def predicted(table_rows: list[dict[str, str]]) -> list[dict[str, str]]:
    answer = table.predict_table(adapter.written(table_rows), "rows.csv")
    return list(csv.DictReader(answer.splitlines()))


def truth_row(kind: str, **changes: str) -> dict[str, str]:
    """The first row of full quality with lengths of a published table, with changes."""
    return (
        next(
            row
            for row in read(f"truth/{kind}.csv")
            if row["quality"] == "A" and row.get("input_len") != ""
        )
        | changes
    )


@pytest.mark.parametrize("kind", ["inference", "training", "memory"])
def test_every_spelling_stands_for_cells_that_are_accepted(
    kind: TableKind,
) -> None:
    for column, spellings in calibration_spellings()[kind].items():
        for spelling, cells in spellings.items():
            assert spelling == " ".join(spelling.lower().split())
            for typed_column, text in cells.items():
                accepted(kind, typed_column, text)
            if spelling == ANY_OTHER:
                continue
            typed = typed_row(kind, {column: spelling.upper()})
            assert {name: typed[name] for name in cells} == cells
            assert column in cells or column not in typed


def test_every_published_name_is_understood() -> None:
    refused = {}
    for row in read("names.csv"):
        kind = PUBLISHED_TABLES[row["table"]]
        column, spelling = row["column"], row["spelling"]
        try:
            for name, text in typed_row(kind, {column: spelling}).items():
                accepted(kind, name, text)
        except RefusedError as refusal:
            refused[spelling] = str(refusal)
    assert set(refused) == NOT_SIZED
    assert all(
        "is named" in reason or "cannot be sized" in reason
        for reason in refused.values()
    )


@pytest.mark.parametrize(
    ("kind", "column", "word", "says"),
    [
        ("inference", "load_kind", "all_at_once_51", "did you mean 'all_at_on"),
        ("inference", "serving_mode", "static_bach", "did you mean 'static_ba"),
        ("inference", "kv_precision", "fp-8", "did you mean 'fp8'"),
        ("inference", "tp", "8|4", "is not a whole number"),
        ("inference", "pp", "1|3", "is not a whole number"),
        ("inference", "framework", "vLMM", "did you mean 'vllm"),
        ("training", "sharding", "FSDP3", "did you mean 'fsdp"),
        ("training", "sharding", "FSDP FUL_SHARD", "'fsdp full_shard'"),
        ("training", "act_ckpt", "selectiv op", "did you mean 'selective op'"),
        ("training", "task", "qlorra", "did you mean 'qlora'"),
        ("training", "precision", "float9", "did you mean 'float8'"),
        ("training", "framework", "Megaton-LM", "did you mean 'megatron"),
    ],
)
def test_an_unknown_word_is_refused_by_column_and_word(
    kind: str, column: str, word: str, says: str
) -> None:
    answer, beside = predicted(
        [truth_row(kind, **{column: word}), truth_row(kind)]
    )
    assert (answer["status"], beside["status"]) == ("refused", "ok")
    assert says in answer["reason"]
    assert f"'{word}'" in answer["reason"]
    assert column in answer["reason"]


@pytest.mark.parametrize(
    ("kind", "column", "cells"),
    [
        ("inference", "scenario", {}),
        ("inference", "len_kind", {}),
        ("inference", "framework_version", {}),
        ("inference", "source_date", {}),
        ("inference", "spec_decode", {"draft": "unknown"}),
        ("training", "fabric", {}),
    ],
)
def test_a_word_that_nobody_lists_is_as_good_as_none(
    kind: str, column: str, cells: dict[str, str]
) -> None:
    told, blank = predicted(
        [
            truth_row(kind, **{column: "of another kind"})
            | dict.fromkeys(cells, ""),
            truth_row(kind, **{column: ""}) | cells,
        ]
    )
    assert told == blank
    assert told["status"] == "ok"


def test_a_typed_cell_wins() -> None:
    typed = typed_row(
        "training",
        {
            "act_ckpt": "True",
            "recompute": "none",
            "fabric": "NVLink 8-GPU + IB NDR400",
            "network_gb_s": "12.5",
            "source_date": "2024-2025",
            "date": "2026-01",
            "sharding": "Megatron-FSDP 64",
            "shard_size": "8",
        },
    )
    assert typed == {
        "recompute": "none",
        "network_gb_s": "12.5",
        "date": "2026-01",
        "sharding": "zero3",
        "shard_size": "8",
    }


def test_a_row_in_words_is_the_row_in_types() -> None:
    words = truth_row(
        "inference",
        framework="TensorRT-LLM (PyTorch  backend)",
        framework_version="v1.1.0rc2.post2",
        source_date="2026-03",
        spec_decode="MTP-3",
        len_kind="uniform in [0.8,1.0]x nominal (mean 0.9x)",
        load_kind="all_at_once_500",
        concurrency="",
        serving_mode="static_batch",
        tp="4|2",
        pp="1|2",
    )
    typed = typed_row("inference", words)
    expected = {
        "framework": "trtllm",
        "backend": "pytorch",
        "version": "v1.1.0rc2.post2",
        "date": "2026-03",
        "draft": "mtp",
        "draft_tokens": "3",
        "length_spread": "narrow",
        "load_kind": "all_at_once",
        "concurrency": "500",
        "serving_mode": "agg",
        "tp": "4",
        "pp": "1",
    }
    assert {name: typed[name] for name in expected} == expected
    assert typed_row("inference", typed) == typed


@pytest.mark.parametrize(
    ("kind", "refusals"), [("inference", 70), ("training", 0), ("memory", 8)]
)
def test_lies_in_prose_change_no_answer_of_a_published_table(
    kind: TableKind, refusals: int
) -> None:
    assert not calibration_spellings()[kind].keys() & {*UNREAD, "row_id"}
    plain = [
        row | dict.fromkeys(UNREAD, "") for row in read(f"truth/{kind}.csv")
    ]
    lying = [
        row | UNREAD | {"row_id": f"{LIES} {row['row_id']}"} for row in plain
    ]
    honest_answers = predicted(plain)
    lying_answers = predicted(lying)
    for honest, other in zip(honest_answers, lying_answers, strict=True):
        assert honest | {"row_id": ""} == other | {"row_id": ""}
    statuses = [answer["status"] for answer in honest_answers]
    assert statuses.count("refused") <= refusals
