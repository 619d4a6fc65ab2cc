"""Architectures whose rows are kept apart, against those rows."""

from __future__ import annotations

import csv
from functools import cache

import pytest

from planner.estimate.inference import predict_inference
from planner.estimate.inference_row import row_deployment
from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model
from planner.perf.common.layout import ReplicaLayout
from planner.perf.serving.error_band import (
    assess_novelty,
    error_band,
    load_of_accelerator,
    measured_scope,
    rows_apart,
)
from planner.perf.serving.margin import rate_error
from planner.solve.serving.evidence import evidence_warnings
from tests.accuracy.adapter import serving_row
from tests.conftest import ROOT

APART = ROOT / "tests" / "data" / "truth" / "inference_apart.csv"
LLAMA = find_model("llama-3.3-70b")
LAYOUT = ReplicaLayout(precision="bf16", kv_precision="bf16", tp=8)
V6E, V5E = accelerators()["tpu-v6e"], accelerators()["tpu-v5e"]
H100 = accelerators()["h100-sxm"]


@cache
def truth(gpu: str) -> tuple[dict[str, str], ...]:
    with APART.open(encoding="utf-8") as file:
        return tuple(row for row in csv.DictReader(file) if row["gpu"] == gpu)


def test_rows_are_counted_as_the_table_has_them() -> None:
    assert rows_apart(V6E) == len(truth("TPU-v6e")) > 100
    assert rows_apart(accelerators()["tpu7x"]) == len(truth("TPU7x"))
    assert rows_apart(V5E) == rows_apart(H100) == 0


def test_an_architecture_of_the_fit_is_not_kept_apart() -> None:
    """A workstation card has rows over PCIe apart; others of its architecture are in the fit."""
    kinds = {
        kind: {name for found, name in measured_scope() if found == kind}
        for kind in ("apart", "architecture")
    }
    assert kinds["apart"]
    assert not kinds["apart"] & kinds["architecture"]
    assert rows_apart(accelerators()["rtx-pro-6000-bse"]) == 0


def test_every_row_has_a_source_and_a_date() -> None:
    for row in (*truth("TPU-v6e"), *truth("TPU7x")):
        assert row["source_repo"], row["row_id"]
        assert row["source_commit_or_url"], row["row_id"]
        assert row["source_date"] > "2025", row["row_id"]
        assert row["quality"] in ("A", "B"), row["row_id"]


def test_the_band_of_a_tpu_holds_what_others_measured_on_it() -> None:
    """Loops whose users have slots: the others wait, which is no time per token."""
    inside = []
    for row in truth("TPU-v6e"):
        found = predict_inference(row_deployment(serving_row(row)))
        assert found.basis == "physics"
        tpot = found.columns.get("tpot_ms_mean")
        has_slots = (
            float(row["concurrency"]) <= found.columns["max_batch"].value
        )
        if tpot and row["tpot_ms_mean"] and has_slots:
            inside.append(tpot.low <= float(row["tpot_ms_mean"]) <= tpot.high)
    assert len(inside) > 40
    assert sum(inside) >= 0.9 * len(inside)


def test_what_was_measured_is_surer_than_what_was_not() -> None:
    widths, slowdowns = [], []
    for accelerator in (V6E, V5E):
        novelties, basis = assess_novelty(LLAMA, LAYOUT, accelerator, "vllm")
        band = error_band(
            "tpot",
            *load_of_accelerator(
                "tpot", "closed", "vllm", accelerator, novelties
            ),
            basis,
        )
        widths.append(band.high / band.low)
        error = rate_error(
            "decode",
            accelerator.architecture,
            novelties,
            basis,
            engine_kind="vllm",
        )
        slowdowns.append(error.slowdown(0.95))
    assert widths[0] < widths[1]
    assert slowdowns[0] < slowdowns[1]


@pytest.mark.parametrize("target", ["ttft", "throughput"])
def test_a_number_without_errors_of_its_own_is_as_unsure_as_unmeasured(
    target: str,
) -> None:
    """First tokens and throughputs on v6e have the band of v5e, of which there are no rows."""
    bands = []
    for accelerator in (V6E, V5E):
        novelties, basis = assess_novelty(LLAMA, LAYOUT, accelerator, "vllm")
        load = load_of_accelerator(
            target, "closed", "vllm", accelerator, novelties
        )
        found = error_band(target, *load, basis)
        bands.append((found.low, found.high))
    assert bands[0] == pytest.approx(bands[1])


def test_accelerators_of_the_fit_have_the_band_of_their_engine() -> None:
    novelties, _ = assess_novelty(LLAMA, LAYOUT, H100, "vllm")
    found = load_of_accelerator("tpot", "closed", "vllm", H100, novelties)
    assert found == ("closed vllm", novelties)


def test_early_vllm_on_tpus_is_predicted_slower_than_its_successor() -> None:
    """PyTorch/XLA, measured by a sweep of September 2025, against the release of November."""
    row = next(
        row
        for row in truth("TPU-v6e")
        if row["framework"] == "vLLM" and row["concurrency"] == "64"
        if row["tpot_ms_mean"] and row["model"] == "qwen3-32b"
    )
    times = [
        predict_inference(row_deployment(serving_row({**row, **dated})))
        .columns["tpot_ms_mean"]
        .value
        for dated in ({}, {"source_date": "2025-11-20"})
    ]
    assert times[0] > 1.3 * times[1]
    assert times[0] == pytest.approx(float(row["tpot_ms_mean"]), rel=0.2)


def test_a_plan_says_on_what_it_rests_where_no_fit_knows_the_accelerator() -> (
    None
):
    (measured,) = evidence_warnings(V6E)
    (unknown,) = evidence_warnings(V5E)
    assert measured.reason.values["rows"] == rows_apart(V6E)
    assert (measured.reason.code, unknown.reason.code) == (
        "rows-apart",
        "no-rows",
    )
    assert not tuple(evidence_warnings(H100))
