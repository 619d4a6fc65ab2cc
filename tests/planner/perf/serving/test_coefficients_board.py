"""Cards whose board has less power than that of the module with the same chip."""

from __future__ import annotations

import csv
from collections import defaultdict
from functools import cache
from statistics import mean
from typing import TYPE_CHECKING

import pytest

from planner.estimate.inference import predict_inference
from planner.estimate.inference_row import row_deployment
from planner.facts.accelerator import accelerators
from planner.perf.serving.coefficients import SERVING
from tests.accuracy.adapter import TRUTH, serving_row

if TYPE_CHECKING:
    from planner.estimate.inference import BandedValue

MODULE = "h100-sxm"
CARDS = ("h100-nvl", "h100-pcie")


@cache
def _rates(workload: str) -> dict[str, float]:
    """Return the mean rate of one accelerator, by its name."""
    rates = defaultdict(list)
    with (TRUTH / "board_power.csv").open() as file:
        for row in csv.DictReader(file):
            if row["workload"] == workload:
                rate = float(row["rate"]) / int(row["accelerators"])
                rates[row["accelerator"]].append(rate)
    return {name: mean(found) for name, found in rates.items()}


def _offline_rows(model: str) -> list[dict[str, str]]:
    with (TRUTH / "inference.csv").open() as file:
        return [
            row
            for row in csv.DictReader(file)
            if row["source_group"] == "mlperf_inference_v4.1"
            and row["model"] == model
            and row["scenario"] == "Offline"
            and row["gpu"].startswith("H100")
        ]


def _predicted(typed: dict[str, str]) -> BandedValue:
    return predict_inference(row_deployment(typed)).columns["output_tok_s"]


@pytest.mark.parametrize("card", CARDS)
def test_the_clock_of_a_card_is_that_of_products_alone(card: str) -> None:
    """BERT offline is bound by products: what its peak does not explain is the clock."""
    rates = _rates("bert-99")
    chips = accelerators()
    peaks = {name: chips[name].tflops("bf16") for name in (card, MODULE)}
    clock = rates[card] / rates[MODULE] * peaks[MODULE] / peaks[card]
    factors = {
        row.coefficient: row.fitted_factor
        for row in SERVING.rows
        if row.key == card
    }
    assert factors == pytest.approx(
        {"flops": clock, "latent_flops": clock}, abs=0.001
    )


def test_rows_of_h100_nvl_lie_in_their_bands() -> None:
    rows = [
        row
        for row in _offline_rows("mixtral-8x7b")
        if row["gpu"] == "H100-NVL-94GB"
    ]
    assert rows
    for row in rows:
        predicted = _predicted(serving_row(row))
        assert predicted.low < float(row["output_tok_s"]) < predicted.high


def test_a_70b_model_is_as_much_slower_on_h100_nvl_as_measured() -> None:
    typed = serving_row(_offline_rows("mixtral-8x7b")[0]) | {
        "model": "llama-2-70b",
        "tp": "2",
        "replicas": "1",
        "n_gpus": "2",
        # Of the Open Orca set of the benchmark, in tokens of the model.
        "input_len": "294",
        "output_len": "290",
    }
    predicted = {
        name: _predicted(typed | {"gpu": gpu, "max_sequences": batch}).value
        for name, gpu, batch in (
            (MODULE, "H100-SXM-80GB", "896"),
            ("h100-nvl", "H100-NVL-94GB", "1300"),
        )
    }
    rates = _rates("llama2-70b-99")
    measured = rates["h100-nvl"] / rates[MODULE]
    assert predicted["h100-nvl"] / predicted[MODULE] == pytest.approx(
        measured, rel=0.1
    )


@pytest.mark.parametrize(
    ("gpu", "most"), [("H100-NVL-94GB", 1.3), ("H100-PCIe-80GB", 1.1)]
)
def test_cards_err_as_the_module_does_where_beams_are_not_known(
    gpu: str, most: float
) -> None:
    """Four beams for each answer are beyond a row: the error of the module takes them out."""
    errors = defaultdict(list)
    for row in _offline_rows("gpt-j-6b"):
        measured = float(row["output_tok_s"])
        errors[row["gpu"]].append(_predicted(serving_row(row)).value / measured)
    assert 1 < mean(errors[gpu]) / mean(errors["H100-SXM-80GB"]) < most
