"""What a draft whose guesses are right as often as is assumed does to bands and margins."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model
from planner.numeric import Z_OF_90_PERCENT_BAND
from planner.perf.common.layout import Node, ReplicaLayout
from planner.perf.serving.correction import Correction, prior
from planner.perf.serving.drafting import drafting, find_draft
from planner.perf.serving.error_band import assess_novelty, error_band
from planner.perf.serving.load import LengthDistribution, ServingLoad
from planner.perf.serving.margin import RateTarget, rate_errors
from planner.perf.serving.replica import Confidence, Replica
from tests.conftest import present

MODEL = find_model("llama-3.3-70b")
CHIP = accelerators()["h100-sxm"]
LAYOUT = ReplicaLayout(precision="fp8", kv_precision="bf16", tp=2)
PLAIN = ServingLoad(
    prompt_lengths=LengthDistribution(mean_tokens=1000, p95_tokens=3000),
    answer_lengths=LengthDistribution(mean_tokens=200, p95_tokens=600),
)
DRAFTED = replace(
    PLAIN,
    drafting=drafting(
        present(find_draft("eagle3", MODEL, "llama-3.3-70b")), 0.8
    ),
)
CORRECTION = Correction(
    model=MODEL.model,
    accelerator=CHIP.accelerator,
    precision=LAYOUT.precision,
    tp=LAYOUT.tp,
    points=9,
    tpot=prior("tpot"),
    ttft=prior("ttft"),
)


def replica(load: ServingLoad, correction: Correction | None = None) -> Replica:
    node = Node(
        accelerator=CHIP,
        accelerator_count=8,
        memory_gib=CHIP.memory_gib,
        compute_fraction=1.0,
        scaleup_link=CHIP.link,
        network_gb_s=100.0,
    )
    return Replica(
        MODEL,
        LAYOUT,
        node,
        load,
        Confidence(0.9, correction),
        metrics=("ttft", "tpot"),
    )


@pytest.mark.parametrize("metric", ["tpot", "ttft"])
def test_the_band_of_a_plan_is_that_of_a_row_with_a_draft(metric: str) -> None:
    novelties, basis = assess_novelty(
        MODEL, LAYOUT, CHIP, "vllm", unstated_settings=True
    )
    row_band = error_band(metric, "closed", novelties, basis)
    assert replica(DRAFTED).band(metric) == row_band
    assert row_band.basis == "physics"
    assert replica(PLAIN).band(metric).basis == "calibrated"


def test_margins_of_a_fleet_cover_a_wrong_assumption_of_its_draft() -> None:
    plain, drafted = replica(PLAIN).margins, replica(DRAFTED).margins
    assert plain.decode < 1.2
    # Published loops with unstated settings: 95 % were at most as much slower.
    highest = replica(DRAFTED).band("tpot").high
    assert drafted.decode > highest > plain.decode
    assert drafted.prefill > plain.prefill


@pytest.mark.parametrize("target", ["decode", "prefill", "throughput"])
def test_errors_of_guesses_add_to_those_of_a_rate(target: RateTarget) -> None:
    plain, drafted = (
        rate_errors(MODEL, LAYOUT, CHIP, load, engine_kind="vllm")(target)
        for load in (PLAIN, DRAFTED)
    )
    unstated, stated = (
        math.log(band.high / band.low) / 2 / Z_OF_90_PERCENT_BAND
        for band in (
            error_band("tpot", "closed", frozenset(kinds), "calibrated")
            for kinds in (("loose",), ())
        )
    )
    grown = drafted.sigma**2 - plain.sigma**2
    assert grown == pytest.approx(unstated**2 - stated**2)
    assert drafted.mean == plain.mean


@pytest.mark.parametrize("metric", ["tpot", "ttft"])
def test_a_benchmark_knows_nothing_of_guesses(metric: str) -> None:
    measured = replica(PLAIN, CORRECTION).band(metric)
    drafted = replica(DRAFTED, CORRECTION).band(metric)
    assert measured.basis == "measured"
    assert drafted.basis == "physics"
    assert drafted.low < measured.low
    assert drafted.high > measured.high
    assert drafted.low * drafted.high == pytest.approx(
        measured.low * measured.high
    )
