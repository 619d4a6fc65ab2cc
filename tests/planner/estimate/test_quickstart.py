"""Profiles of GKE Inference Quickstart teach what their rows say, and nothing else.

The fixture has the documented form. Its numbers are made up: predictions times 1.15 on H100.
"""

from __future__ import annotations

import json
import math
from copy import deepcopy
from typing import Any

import pytest

from planner.errors import MissingError, UsageError
from planner.estimate import names
from planner.estimate.benchmark import BenchmarkPoint
from planner.estimate.calibrate import _point_deployment, calibrate
from planner.estimate.quickstart import asked_name, read_measured
from planner.facts.accelerator import accelerators
from planner.perf.serving import load_shape
from planner.perf.serving.correction import FEATURE_NAMES, METRICS, Correction
from tests.conftest import ROOT
from tests.providers.shapes import Document, answer_of

PROFILES: list[Document] = answer_of("gcp/benchmarkingData.fetch")["profile"]
H100 = {"gpu": "h100-sxm"}
USERS = (1.0, 4.0, 16.0, 64.0)


def loads(
    factor: float, prompt: float, answer: float, **more: float
) -> dict[str, Any]:
    """A profile of what we predict, times a factor, without rounding."""
    rows = []
    for users in USERS:
        point = BenchmarkPoint(
            place="",
            model="llama-3-8b",
            prompt_tokens=prompt,
            answer_tokens=answer,
            ttft_s=1.0,
            tpot_s=1.0,
            user_count=users,
            gpu="h100-sxm",
            tp=1,
            precision="bf16",
            framework="vllm",
        )
        mean = load_shape.closed_latency(
            _point_deployment(point).replica_rates(), users
        )
        tpot_s, ttft_s = factor * mean.tpot_s, factor * mean.ttft_s
        answer_s = ttft_s + (answer - 1) * tpot_s
        rows.append(
            {
                "queriesPerSecond": users / answer_s,
                "outputTokensPerSecond": users / answer_s * answer,
                "ntpotMilliseconds": 1000 * answer_s / answer,
                "ttftMilliseconds": 1000 * ttft_s,
            }
            | more
        )
    return PROFILES[0] | {
        "performanceStats": rows,
        "workloadSpec": {
            "averageInputLength": prompt,
            "averageOutputLength": answer,
        },
    }


def learned(*profiles: dict[str, Any]) -> Correction:
    points = read_measured(json.dumps(profiles), "gke.json", {}).points
    return calibrate(points, {}).correction


def test_what_we_predict_changes_nothing() -> None:
    correction = learned(loads(1, 128, 256), loads(1, 512, 2048))
    assert correction.points == 2 * len(USERS)
    for metric in METRICS:
        weights = correction.bias_model(metric).weights
        assert weights == pytest.approx([0] * len(FEATURE_NAMES), abs=1e-6)


@pytest.mark.parametrize("metric", METRICS)
def test_slower_profiles_make_predictions_slower(metric: str) -> None:
    factors = [
        learned(loads(factor, 256, 512)).factor(metric, 16, 512)
        for factor in (0.8, 1.0, 1.2, 1.5)
    ]
    assert factors == sorted(factors)
    assert factors[0] < 1 < factors[2]


def test_a_row_has_the_times_that_made_it() -> None:
    """NTPOT * tokens = TTFT + (tokens - 1) * TPOT, and as many in flight as there were."""
    [row, *_] = read_measured(
        json.dumps(
            [
                loads(1, 128, 100)
                | {
                    "performanceStats": [
                        {
                            "queriesPerSecond": 4,
                            "outputTokensPerSecond": 400,
                            # 0.05 s and 99 times 0.02 s, over 100 tokens
                            "ntpotMilliseconds": 20.3,
                            "ttftMilliseconds": 50,
                        }
                    ]
                }
            ]
        ),
        "gke.json",
        {},
    ).points
    assert row.tpot_s == pytest.approx(0.02)
    assert row.ttft_s == pytest.approx(0.05)
    assert row.user_count == pytest.approx(4 * 2.03)
    assert (row.prompt_tokens, row.answer_tokens) == (128, 100)
    assert (row.gpu, row.tp, row.precision) == ("h100-sxm", 1, "bf16")


def test_a_time_between_tokens_that_is_told_is_used() -> None:
    profile = loads(1, 128, 256, itlMilliseconds=17)
    points = read_measured(json.dumps([profile]), "gke.json", {}).points
    assert {point.tpot_s for point in points} == {0.017}
    for row, point in zip(profile["performanceStats"], points, strict=True):
        answer_s = point.ttft_s + 255 * 0.017
        assert point.user_count == pytest.approx(
            max(1, row["queriesPerSecond"] * answer_s)
        )


def test_a_request_that_is_alone_is_one() -> None:
    profile = loads(1, 128, 256)
    for row in profile["performanceStats"]:
        row["queriesPerSecond"] /= 100
        row["outputTokensPerSecond"] /= 100
    points = read_measured(json.dumps([profile]), "gke.json", {}).points
    assert {point.user_count for point in points} == {1.0}


def test_rows_that_say_too_little_are_named_and_never_used() -> None:
    found = read_measured(json.dumps(PROFILES), "gke.json", H100)
    reasons = (
        ":2.4 is left out: it lacks its rate, NTPOT or TTFT",
        ":2.5 is left out: 4 answers/s of 2048 tokens are not 2048 tokens/s",
        ":2.6 is left out: its TPOT of 3.0 ms is too short",
        ":2.7 is left out: 22% of an answer's time is TTFT",
        ":3 is left out: it is of gpu l4, not h100-sxm",
        ":4 is left out: it does not say how long prompts and answers were",
        ":5 is left out: it went through the serving stack 'llm-d'",
        ":6 is left out: it ran on TPUs",
        ":7 is left out: no accelerator type of GKE that we know",
    )
    assert len(found.left_out) == len(reasons)
    for sentence, reason in zip(found.left_out, reasons, strict=True):
        assert sentence.startswith(f"gke.json{reason}")
    named = {sentence.split()[0] for sentence in found.left_out}
    for point in found.points:
        assert point.place not in named
        assert point.place.rpartition(".")[0] not in named


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"modelServerInfo": {"model": "x", "modelServer": "tgi"}}, "'tgi'"),
        ({"modelServerInfo": {"model": "x"}}, "not by vllm"),
        (
            {"modelServerInfo": {"model": "nosuch-9b", "modelServer": "vllm"}},
            "nosuch-9b",
        ),
        ({"resourcesUsed": {}}, "how many accelerators"),
        ({"resourcesUsed": {"acceleratorCount": 65}}, "how many accelerators"),
        ({"workloadSpec": {"averageInputLength": 128}}, "how long"),
        ({"acceleratorType": "H100"}, "'H100'"),
        ({"acceleratorType": ""}, "''"),
    ],
)
def test_a_profile_of_something_else_is_left_out(
    change: dict[str, Any], reason: str
) -> None:
    profiles = [PROFILES[0], PROFILES[1] | change]
    found = read_measured(json.dumps(profiles), "gke.json", H100)
    [sentence] = found.left_out
    assert reason in sentence
    assert all(point.place.startswith("gke.json:1.") for point in found.points)


@pytest.mark.parametrize("number", [math.inf, math.nan, -1.0, 0.0])
@pytest.mark.parametrize(
    "field",
    [
        "queriesPerSecond",
        "outputTokensPerSecond",
        "ntpotMilliseconds",
        "ttftMilliseconds",
    ],
)
def test_an_impossible_number_is_not_used(field: str, number: float) -> None:
    profile = deepcopy(PROFILES[0])
    profile["performanceStats"][1][field] = number
    text = json.dumps([profile])
    points = read_measured(text, "gke.json", {}).points
    assert [point.place[-1] for point in points] == ["1", "3", "4"]


def test_numbers_may_come_as_text() -> None:
    profile = deepcopy(PROFILES[0])
    profile["workloadSpec"] |= {"averageInputLength": "128"}
    assert read_measured(json.dumps([profile]), "gke.json", {}) == (
        read_measured(json.dumps(PROFILES[:1]), "gke.json", {})
    )


def test_several_deployments_are_not_mixed() -> None:
    with pytest.raises(UsageError, match="several deployments") as caught:
        read_measured(json.dumps(PROFILES), "gke.json", {})
    [problem] = caught.value.problems
    assert problem.next_step == "choose one, such as --gpu h100-sxm --tp 1"
    assert "llama-3-8b on l4, TP1: 2 points" in problem.cause


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"gpu": "t4"}, "no profile that can be used"),
        ({"tp": "8"}, "no profile that can be used"),
        ({"framework": "sglang"}, "no profile that can be used"),
        ({"gpu": "h1000"}, "no gpu is named 'h1000'"),
    ],
)
def test_a_choice_that_nothing_has_is_refused(
    chosen: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        read_measured(json.dumps(PROFILES), "gke.json", chosen)


@pytest.mark.parametrize(
    "change",
    [
        {"modelServerInfo": "vllm"},
        {"performanceStats": {}},
        {"performanceStats": [{"ttftMilliseconds": "soon"}]},
        {"workloadSpec": None},
    ],
)
def test_a_misshapen_profile_refuses_the_file(change: dict[str, Any]) -> None:
    text = json.dumps([PROFILES[0], PROFILES[1] | change])
    with pytest.raises(UsageError, match="no profile of GKE") as caught:
        read_measured(text, "gke.json", {})
    assert str(caught.value.problems[0].place) == "gke.json:2"


def test_files_of_tools_are_read_as_before() -> None:
    path = ROOT / "tests" / "data" / "benchmarks" / "vllm_bench_serve.json"
    found = read_measured(path.read_text(), str(path), H100)
    assert found.points
    assert not found.left_out


def test_accelerator_types_are_ours() -> None:
    spelled = [
        spelling
        for kind, spelling in names._spelling_table()
        if kind == "gke_accelerator"
    ]
    for spelling in spelled:
        assert names.resolve_gke_accelerator(spelling) in accelerators()


PROFILED = [
    "meta-llama/Meta-Llama-3-8B",
    "meta-llama/Llama-3.3-70B-Instruct",
    "deepseek-ai/DeepSeek-R1",
    "deepseek-ai/DeepSeek-V3.1",
    "nobody/no-such-model",
]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("llama-3-8b", PROFILED[0]),
        ("meta-llama/meta-llama-3-8b", PROFILED[0]),
        (" llama-3.3-70b ", PROFILED[1]),
        ("deepseek-ai/DeepSeek-R1", PROFILED[2]),
    ],
)
def test_a_model_is_asked_by_the_name_of_the_service(
    model: str, name: str
) -> None:
    assert asked_name(model, PROFILED) == name


@pytest.mark.parametrize(
    ("model", "next_step"),
    [
        ("llama-3.1-70b", "did you mean 'meta-llama/Llama-3.3-70B-Instruct'?"),
        ("deepseek-v3", "did you mean 'deepseek-ai/DeepSeek-V3.1'?"),
        ("meta-lama/Meta-Lama-3-8B", f"did you mean '{PROFILED[0]}'?"),
        ("zzz", f"name one of {', '.join(sorted(PROFILED))}"),
    ],
)
def test_another_model_is_not_guessed(model: str, next_step: str) -> None:
    with pytest.raises(MissingError) as caught:
        asked_name(model, PROFILED)
    assert caught.value.problems[0].next_step == next_step
