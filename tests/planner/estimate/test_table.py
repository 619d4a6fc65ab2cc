"""What a table of configurations may depend on: its configurations."""

from __future__ import annotations

import csv
import io
from typing import Final

import pytest

from planner.estimate.table import predict_table
from tests.conftest import ROOT

TRUTH: Final = ROOT / "tests" / "data" / "truth" / "inference.csv"
MEASURED: Final = (
    "req_throughput_rps",
    "output_tok_s",
    "output_tok_s_per_gpu",
    "total_tok_s",
    "ttft_ms_mean",
    "ttft_ms_p50",
    "ttft_ms_p99",
    "tpot_ms_mean",
    "tpot_ms_p50",
    "tpot_ms_p99",
    "e2e_ms_mean",
    "derived_output_tok_s_per_gpu",
)
SOURCES: Final = (
    "source_group",
    "source_repo",
    "source_path",
    "source_commit_or_url",
    "submitter",
    "system",
    "notes",
    "recipe",
    "quality",
)
CONFIGURATION: Final = {
    "row_id": "one",
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm",
    "framework": "trtllm",
    "load_kind": "rate",
    "request_rate_rps": "4",
    "input_len": "800",
    "output_len": "130",
    "sla_ttft_p99_ms": "2000",
    "sla_tpot_p99_ms": "100",
}


def written(rows: list[dict[str, str]]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def answer(**cells: str) -> dict[str, str]:
    text = predict_table(written([CONFIGURATION | cells]), "rows.csv")
    return next(csv.DictReader(io.StringIO(text)))


def served(**cells: str) -> float:
    return float(answer(**cells)["served_rps"])


def test_a_table_without_measurements_under_other_names_has_the_same_bytes() -> (
    None
):
    with TRUTH.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[::3]
    blank = [
        row
        | dict.fromkeys(MEASURED, "")
        | dict.fromkeys(SOURCES, "elsewhere")
        | {"row_id": str(place)}
        for place, row in enumerate(rows)
    ]
    numbered = [row | {"row_id": str(i)} for i, row in enumerate(rows)]
    assert predict_table(written(blank), "a.csv") == predict_table(
        written(numbered), "b.csv"
    )


def test_a_served_rate_grows_with_its_limits_and_ends_below_saturation() -> (
    None
):
    rates = [
        served(sla_tpot_p99_ms=str(limit)) for limit in (5, 10, 20, 50, 400)
    ]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1]
    full = answer(load_kind="offline_max", length_spread="fixed")
    assert rates[-1] <= float(full["req_throughput_rps"]) * 1.1
    assert served(sla_ttft_p99_ms="20") <= served(sla_ttft_p99_ms="40")


def test_both_limits_hold_at_the_served_rate_and_not_above() -> None:
    rate = served(sla_tpot_p99_ms="20")
    assert float(answer(sla_tpot_p99_ms="20")["served_rps_low"]) < rate
    quiet = answer(request_rate_rps=str(rate / 3))
    busy = answer(request_rate_rps=str(rate * 1.5))
    assert float(quiet["tpot_ms_p99"]) < 20 < float(busy["tpot_ms_p99"])


def test_no_rate_is_served_where_one_request_misses_a_limit() -> None:
    assert served(sla_tpot_p99_ms="0.1") == 0
    assert answer(sla_tpot_p99_ms="")["served_rps"] == ""


def test_a_band_of_a_served_rate_is_that_of_a_faster_and_a_slower_server() -> (
    None
):
    """It grows with the limits, also where a server of the predicted pace keeps none of them."""
    answers = [
        answer(sla_tpot_p99_ms=str(limit))
        for limit in (4, 4.5, 5, 6, 8, 10, 20, 50, 400)
    ]
    for column in ("served_rps", "served_rps_low", "served_rps_high"):
        rates = [float(found[column]) for found in answers]
        assert rates == sorted(rates)
    tight, *_, loose = answers
    assert float(tight["served_rps"]) == 0 < float(tight["served_rps_high"])
    # Near the limit of a single request a pace tells more than a factor of rates.
    assert float(loose["served_rps_high"]) < 2.5 * float(loose["served_rps"])
    near = next(found for found in answers if float(found["served_rps"]))
    assert float(near["served_rps_high"]) > 4 * float(near["served_rps"])


def test_replicas_serve_in_proportion() -> None:
    one = served(n_gpus="1", tp="1", replicas="1")
    assert served(n_gpus="4", tp="1", replicas="4") == pytest.approx(
        4 * one, rel=1e-4
    )


def test_accelerators_without_a_layout_are_the_smallest_group_that_fits() -> (
    None
):
    """70B in fp8 takes 66 of 80 GiB: two accelerators, and so two replicas of four."""
    large = {"model": "llama-3.1-70b", "weight_precision": "fp8"}
    assert answer(**large, n_gpus="4") == answer(
        **large, n_gpus="4", tp="2", replicas="2"
    )
    assert answer(n_gpus="8") == answer(n_gpus="8", tp="1", replicas="8")
    assert answer(**large, n_gpus="") == answer(**large, n_gpus="2", tp="2")
    assert answer(n_gpus="") == answer(n_gpus="1", tp="1")


def test_cores_of_inferentia_make_chips() -> None:
    chips = {
        "model": "llama-3-8b",
        "gpu": "inferentia2",
        "framework": "neuronx",
        "load_kind": "concurrency",
        "concurrency": "8",
        "n_gpus": "12",
    }
    assert answer(**chips, tp="24") == answer(**chips, tp="12")


def test_both_cores_of_a_tpu7x_are_ranks() -> None:
    """As vLLM runs it there: one chip, tensor parallelism over two."""
    chip = {"model": "qwen3-32b", "gpu": "TPU7x", "framework": "vllm"}
    assert answer(**chip, n_gpus="1", tp="2") == answer(
        **chip, n_gpus="1", tp="1"
    )
