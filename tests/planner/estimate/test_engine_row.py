"""What a row of a table says of the scheduler of its engine."""

from __future__ import annotations

import csv
from typing import Final

import pytest

from tests.conftest import ROOT
from tests.planner.estimate.rows import answered

TRUTH: Final = ROOT / "tests" / "data" / "truth" / "inference.csv"
CONFIGURATION: Final = {
    "row_id": "one",
    "model": "gpt-oss-120b",
    "gpu": "h100-sxm",
    "framework": "vllm",
    "weight_precision": "mxfp4",
    "version": "0.18.0",
    "tp": "4",
    "load_kind": "concurrency",
    "concurrency": "8",
    "input_len": "1024",
    "output_len": "1024",
}


def answer(**cells: str) -> dict[str, str]:
    return answered(CONFIGURATION | cells)


def tpot(**cells: str) -> float:
    return float(answer(**cells)["tpot_ms_mean"])


@pytest.mark.parametrize(
    ("cells", "same"),
    [
        ({"version": "0.18.0"}, "yes"),
        ({"version": "0.12.0"}, "no"),
        # Guesses from the prompt are made on the CPU, which cannot plan ahead then.
        ({"version": "0.18.0", "draft": "ngram"}, "no"),
        ({"version": "0.18.0", "draft": "eagle3"}, "yes"),
    ],
)
def test_a_blank_scheduler_is_what_the_release_does(
    cells: dict[str, str], same: str
) -> None:
    other = "no" if same == "yes" else "yes"
    assert tpot(**cells) == tpot(**cells, async_scheduling=same)
    assert tpot(**cells) != tpot(**cells, async_scheduling=other)
    assert tpot(**cells, async_scheduling="yes") < tpot(
        **cells, async_scheduling="no"
    )


@pytest.mark.parametrize(
    ("engine", "accelerator", "tokens"),
    [
        # vllm/engine/arg_utils.py: 8,192 of a server on 70 GiB and more, but on A100.
        ("vllm", "h100-sxm", 8192),
        ("vllm", "a100-80gb-sxm", 2048),
        ("vllm", "l40s", 2048),
        # sglang/srt/server_args.py, by memory.
        ("sglang", "l40s", 4096),
        ("sglang", "h100-sxm", 8192),
        ("sglang", "b200-sxm", 16384),
        ("tensorrt-llm", "h100-sxm", 8192),
    ],
)
def test_a_blank_budget_is_what_the_engine_takes_by_itself(
    engine: str, accelerator: str, tokens: int
) -> None:
    cells = {
        "model": "llama-3.1-8b",
        "gpu": accelerator,
        "framework": engine,
        "weight_precision": "bf16",
        "version": "",
        "tp": "1",
        "concurrency": "32",
        "input_len": "6000",
    }
    blank = answer(**cells)
    assert blank["status"] == "ok"
    assert answer(**cells, token_budget=str(tokens)) == blank
    # A prompt of 6,000 tokens takes part of a step of this one, and a whole one of the other.
    other = 4 * tokens if tokens < 6000 else tokens // 4
    assert answer(**cells, token_budget=str(other)) != blank


def test_a_word_that_is_neither_yes_nor_no_is_refused() -> None:
    found = answer(async_scheduling="maybe")
    assert found["status"] == "refused"
    assert "async_scheduling 'maybe'" in found["reason"]


def test_planning_ahead_saves_as_little_as_was_measured_on_one_machine() -> (
    None
):
    """The same server at four users, started without the option and with it."""
    with TRUTH.open(encoding="utf-8") as file:
        pair = [
            row
            for row in csv.DictReader(file)
            if row["source_group"] == "gpustack_lab"
            and row["model"] == "gpt-oss-120b"
            and row["concurrency"] == "4"
        ]
    measured = {
        row["async_scheduling"]: float(row["tpot_ms_mean"]) for row in pair
    }
    cells = {
        name: pair[0][name]
        for name in ("input_len", "output_len", "concurrency")
    }
    cells |= {
        "gpu": "a100-80gb-sxm",
        "tp": "1",
        "version": "",
        "date": pair[0]["source_date"],
    }
    predicted = {
        told: tpot(**cells, async_scheduling=told) for told in ("", "yes")
    }
    saved_ms = predicted[""] - predicted["yes"]
    assert 0 < saved_ms <= measured[""] - measured["yes"]
