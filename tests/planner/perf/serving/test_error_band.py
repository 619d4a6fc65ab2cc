"""What counts as new, against the measurements; what it adds, counted from the tables by hand."""

from __future__ import annotations

import csv
import math

import pytest
from msgspec.structs import replace

from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model
from planner.perf.common.layout import ReplicaLayout
from planner.perf.serving.error_band import (
    assess_novelty,
    error_band,
    measured_scope,
)
from planner.perf.serving.load import LengthDistribution, ServingLoad
from planner.perf.serving.margin import rate_error, rate_margins
from tests.conftest import ROOT

TRUTH = ROOT / "tests" / "data" / "truth"
LLAMA = find_model("llama-3.1-70b")
H100 = accelerators()["h100-sxm"]
ONE_STAGE = ReplicaLayout(precision="fp8", kv_precision="bf16", tp=4)
TWO_STAGES = replace(ONE_STAGE, pp=2)


def truth(name: str) -> list[dict[str, str]]:
    with (TRUTH / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_no_pipeline_of_vllm_and_no_wide_weights_are_measured() -> None:
    """Each stated degree of a pipeline above 1 is of TensorRT-LLM; int4 has rows of quality B."""
    rows = truth("inference.csv")
    assert sum(row["framework"].startswith("vLLM") for row in rows) > 300
    piped = {row["framework"] for row in rows if row["pp"] not in ("", "1")}
    assert piped == {"TensorRT-LLM"}
    formats = {row["weight_precision"] for row in rows}
    formats |= {row["precision"] for row in truth("startup.csv")}
    assert not [
        name
        for name in formats
        if any(word in name for word in ("fp32", "int8", "w4a16"))
    ]
    assert {name for kind, name in measured_scope() if kind == "pipeline"} == {
        "trtllm-cpp"
    }


@pytest.mark.parametrize(
    ("layout", "engine", "new"),
    [
        (ONE_STAGE, "vllm", set()),
        (TWO_STAGES, "vllm", {"pipeline"}),
        (TWO_STAGES, "sglang", {"pipeline"}),
        (TWO_STAGES, "trtllm-cpp", set()),
        (replace(ONE_STAGE, precision="fp16"), "vllm", set()),
        (replace(ONE_STAGE, precision="fp32"), "vllm", {"precision"}),
        (replace(ONE_STAGE, precision="int4"), "vllm", {"precision"}),
        (
            replace(TWO_STAGES, precision="fp32"),
            "vllm",
            {"pipeline", "precision"},
        ),
    ],
)
def test_only_what_was_measured_is_called_calibrated(
    layout: ReplicaLayout, engine: str, new: set[str]
) -> None:
    found, basis = assess_novelty(LLAMA, layout, H100, engine)
    assert found == new
    assert basis == ("physics" if new else "calibrated")


@pytest.mark.parametrize(
    ("new", "excesses"),
    [
        ({"family"}, 0.3025**2 - 0.1670**2),
        ({"GPU"}, 0.2425**2 - 0.1670**2),
        ({"pipeline"}, 0.3025**2 - 0.1670**2),
        ({"precision"}, 0.3025**2 - 0.1670**2),
        ({"pipeline", "precision"}, 2 * (0.3025**2 - 0.1670**2)),
        (
            {"GPU", "pipeline"},
            0.2425**2 + 0.3025**2 - 2 * 0.1670**2,
        ),
    ],
)
def test_what_cannot_be_left_out_widens_a_band_as_the_worse_of_what_can(
    new: set[str], excesses: float
) -> None:
    """Offline throughput: half widths of 0.2945 by source, 0.1670, 0.3025 and 0.2425 otherwise."""
    band = error_band("throughput", "offline", frozenset(new), "physics")
    half_width = math.sqrt(0.2945**2 + excesses)
    assert math.log(band.high / band.low) == pytest.approx(2 * half_width)
    assert math.log(band.high * band.low) == pytest.approx(0.353 - 0.236)


def test_margins_grow_with_what_cannot_be_left_out() -> None:
    """Decoding on Hopper: 0.079 by source; 0.069 fitted, 0.075 and 0.067 left out."""
    error = rate_error("decode", "Hopper", frozenset({"pipeline"}), "physics")
    assert error.sigma == pytest.approx(
        math.sqrt(0.079**2 + 0.075**2 - 0.069**2)
    )
    lengths = LengthDistribution(mean_tokens=900, p95_tokens=3000)
    load = ServingLoad(prompt_lengths=lengths, answer_lengths=lengths)

    def margin(layout: ReplicaLayout, engine: str) -> float:
        return rate_margins(
            0.9,
            LLAMA,
            layout,
            H100,
            load,
            engine_kind=engine,
            metrics=["tpot"],
        ).decode

    measured = margin(ONE_STAGE, "vllm")
    assert margin(TWO_STAGES, "trtllm-cpp") == measured
    assert margin(TWO_STAGES, "vllm") > measured
    wide = replace(ONE_STAGE, precision="fp32")
    assert margin(wide, "vllm") == margin(TWO_STAGES, "vllm")
    both = replace(TWO_STAGES, precision="fp32")
    assert margin(both, "vllm") > margin(TWO_STAGES, "vllm")
