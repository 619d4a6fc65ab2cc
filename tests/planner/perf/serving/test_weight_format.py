"""Formats of weights by engine and accelerator."""

from __future__ import annotations

import csv

import pytest

from planner.estimate import names
from planner.facts.accelerator import accelerators
from planner.perf.serving.weight_format import (
    has_weight_format,
    served_formats,
)
from tests.conftest import ROOT

ALL = ("bf16", "fp16", "fp8", "fp4", "mxfp4", "int4", "int8", "fp32")


def test_an_engine_without_rows_serves_what_the_accelerator_runs() -> None:
    for accelerator in accelerators().values():
        assert served_formats(
            "vllm", accelerator, ALL
        ) == accelerator.served_precisions(ALL)


# Of TensorRT-LLM the backend that machines start, by its releases: 1.0 and later. On Hopper
# gpt-oss had a cache of 16 bits, which no argument asks for.
ENGINES = {
    "sglang": (lambda row: "sglang" in row["framework"].lower(), set()),
    "trtllm": (
        lambda row: (
            "tensorrt-llm" in row["framework"].lower()
            and row["framework_version"][:2] == "1."
        ),
        {("h100-sxm", "mxfp4"), ("h200-sxm", "mxfp4")},
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_what_was_measured_of_an_engine_can_be_planned(engine: str) -> None:
    """Published measurements on accelerators of Nvidia, without further exceptions."""
    is_of_engine, excepted = ENGINES[engine]
    path = ROOT / "tests" / "data" / "truth" / "inference.csv"
    measured = set()
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if is_of_engine(row):
                model = names.resolve_model(row["model"])
                precision = names.resolve_precision(row["weight_precision"])
                # Weights that were released in it are called fp4 there.
                if model.precision == "mxfp4" and precision == "fp4":
                    precision = model.precision
                measured.add((row["gpu"], precision))
    assert len(measured) > 8
    for gpu, precision in sorted(measured):
        accelerator = names.resolve_gpu(gpu)
        pair = accelerator.accelerator, precision
        if accelerator.vendor == "nvidia" and pair not in excepted:
            assert has_weight_format(engine, accelerator, precision), pair


@pytest.mark.parametrize(
    ("chip", "precision"),
    [
        ("rtx-pro-6000-bse", "mxfp4"),
        ("rtx-pro-6000-bse", "bf16"),
        ("t4", "fp16"),
        ("h100-sxm", "fp4"),
        ("h100-sxm", "fp32"),
        ("mi300x", "bf16"),
    ],
)
def test_what_no_row_shows_is_left_out(chip: str, precision: str) -> None:
    assert not has_weight_format("sglang", accelerators()[chip], precision)
