"""What a short run of one's own teaches, and what it changes in a plan."""

from __future__ import annotations

import csv
import io
import math
import random

import pytest

from planner.errors import UsageError
from planner.estimate.training_calibration import (
    calibrate_training,
    dump_training,
    is_training_table,
    parse_training,
    read_runs,
)
from planner.estimate.training_recipe import shortest_run
from planner.numeric import Z_OF_90_PERCENT_BAND
from planner.perf.common.constant import constant
from planner.perf.training.correction import learn_bias
from planner.solve.settings import SolveSettings
from planner.workload.solver import find
from providers.catalog.load import load_catalog
from stacks.spec.table import unsupported_reason
from tests.conftest import present, solve, spec_of

SPEC = """apiVersion: tonnage/v1
kind: Training
name: job
model: {name: llama-3.1-8b}
data: {tokens: 20B, location: "s3://bucket/tokens"}
train: {method: pretrain, sequence: 8k, deadline: 30d}
buy: {spot: never}
"""
ROW = {
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm",
    "framework": "torchtitan",
    "compiled": "yes",
    "n_gpus": "8",
    "tp": "1",
    "dp": "8",
    "sharding": "zero3",
    "precision": "bf16",
    "seq_len": "8192",
    "micro_batch": "1",
    "global_batch": "8",
}


def table(rows: list[dict[str, str]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def test_what_runs_teach_is_the_posterior_of_a_normal_bias() -> None:
    """Against a million draws: the mean of the bias, and how far another run is from it."""
    draw = random.Random(3)
    half = 0.3
    variance = (half / Z_OF_90_PERCENT_BAND) ** 2
    shared = constant("train_shared") * variance
    kept = []
    for _ in range(200_000):
        bias = draw.gauss(0, math.sqrt(shared))
        own = bias + draw.gauss(0, math.sqrt(variance - shared))
        if abs(own - 0.1) < 0.01:
            kept.append(bias + draw.gauss(0, math.sqrt(variance - shared)))
    mean, left = learn_bias([0.1], half)
    assert sum(kept) / len(kept) == pytest.approx(mean, abs=0.01)
    inside = sum(abs(x - mean) < left for x in kept) / len(kept)
    assert inside == pytest.approx(0.9, abs=0.02)
    assert left < half
    assert learn_bias([0.1] * 9, half)[1] < left


def test_a_run_that_takes_longer_makes_all_like_it_take_longer() -> None:
    [run] = read_runs(table([ROW | {"step_time_s": "1"}]), "runs.csv")
    slow = table([ROW | {"step_time_s": str(1.2 * run.predicted_s)}])
    assert is_training_table(slow)
    report = calibrate_training(read_runs(slow, "runs.csv"))
    assert 0 < report.correction.bias_ln < math.log(1.2)
    assert report.after_s == (None,)
    kept = dump_training(report.correction, {"runs.csv": "0"}).encode()
    again = present(parse_training(kept, "mine.json"))
    assert again.kind == report.correction.kind
    assert again.bias_ln == pytest.approx(report.correction.bias_ln)


def test_runs_of_something_else_are_left_out_and_told() -> None:
    rows = [
        ROW | {"step_time_s": "2"},
        ROW | {"seq_len": "4096", "step_time_s": "1"},
    ]
    report = calibrate_training(read_runs(table(rows), "runs.csv"))
    assert report.correction.runs == 1
    assert "runs.csv:3" in report.warnings[0]


def test_a_row_that_cannot_be_read_is_named() -> None:
    rows = [
        ROW | {"step_time_s": "2"},
        ROW | {"gpu": "h1000", "step_time_s": "2"},
    ]
    with pytest.raises(UsageError, match="did you mean") as raised:
        read_runs(table(rows), "runs.csv")
    place = present(raised.value.problems[0].place)
    assert (place.path, place.line) == ("runs.csv", 3)


def test_what_is_damaged_is_refused_and_what_is_of_serving_is_not_read() -> (
    None
):
    assert parse_training(b'{"schema": "tonnage.calibration/1"}', "a") is None
    with pytest.raises(UsageError, match="no calibration"):
        parse_training(b'{"schema": "tonnage.training-calibration/1"}', "a")


def test_the_recipe_is_the_plan_on_fewer_machines_and_corrects_it() -> None:
    """A plan that was taught by its own recipe ends later when the run was slower."""
    catalog = load_catalog()
    plain = solve(catalog, SPEC, keep=0)
    recipe = present(shortest_run(plain))
    small = recipe.run.layouts[0].job.layout
    planned = present(plain.training_run).layouts[0].job.layout
    assert small.accelerators <= planned.accelerators
    assert (small.tp, small.pp, small.cp) == (
        planned.tp,
        planned.pp,
        planned.cp,
    )
    text = table([recipe.row | {"step_time_s": "1"}])
    [run] = read_runs(text, "runs.csv")
    slow = table([recipe.row | {"step_time_s": str(1.15 * run.predicted_s)}])
    correction = calibrate_training(read_runs(slow, "runs.csv")).correction
    assert correction.applies_to(present(plain.training_run).layouts[0].job)
    settings = SolveSettings(
        catalog=catalog,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
        alternative_count=0,
        training_correction=correction,
    )
    taught = find(spec_of(SPEC), settings)
    before = plain.predictions["tokens_per_s_per_accelerator"]
    after = taught.predictions["tokens_per_s_per_accelerator"]
    same = (
        present(taught.training_run).layouts[0].job.layout
        == present(plain.training_run).layouts[0].job.layout
    )
    assert after.basis == "measured" or not same
    if same:
        assert after.value < before.value
        assert after.high / after.low < before.high / before.low
