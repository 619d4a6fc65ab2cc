"""Releases in their order, against packaging's own, and what an unlisted one is taken for."""

from __future__ import annotations

import csv
from datetime import date
from typing import Final

import pytest

from planner.estimate.cell import VERSION_PATTERN
from planner.estimate.engine_release import find_release
from tests.conftest import ROOT
from tests.planner.estimate.rows import answered

RELEASES: Final = ROOT / "planner" / "estimate" / "data" / "releases.csv"
ROW: Final = {
    "row_id": "one",
    "model": "llama-3.1-70b",
    "gpu": "h100-sxm",
    "framework": "vllm",
    "weight_precision": "fp8",
    "tp": "4",
    "load_kind": "concurrency",
    "concurrency": "16",
    "input_len": "1024",
    "output_len": "512",
}


def listed() -> list[dict[str, str]]:
    with RELEASES.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def answer(**cells: str) -> dict[str, str]:
    return answered(ROW | cells)


def width(column: str, **cells: str) -> float:
    found = answer(**cells)
    return float(found[f"{column}_high"]) / float(found[f"{column}_low"])


def test_every_listed_release_is_itself() -> None:
    for row in listed():
        assert VERSION_PATTERN.fullmatch(row["version"])
        found = find_release(row["engine"], row["version"], None)
        assert found is not None
        day = date.fromisoformat(row["released"])
        elapsed = (day - date(day.year, 1, 1)).days / 365.25
        assert found.year == pytest.approx(day.year + elapsed, abs=0.01)


@pytest.mark.parametrize(
    ("engine", "version", "earlier"),
    [
        ("vllm", "0.10.1.2", "0.10.1.1"),
        ("vllm", "0.11", "0.11.0"),
        ("vllm", "0.13.9", "0.13.0"),
        ("vllm", "0.14.0rc1", "0.13.0"),
        ("vllm", "0.99.0", "0.33.0"),
        ("vllm", "0.1.0", "0.1.5"),
        ("sglang", "0.5.9.post4", "0.5.9"),
        ("trtllm", "1.2.0rc6.post9", "1.2.0rc6.post3"),
        ("trtllm-cpp", "0.20.0.post1", "0.20.0"),
    ],
)
def test_an_unlisted_release_is_the_nearest_earlier_one(
    engine: str, version: str, earlier: str
) -> None:
    assert find_release(engine, version, None) == find_release(
        engine, earlier, None
    )


def test_a_date_counts_where_releases_say_nothing() -> None:
    assert find_release("nim", "1.8.0", 2025.5) is None
    between = find_release("vllm", "0.13.9", 2026.5)
    assert between == find_release("vllm", "0.13.9", None)
    before = find_release("trtllm", "0.6.1", 2024.0)
    assert before is not None
    assert before.year == 2024.0
    after = find_release("vllm", "0.99.0", 2027.5)
    assert after is not None
    assert after.year == 2027.5
    known = find_release("vllm", "0.33.0", 2027.5)
    assert known == find_release("vllm", "0.33.0", None)


def test_each_release_is_answered_as_what_it_was() -> None:
    """Releases that were one before: the scheduler, the memory and the age of each differ."""
    for engine, names in (
        ("vllm", ("0.9.2", "0.10.2", "0.11.0", "0.13.0", "0.19.0")),
        ("trtllm", ("0.20.0", "1.0.0", "1.2.0")),
        ("sglang", ("0.4.6", "0.5.1", "0.5.9")),
    ):
        found = {
            answer(framework=engine, version=name)["tpot_ms_mean"]
            for name in names
        }
        assert len(found) == len(names)


def test_a_scheduler_is_that_of_the_release_and_not_of_the_newest() -> None:
    for version in ("0.11.0", "0.13.0"):
        told = answer(version=version, async_scheduling="no")
        assert answer(version=version) == told
    told = answer(version="0.14.1", async_scheduling="yes")
    assert answer(version="0.14.1") == told


@pytest.mark.parametrize(
    ("engine", "measured", "newer"),
    [
        ("vllm", "0.18.0", "0.25.0"),
        ("sglang", "0.5.12", "0.5.20"),
        ("trtllm", "1.2.0rc6", "1.3.0rc20"),
    ],
)
def test_a_release_that_no_fit_has_seen_is_less_sure(
    engine: str, measured: str, newer: str
) -> None:
    known = answer(framework=engine, version=measured)
    later = answer(framework=engine, version=newer)
    assert known["basis"] == "calibrated"
    assert later["basis"] == "physics"
    # A number whose errors were no larger on releases that were left out stays as wide.
    widened = [
        width(column, framework=engine, version=newer)
        / width(column, framework=engine, version=measured)
        for column in ("tpot_ms_mean", "ttft_ms_mean", "output_tok_s")
    ]
    assert min(widened) > 1 - 1e-4
    assert max(widened) > 1.01


def test_what_a_plan_starts_is_as_sure_as_what_was_measured() -> None:
    """The row of the engine describes 0.19, whose source was read."""
    assert answer()["basis"] == "calibrated"
    assert answer(version="0.19.0")["basis"] == "calibrated"
    assert answer(date="2026-09")["basis"] == "physics"
