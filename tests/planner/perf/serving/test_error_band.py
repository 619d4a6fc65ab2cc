"""What counts as new, against the measurements; what it adds, counted from the tables by hand."""

from __future__ import annotations

import csv
import math
from random import Random
from statistics import fmean, stdev

import pytest
from msgspec.structs import replace

from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model
from planner.perf.common.layout import ReplicaLayout
from planner.perf.serving.deployment import LoadKind
from planner.perf.serving.error_band import (
    assess_novelty,
    error_band,
    load_of_engine,
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
    ("load", "engine", "new"),
    [
        ("closed", "sglang", set()),
        ("offline", "sglang", {"engine"}),
        ("open", "sglang", {"engine"}),
        ("static", "trtllm", {"engine"}),
        ("static", "vllm", set()),
    ],
)
def test_an_engine_is_new_under_a_load_that_it_was_never_measured_at(
    load: LoadKind, engine: str, new: set[str]
) -> None:
    found, basis = assess_novelty(
        LLAMA, ONE_STAGE, H100, engine, load_kind=load
    )
    assert found == new
    assert basis == ("physics" if new else "calibrated")


def quantiles(target: str, load: str, new: str) -> tuple[float, float]:
    """Both ends of the errors that the table has, as logarithms."""
    [row] = [
        row
        for row in stored("bands.csv")
        if (row["target"], row["load"], row["new"]) == (target, load, new)
    ]
    return float(row["low"]), float(row["high"])


def half_width(new: str) -> float:
    """Of the errors of offline throughput."""
    low, high = quantiles("throughput", "offline", new)
    return (high - low) / 2


def moments(load: str, architecture: str, new: str) -> tuple[float, float]:
    """Mean and spread of the errors of decoding that the table has, as logarithms."""
    [row] = [
        row
        for row in stored("margins.csv")
        if (row["target"], row["load"]) == ("decode", load)
        and (row["architecture"], row["new"]) == (architecture, new)
    ]
    return float(row["mean"]), float(row["sigma"])


def stored(name: str) -> list[dict[str, str]]:
    path = ROOT / "planner" / "perf" / "data" / name
    with path.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize(
    ("new", "left_out"),
    [
        ({"family"}, ["family"]),
        ({"GPU"}, ["GPU"]),
        # Nobody measured these: the worse of both stands for them.
        ({"pipeline"}, ["family"]),
        ({"precision"}, ["family"]),
        ({"pipeline", "precision"}, ["family", "family"]),
        ({"GPU", "pipeline"}, ["GPU", "family"]),
    ],
)
def test_what_cannot_be_left_out_widens_a_band_as_the_worse_of_what_can(
    new: set[str], left_out: list[str]
) -> None:
    """Offline throughput, where families left out err more than accelerators do."""
    assert half_width("family") > half_width("GPU")
    band = error_band("throughput", "offline", frozenset(new), "physics")
    excess = sum(
        half_width(name) ** 2 - half_width("none") ** 2 for name in left_out
    )
    width = math.sqrt(half_width("source") ** 2 + excess)
    assert math.log(band.high / band.low) == pytest.approx(2 * width)
    middle = sum(quantiles("throughput", "offline", "source"))
    assert math.log(band.high * band.low) == pytest.approx(middle)


@pytest.mark.parametrize("target", ["tpot", "ttft"])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_an_engine_that_was_measured_enough_has_its_own_band(
    target: str, engine: str
) -> None:
    low, high = quantiles(target, f"closed {engine}", "source")
    load_kind = load_of_engine("closed", engine)
    band = error_band(target, load_kind, frozenset(), "calibrated")
    assert (math.log(band.low), math.log(band.high)) == pytest.approx(
        (low, high)
    )


@pytest.mark.parametrize("target", ["tpot", "ttft", "throughput", "served"])
@pytest.mark.parametrize("load_kind", ["offline", "static", "burst", "open"])
def test_an_engine_with_few_rows_has_the_band_of_all(
    target: str, load_kind: str
) -> None:
    of_engine = load_of_engine(load_kind, "sglang")
    novelties = frozenset({"family"})
    assert error_band(target, of_engine, novelties, "physics") == error_band(
        target, load_kind, novelties, "physics"
    )


def test_unstated_settings_have_the_band_of_all_engines() -> None:
    """Too few rows of one engine have drafts whose settings nobody states."""
    bands = [
        error_band(
            "ttft",
            load_of_engine("closed", engine),
            frozenset({"loose"}),
            "physics",
        )
        for engine in ("vllm", "sglang", "nothing")
    ]
    assert len(set(bands)) == 1


def test_margins_grow_with_what_cannot_be_left_out() -> None:
    """Decoding on Hopper, whose error is known by source."""
    error = rate_error("decode", "Hopper", frozenset({"pipeline"}), "physics")
    _, source = moments("closed vllm", "Hopper", "source")
    _, fitted = moments("closed vllm", "*", "none")
    left_out = max(
        moments("closed vllm", "*", new)[1] for new in ("family", "GPU")
    )
    assert error.sigma == pytest.approx(
        math.sqrt(source**2 + left_out**2 - fitted**2)
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


def test_a_margin_covers_the_error_as_often_as_it_says() -> None:
    """Draws of a mean and an error, as an estimate from so few cells has them."""
    error = rate_error("decode", "Hopper", frozenset(), "physics")
    draw = Random(1)
    drawn = []
    for _ in range(20_000):
        sample = [draw.gauss(0.0, 1.0) for _ in range(error.cells)]
        spread = stdev(sample)
        # What the next row is away from the mean, in spreads of those before it.
        drawn.append((draw.gauss(0.0, 1.0) - fmean(sample)) / spread)
    for probability in (0.01, 0.05, 0.3, 0.9, 0.99):
        factor = error.slowdown(probability)
        reach = (math.log(factor) - error.mean) / error.sigma
        covered = sum(one <= reach for one in drawn) / len(drawn)
        assert covered == pytest.approx(probability, abs=0.01)
    assert error.slowdown(0.05) < 1 < error.slowdown(0.95)


@pytest.mark.parametrize("gpu", ["mi300x", "mi325x", "mi355x", "tpu-v6e"])
def test_a_vendor_that_one_source_measured_is_not_called_calibrated(
    gpu: str,
) -> None:
    """Rows of quality A: each load of AMD is of one source, and all of TPUs are kept apart."""
    sources: dict[str, set[str]] = {}
    for row in truth("inference.csv"):
        if row["quality"] == "A" and row["gpu"].startswith("MI"):
            sources.setdefault(row["load_kind"], set()).add(row["source_group"])
    assert sources
    assert all(len(found) == 1 for found in sources.values())
    accelerator = accelerators()[gpu]
    for engine in ("vllm", "sglang"):
        found, basis = assess_novelty(LLAMA, ONE_STAGE, accelerator, engine)
        assert "vendor" in found
        assert "maker" not in found
        assert basis in ("physics", "spec")


@pytest.mark.parametrize("kind", ["vendor", "release"])
def test_few_of_a_kind_reach_as_far_as_they_erred(kind: str) -> None:
    """Times per token in closed loops, by the quantiles of the table."""
    base = quantiles("tpot", "closed", "source")
    left_out = quantiles("tpot", "closed", kind)
    fitted = quantiles("tpot", "closed", f"{kind} fitted")
    middle = sum(base) / 2

    def reach(quantiles: tuple[float, float]) -> float:
        return max(abs(quantile - middle) for quantile in quantiles)

    half_width = math.sqrt(
        ((base[1] - base[0]) / 2) ** 2
        + reach(left_out) ** 2
        - reach(fitted) ** 2
    )
    band = error_band("tpot", "closed", frozenset({kind}), "physics")
    assert math.log(band.high) == pytest.approx(middle + half_width)
    assert math.log(band.low) == pytest.approx(middle - half_width)


def test_margins_on_a_new_vendor_grow_by_the_size_of_its_errors() -> None:
    """Decoding: mean and spread left out, without what they are in the fit."""
    left_out = moments("closed", "*", "vendor")
    fitted = moments("closed", "*", "vendor fitted")
    grown = sum(size**2 for size in left_out) - sum(size**2 for size in fitted)
    known = rate_error("decode", "CDNA3", frozenset(), "physics")
    error = rate_error("decode", "CDNA3", frozenset({"vendor"}), "physics")
    assert error.sigma**2 == pytest.approx(known.sigma**2 + grown)
    assert error.mean == known.mean
    rows = rate_error("throughput", "CDNA3", frozenset({"vendor"}), "physics")
    base = rate_error("throughput", "CDNA3", frozenset(), "physics")
    assert rows.sigma**2 == pytest.approx(base.sigma**2 + grown)
