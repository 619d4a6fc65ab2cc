"""The layout of a row of training: what is stated stays, what is blank is guessed to fit."""

from __future__ import annotations

import csv
import io
from typing import Final

import pytest

from planner.estimate.names import RefusedError
from planner.estimate.table import predict_table
from planner.estimate.training_row import parse_job
from planner.perf.training.memory import exceeds_memory
from tests.accuracy.adapter import training_row
from tests.accuracy.training import APART, TRUTH
from tests.planner.estimate.rows import answered

DEGREES: Final = ("tp", "pp", "cp", "dp")
ROW: Final = {
    "row_id": "one",
    "model": "llama-3.1-70b",
    "gpu": "h100-sxm",
    "n_gpus": "64",
    "framework": "torchtitan",
    "sharding": "zero3",
    "seq_len": "8192",
    "micro_batch": "",
    "global_batch": "512",
    **dict.fromkeys(DEGREES, ""),
}


def layout_of(**cells: str) -> dict[str, object]:
    return parse_job(ROW | cells).job.layout._asdict()


def table_answers(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    columns = sorted({column for row in rows for column in row})
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, restval="")
    writer.writeheader()
    writer.writerows(rows)
    text = predict_table(buffer.getvalue(), "rows.csv")
    return list(csv.DictReader(io.StringIO(text)))


def published(path: str) -> list[dict[str, str]]:
    text = (APART if path == "apart" else TRUTH).read_text(encoding="utf-8")
    return [
        {"sharding": "", **training_row(row)}
        for row in csv.DictReader(text.splitlines())
    ]


@pytest.mark.parametrize("blank", [("tp", "pp", "cp"), DEGREES])
def test_published_runs_without_their_degrees_of_one_are_answered_alike(
    blank: tuple[str, ...],
) -> None:
    rows = [
        row
        for row in published("truth")
        if row.get("tp") == "1"
        and {row.get("pp") or "1", row.get("cp") or "1"} == {"1"}
    ]
    assert len(rows) > 250
    found = table_answers([row | dict.fromkeys(blank, "") for row in rows])
    stated = table_answers(rows)
    assert [row["row_id"] for row in found if row["status"] != "ok"] == []
    alike = [
        guess["tokens_per_s_per_gpu"] == known["tokens_per_s_per_gpu"]
        for guess, known in zip(found, stated, strict=True)
    ]
    assert sum(alike) >= len(alike) - 1


@pytest.mark.parametrize(
    "stated",
    [
        {"sharding": "none"},
        {"sharding": "zero1"},
        {"sharding": "zero2"},
        {"sharding": "zero3"},
        {"pp": "4"},
        {"cp": "2"},
        {"dp": "16"},
        {"dp": "16", "cp": "2"},
        {"dp": "8", "pp": "2", "cp": "2"},
        {"pp": "4", "grad_accum": "3"},
    ],
)
@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.1-70b"])
@pytest.mark.parametrize("batch", ["", "512"])
def test_what_a_row_states_of_its_layout_is_its_layout(
    stated: dict[str, str], method: str, model: str, batch: str
) -> None:
    cells = {"model": model, "method": method, "global_batch": batch}
    parsed = parse_job(ROW | {"sharding": ""} | cells | stated)
    layout = parsed.job.layout._asdict()
    for column in (*DEGREES, "sharding"):
        if column in stated:
            assert str(layout[column]) == stated[column]
    assert parsed.job.layout.accelerators == int(ROW["n_gpus"])
    # Other degrees may leave one that nobody needs to state.
    assert parsed.is_assumed == (len(stated) < len(DEGREES) - 1)


def test_a_stated_layout_is_answered_as_if_its_tensor_parallelism_were_stated() -> (
    None
):
    blank = answered(ROW | {"micro_batch": "1"})
    stated = answered(ROW | {"micro_batch": "1", "tp": "1"})
    assert blank["status"] == "ok"
    assert blank["reason"] == ""
    for column in ("tokens_per_s_per_gpu", "peak_mem_gib"):
        assert blank[column] == stated[column]
    # Its band is wider, unless all ranks are of data parallelism.
    assert float(blank["tokens_per_s_per_gpu_high"]) > float(
        stated["tokens_per_s_per_gpu_high"]
    )
    counted = answered(ROW | {"micro_batch": "1", "dp": "64"})
    assert counted == stated


@pytest.mark.parametrize(
    "cells",
    [
        {"framework": "nemo", "sharding": "zero1"},
        {"framework": "nemo", "sharding": ""},
        {"framework": "nemo", "sharding": "none", "model": "llama-3.1-8b"},
        {"framework": "torchtitan", "sharding": "", "model": "llama-3.1-8b"},
        {"framework": "trl", "sharding": "", "method": "lora"},
        {"framework": "nemo", "sharding": "none", "n_gpus": "128"},
        {
            "framework": "megatron-lm",
            "model": "llama-3.1-405b",
            "n_gpus": "256",
            "sharding": "zero1",
        },
    ],
)
def test_the_least_tensor_parallelism_that_fits_is_taken_then_the_least_pipeline(
    cells: dict[str, str],
) -> None:
    job = parse_job(ROW | cells).job
    assert not exceeds_memory(job)
    layout = job.layout
    known = cells | {"sharding": layout.sharding, "micro_batch": "1"}
    for tp in range(1, layout.tp):
        if not 64 % tp and layout.pp == 1:
            smaller = ROW | known | {"tp": str(tp)}
            assert exceeds_memory(parse_job(smaller).job)
    for pp in range(1, layout.pp):
        if not layout.pp * layout.dp % pp:
            smaller = ROW | known | {"tp": str(layout.tp), "pp": str(pp)}
            assert exceeds_memory(parse_job(smaller).job)
    assert layout.tp * layout.pp > 1


def test_what_states_nothing_is_as_usual_where_that_fits() -> None:
    """Without a batch all is sharded; with one the ranks that it leaves are a model's."""
    nothing = {"model": "llama-3.1-8b", "sharding": "", "gpu": "h200-sxm"}
    alone = {"tp": 1, "pp": 1, "cp": 1, "dp": 64}
    sharded = layout_of(**nothing, global_batch="")
    assert sharded.items() >= {**alone, "sharding": "zero3"}.items()
    batched = layout_of(**nothing)
    assert batched.items() >= {**alone, "sharding": "zero1"}.items()
    grouped = layout_of(**nothing, grad_accum="128", micro_batch="1")
    assert grouped.items() >= {"tp": 4, "pp": 4, "cp": 1, "dp": 4}.items()
    tuned = layout_of(
        **nothing, grad_accum="128", micro_batch="1", method="lora"
    )
    assert tuned.items() >= {"tp": 1, "pp": 1, "cp": 16, "dp": 4}.items()


def test_published_runs_without_their_layout_get_one_that_fits() -> None:
    """XLA keeps less than is counted, so the usual layout of TPUs stays."""
    for path in ("truth", "apart"):
        for row in published(path):
            blank = row | dict.fromkeys((*DEGREES, "sharding"), "")
            job = parse_job(blank).job
            if job.chip.vendor == "google":
                assert job.layout.sharding == "zero3"
                assert job.layout.dp == job.layout.accelerators
            elif job.software.kernels != "xla":
                assert not exceeds_memory(job), row["row_id"]


def test_accelerators_that_nobody_counts_are_those_of_the_layout() -> None:
    assert layout_of(n_gpus="", dp="16", pp="2")["dp"] == 16
    assert parse_job(
        ROW | {"n_gpus": "", "dp": "16", "pp": "2"}
    ).job.layout.accelerators == pytest.approx(32)
    # A pipeline alone says little: the next number after 1,024 that it divides.
    pipeline = parse_job(ROW | {"n_gpus": "", "pp": "3"})
    assert pipeline.is_assumed
    assert pipeline.job.layout.pp == 3
    assert pipeline.job.layout.accelerators == 1026


@pytest.mark.parametrize("cells", [{"dp": "7"}, {"pp": "3"}, {"cp": "5"}])
def test_a_degree_that_does_not_divide_the_accelerators_is_refused(
    cells: dict[str, str],
) -> None:
    [(name, degree)] = cells.items()
    with pytest.raises(RefusedError, match=f"{name} {degree}"):
        parse_job(ROW | cells)
