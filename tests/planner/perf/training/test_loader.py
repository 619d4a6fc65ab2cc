"""What cores prepare for a training job: laws, and what others measured."""

from __future__ import annotations

import csv
import math

import pytest
from hypothesis import given
from hypothesis import strategies as some

from planner.perf.training.framework import frameworks
from planner.perf.training.job import ParallelLayout
from planner.perf.training.loader import (
    LoaderWork,
    loader_cores,
    loaders,
    rank_workers,
)
from tests.conftest import ROOT

TRUTH = ROOT / "tests" / "data" / "truth" / "loaders.csv"
ROWS = list(csv.DictReader(TRUTH.read_text(encoding="utf-8").splitlines()))
CORES = some.integers(1, 512)
ACCELERATORS = some.integers(1, 16)


def predicted_samples_s(row: dict[str, str]) -> float:
    """Images or tokens that so many cores prepare in a second."""
    rate = loaders()[row["form"]].unit_rate
    assert rate is not None
    return float(row["cores"]) * rate / float(row["pixels"] or 1)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row["kind"] == "loader"], ids=str
)
def test_loaders_were_measured_within_the_band(row: dict[str, str]) -> None:
    error_ln = math.log(predicted_samples_s(row) / float(row["samples_s"]))
    assert abs(error_ln) <= loaders()[row["form"]].half_width_ln


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row["kind"] == "thread"], ids=str
)
def test_a_thread_alone_or_a_faster_library_is_never_slower(
    row: dict[str, str],
) -> None:
    assert predicted_samples_s(row) < float(row["samples_s"])


@given(cores=CORES, more=CORES, accelerators=ACCELERATORS)
def test_more_cores_are_never_fewer_for_loaders(
    cores: int, more: int, accelerators: int
) -> None:
    few = loader_cores(cores, accelerators)
    assert 0 < few <= cores
    assert few <= loader_cores(cores + more, accelerators)
    assert few >= loader_cores(cores, accelerators + 1)


@given(
    cores=some.floats(0.5, 512),
    ranks=some.integers(1, 16),
    share=some.floats(0, 10),
    more=some.floats(0, 10),
)
def test_workers_follow_what_is_needed_and_never_exceed_the_cores(
    cores: float, ranks: int, share: float, more: float
) -> None:
    workers = rank_workers(cores, ranks, share)
    assert workers >= 1
    assert workers == 1 or workers * ranks <= cores
    assert workers <= rank_workers(cores, ranks, share + more)
    # A job that starves has a worker for each whole core.
    assert rank_workers(cores, ranks, 1.5) == max(1, int(cores / ranks))


@pytest.mark.parametrize(
    ("framework", "tensor_ranks", "loading"),
    [
        ("megatron", 1, 8),
        ("megatron", 4, 2),
        ("megatron", 8, 1),
        ("megatron", 16, 1),
        ("torchtitan", 8, 8),
        ("hf", 1, 8),
    ],
)
def test_megatron_loads_on_one_rank_of_each_tensor_group(
    framework: str, tensor_ranks: int, loading: int
) -> None:
    found = frameworks()[framework]
    assert found.loading_ranks(8, tensor_ranks) == loading


def test_a_sample_is_prepared_again_where_its_framework_loads_it_again() -> (
    None
):
    layout = ParallelLayout(tp=4, pp=3, cp=2, dp=5)
    copies = {
        name: framework.sample_copies(layout)
        for name, framework in frameworks().items()
    }
    # Megatron: first and last stage, each part of the context.
    assert copies["megatron"] == 4
    assert copies["torchtitan"] == 24
    alone = ParallelLayout(dp=64)
    assert {f.sample_copies(alone) for f in frameworks().values()} == {1}


def test_work_adds_up_in_core_seconds() -> None:
    """45 million pixels take one core a second, and so do 715 million bytes."""
    images = loaders()["images"]
    work = LoaderWork(loader=images, units=90e6, samples=1.0, read_bytes=0.0)
    assert work.core_s == pytest.approx(2.0)
    read = LoaderWork(loader=images, units=0.0, samples=1.0, read_bytes=1.43e9)
    assert read.core_s == pytest.approx(2.0)
    packed = loaders()["tokens"]
    free = LoaderWork(loader=packed, units=1e12, samples=1e12, read_bytes=0.0)
    assert free.core_s == 0.0


def test_an_image_of_imagenet_has_the_bytes_that_are_on_disk() -> None:
    """138 GB of 1,281,167 images, of 788.97 GB of raw pixels of three bytes."""
    pixels = 788.97e9 / 3 / 1_281_167
    assert pixels == pytest.approx(205_000, rel=0.01)
    assert loaders()["images"].unit_bytes * pixels == pytest.approx(
        138e9 / 1_281_167, rel=0.01
    )
