"""Benchmark files of the usual tools are read, and teach what they should."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from msgspec.structs import replace

from planner.errors import UsageError
from planner.estimate import calibrate as learn
from planner.estimate import calibration_file
from planner.estimate.benchmark import BenchmarkPoint, read_benchmark
from planner.estimate.inference import predict_inference
from planner.estimate.inference_row import row_deployment
from planner.facts.llm import find_model
from planner.perf.common.constant import constant
from planner.perf.common.layout import ReplicaLayout
from planner.perf.serving.correction import (
    FEATURE_NAMES,
    Correction,
    feature_vector,
    posterior,
    prior,
)
from planner.perf.serving.margin import RateMargins
from planner.perf.serving.replica import Confidence, Replica
from tests.conftest import ROOT, chat
from tests.planner.cli.conftest import Command
from tests.planner.perf.test_serving import load, node
from tests.planner.test_estimate import row

FILES = sorted((ROOT / "tests" / "data" / "benchmarks").glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_format_is_read_alike(path: Path) -> None:
    """The files hold the same two loads: 8 and 32 users of 1,024 and 256 tokens."""
    points = read_benchmark(path.read_text(), str(path))
    assert points
    for point in points:
        assert 0.001 < point.tpot_s < 0.1
        assert 0.01 < point.ttft_s < 5
        assert point.user_count >= 1
        if point.user_count == 32 and "inferencex" not in path.stem:
            assert (point.prompt_tokens, point.answer_tokens) == (1024, 256)
            assert point.tpot_s == pytest.approx(0.0129)
            assert point.ttft_s == pytest.approx(0.148)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "{}",
        '{"a": 1}',
        "[1, 2]",
        "a,b\n1,2\n",
        '{"model_id": "x"}',
    ],
)
def test_another_format_names_what_was_tried(text: str) -> None:
    with pytest.raises(
        UsageError, match="no benchmark that can be read"
    ) as caught:
        read_benchmark(text, "bench.json")
    assert "vLLM" in caught.value.problems[0].next_step


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_truncated_file_is_refused(path: Path) -> None:
    text = path.read_text().rstrip()
    with pytest.raises(UsageError):
        read_benchmark(text[: len(text) - len(text) // 3], str(path))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mean_tpot_ms", 0),
        ("mean_ttft_ms", float("nan")),
        ("completed", 0),
        ("total_output_tokens", -5),
    ],
)
def test_numbers_that_nothing_has_are_refused(key: str, value: float) -> None:
    path = next(p for p in FILES if p.stem == "vllm_bench_serve")
    document = json.loads(path.read_text()) | {key: value}
    with pytest.raises(UsageError):
        read_benchmark(json.dumps(document), "bench.json")


def points(
    bias: float, slope: float = 0.0, users: tuple[int, ...] = (1, 4, 16, 64)
) -> list[BenchmarkPoint]:
    """Points that differ from the predictions by a factor and by a slope over the batch."""
    found = []
    for n in users:
        numbers = predict_inference(
            row_deployment(row(concurrency=str(n), length_spread="narrow"))
        ).columns
        off = bias * (n / 16) ** slope
        found.append(
            BenchmarkPoint(
                place=f"bench.json:{n}",
                model="llama-3.1-8b",
                prompt_tokens=900,
                answer_tokens=180,
                user_count=n,
                ttft_s=numbers["ttft_ms_mean"].value / 1000,
                tpot_s=numbers["tpot_ms_mean"].value / 1000 * off,
                gpu="h100-sxm",
                tp=1,
                precision="fp8",
                framework="vllm",
            )
        )
    return found


@pytest.mark.parametrize("bias", [0.7, 0.9, 1.0, 1.2, 1.5])
def test_a_bias_is_learned(bias: float) -> None:
    found = learn.calibrate(points(bias), {})
    assert found.correction.factor("tpot", 16, 990) == pytest.approx(
        bias, rel=0.08
    )
    for compared in found.comparisons:
        after = abs(compared.after_s["tpot"] / compared.measured_s["tpot"] - 1)
        before = abs(
            compared.before_s["tpot"] / compared.measured_s["tpot"] - 1
        )
        assert after <= before + 0.03


def test_a_slope_over_the_batch_is_learned_from_a_sweep() -> None:
    found = learn.calibrate(
        points(1.1, 0.08, (1, 2, 4, 8, 16, 32, 64, 128)), {}
    ).correction
    rise = found.factor("tpot", 128, 990) / found.factor("tpot", 1, 990)
    assert rise == pytest.approx(128**0.08, rel=0.1)


def test_more_points_leave_less_doubt_and_never_less_than_the_noise() -> None:
    at = feature_vector(16, 1000)
    doubts = [
        posterior("tpot", [(at, 0.1)] * n).deviation(at) for n in range(12)
    ]
    assert doubts == sorted(doubts, reverse=True)
    assert doubts[0] == pytest.approx(
        math.hypot(
            constant("point_noise", "tpot"),
            math.sqrt(
                sum(
                    (s * x) ** 2
                    for s, x in zip(
                        (constant(f"prior_{n}", "tpot") for n in FEATURE_NAMES),
                        at,
                        strict=True,
                    )
                )
            ),
        )
    )
    assert doubts[-1] > constant("point_noise", "tpot")
    assert prior("tpot").mean(at) == 0


def test_the_order_of_points_does_not_matter() -> None:
    told = [(feature_vector(n, 500 * n), 0.01 * n) for n in (1, 3, 9, 27)]
    one = posterior("ttft", told)
    other = posterior("ttft", told[::-1])
    assert one.weights == pytest.approx(other.weights)


def test_an_outlier_and_a_stranger_are_named() -> None:
    found = points(1.0, 0.0, (1, 2, 4, 8, 16, 32))
    found[2] = replace(found[2], tpot_s=found[2].tpot_s * 4)
    found.append(
        replace(
            found[0],
            gpu="a100-80gb-sxm",
            precision="bf16",
            place="other.json:1",
        )
    )
    warnings = " ".join(learn.calibrate(found, {}).warnings)
    assert "bench.json:4 is far" in warnings
    assert "other.json:1 is of llama-3.1-8b on a100-80gb-sxm" in warnings


def test_a_number_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(UsageError, match="no number"):
        read_benchmark('{"completed": ' + "9" * 5000 + "}", "bench.json")


def test_what_a_file_leaves_out_must_be_given() -> None:
    with pytest.raises(UsageError, match="does not say its gpu"):
        learn.calibrate([replace(points(1.0)[0], gpu="")], {})
    found = learn.calibrate(
        [replace(p, gpu="") for p in points(1.0)], {"gpu": "h100-sxm"}
    )
    assert found.correction.accelerator == "h100-sxm"


def test_a_calibration_survives_its_file() -> None:
    found = learn.calibrate(points(1.3), {}).correction
    text = calibration_file.dump_correction(found, {"bench.json": "0" * 64})
    again = calibration_file.parse_correction(text.encode(), "mine.json")
    assert again.factor("tpot", 7, 700) == pytest.approx(
        found.factor("tpot", 7, 700)
    )
    assert len(again.sha256) == 64
    with pytest.raises(UsageError, match="no calibration"):
        calibration_file.parse_correction(b"{}", "mine.json")


def test_a_plan_s_replica_follows_its_calibration() -> None:
    taught = learn.calibrate(
        points(1.4, 0.0, (1, 4, 8, 16, 32, 64)), {}
    ).correction
    layout = ReplicaLayout(precision="fp8", kv_precision="bf16", tp=1)
    model = find_model("llama-3.1-8b")
    host = node("h100-sxm")
    plain = Replica(model, layout, host, load())
    own = Replica(model, layout, host, load(), Confidence(0.5, taught))
    assert own.tpot(16) / plain.tpot(16) == pytest.approx(1.4, rel=0.1)
    assert own.band("tpot").basis == "measured"
    assert (
        own.band("tpot").high / own.band("tpot").low
        < plain.band("tpot").high / plain.band("tpot").low
    )
    # The benchmark was of one stage.
    staged = Replica(
        model, replace(layout, pp=2), host, load(), Confidence(0.5, taught)
    )
    assert staged.band("tpot").basis == "calibrated"
    assert (
        staged.band("tpot").high / staged.band("tpot").low
        > own.band("tpot").high / own.band("tpot").low
    )
    elsewhere = Replica(
        model, layout, node("h200-sxm"), load(), Confidence(0.5, taught)
    )
    assert elsewhere.correction is None


@pytest.mark.parametrize(
    "text",
    [
        '{"input_config": {}}',
        '{"benchmarks": [3]}',
        '{"benchmarks": {}}',
        "[" * 50_000,
        '{"test_results": [], "best_configurations": []}',
    ],
)
def test_an_odd_document_is_a_typed_error(text: str) -> None:
    with pytest.raises(UsageError):
        read_benchmark(text, "bench.json")


@pytest.mark.parametrize(
    "change",
    [
        {"weights": [-50, 0, 0]},
        {"weights": [0, 0]},
        {"weights": ["a", 0, 0]},
        {"noise": 0},
        {"covariance": [[1, 0], [0, 1]]},
        {"covariance": [[-1, 0, 0], [0, 1, 0], [0, 0, 1]]},
    ],
)
def test_a_tampered_calibration_is_refused(change: dict[str, object]) -> None:
    told = json.loads(
        calibration_file.dump_correction(
            learn.calibrate(points(1.2), {}).correction, {}
        )
    )
    told["beliefs"]["tpot"] |= change
    with pytest.raises(UsageError, match="no calibration"):
        calibration_file.parse_correction(
            json.dumps(told).encode(), "mine.json"
        )


def test_a_point_of_something_else_teaches_nothing() -> None:
    found = learn.calibrate(
        [*points(1.0), replace(points(1.0)[0], tpot_s=3.0, place="odd.json:1")],
        {},
    )
    assert "odd.json:1 is more than" in " ".join(found.warnings)
    assert found.correction.points == 4
    assert found.correction.factor("tpot", 16, 990) == pytest.approx(
        1.0, abs=0.05
    )


@pytest.mark.parametrize("question", [(), ("--sensitivity",), ("--ways",)])
def test_a_plan_uses_what_was_learned_and_slower_costs_no_less(
    tonnage: Command, here: Path, question: tuple[str, ...]
) -> None:
    bench = str(ROOT / "tests" / "data" / "benchmarks" / "guidellm_v0.7.json")
    learned = ("--gpu", "h100-sxm", "--precision", "bf16", "-o", "mine.json")
    assert tonnage("calibrate", bench, *learned)[0] == 0
    calibration = json.loads((here / "mine.json").read_text())
    (here / "s.yaml").write_text(
        chat(
            model=calibration["model"],
            precision="bf16",
            traffic="peak_rps: 30",
            extra="where: {accelerators: {allow: [h100-sxm]}}",
        )
    )
    costs = []
    for factor in (0.5, 1, 2):
        weights = calibration["beliefs"]["tpot"]["weights"]
        slower = weights[0] + math.log(factor)
        changed = {"weights": [slower, *weights[1:]]}
        beliefs = {
            **calibration["beliefs"],
            "tpot": {**calibration["beliefs"]["tpot"], **changed},
        }
        name = f"{factor}.json"
        (here / name).write_text(
            json.dumps({**calibration, "beliefs": beliefs})
        )
        code, _, refused = tonnage(
            *("plan", "s.yaml", "--calibration", name),
            *("-f", "json", "-o", f"{factor}.plan"),
        )
        assert code == 0, refused
        plan = json.loads((here / f"{factor}.plan").read_text())
        assert plan["inputs"]["calibration"] == name
        basis = plan["solution"]["predicted"]["tpot_p95_ms"]["basis"]
        assert basis in ("calibrated", "measured")
        costs.append(float(plan["cost"]["total"]))
        assert tonnage("explain", f"{factor}.plan", *question)[0] == 0
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


def doubtful_margins(tp: int, noise: float, level: float) -> RateMargins:
    """Margins of a layout after a benchmark of TP2 that hardly says anything."""
    correction = Correction(
        model="llama-3.1-8b",
        accelerator="h100-sxm",
        precision="bf16",
        tp=2,
        points=1,
        tpot=replace(prior("tpot"), noise_sigma=noise),
        ttft=replace(prior("ttft"), noise_sigma=noise),
    )
    return Replica(
        find_model("llama-3.1-8b"),
        ReplicaLayout(precision="bf16", kv_precision="bf16", tp=tp),
        node("h100-sxm"),
        load(),
        Confidence(level, correction),
        metrics=("tpot", "ttft"),
    ).margins


@pytest.mark.parametrize("level", [0.05, 0.7, 0.9, 0.99])
def test_what_all_measurements_say_bounds_the_doubt_of_the_measured_layout(
    level: float,
) -> None:
    assert doubtful_margins(2, 1, level) == doubtful_margins(2, 2, level)
    # A bias may not carry over to another layout: its doubt is not bounded.
    for tp in (1, 4):
        sure, unsure = (doubtful_margins(tp, noise, level) for noise in (1, 2))
        nearer, further = (sure, unsure) if level > 0.5 else (unsure, sure)
        assert nearer.decode < further.decode
        assert nearer.prefill < further.prefill


def test_a_calibration_that_is_not_there_says_how_to_make_one(
    tonnage: Command, here: Path
) -> None:
    (here / "s.yaml").write_text(chat())
    code, _, told = tonnage("plan", "s.yaml", "--calibration", "no.json")
    assert code == 6
    assert "tonnage calibrate BENCH" in told
