"""Pages of tonnage calibrate: errors of each benchmark point, and a sweep to run."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from planner import figures
from planner.facts.serving_engine import DEFAULT_ENGINE
from planner.render.page import Heading, Page, PageTable, Paragraph

if TYPE_CHECKING:
    from planner.estimate.benchmark_sweep import BenchmarkSweep
    from planner.estimate.calibrate import CalibrationReport, PointComparison
    from planner.estimate.training_calibration import TrainingReport
    from planner.estimate.training_recipe import TrainingRecipe

MS_PER_SECOND = 1000.0


def calibration_page(
    learning: CalibrationReport, calibration_path: str
) -> Page:
    """Return the page of a calibration.

    It has each point before and after the correction, the mean errors and the warnings.
    """
    correction = learning.correction
    headline = (
        f"{correction.points} points of {correction.model} on "
        f"{correction.accelerator}, TP{correction.tp} in {correction.precision}"
    )
    column_titles = (
        "point",
        ">load",
        ">TPOT",
        ">before",
        ">after",
        ">TTFT",
        ">before",
        ">after",
    )
    error_rows = tuple(
        _error_row(learning, metric_name) for metric_name in ("tpot", "ttft")
    )
    next_step = "keep it: add -o FILE"
    if calibration_path:
        next_step = (
            f"use it: tonnage plan SPEC --calibration {calibration_path}"
        )
    return (
        Paragraph(headline, "strong"),
        PageTable(
            column_titles,
            tuple(
                _point_row(comparison) for comparison in learning.comparisons
            ),
        ),
        Paragraph("each point is predicted by the others alone", "dim"),
        PageTable(("mean error", ">before", ">after"), error_rows),
        *(Paragraph(f"! {warning}", "warn") for warning in learning.warnings),
        Paragraph(next_step, "dim"),
    )


def _point_row(comparison: PointComparison) -> tuple[str, ...]:
    bench_point = comparison.point
    load_text = (
        # Some tools tell a mean of the requests in flight.
        f"{round(bench_point.user_count, 1):g} users"
        if bench_point.user_count
        else f"{bench_point.rate_per_s:g}/s"
    )
    row_cells = [
        # Folders are long, and the user gave them on the command line.
        bench_point.place.rsplit("/", 1)[-1]
        + (" !" if comparison.is_outlier else ""),
        load_text,
    ]
    for metric_name in ("tpot", "ttft"):
        measured_s = comparison.measured_s[metric_name]
        row_cells.append(figures.milliseconds(measured_s * MS_PER_SECOND))
        row_cells += [
            # Error of the prediction; positive when it is too slow.
            figures.signed_share(predicted_s[metric_name] / measured_s - 1)
            for predicted_s in (comparison.before_s, comparison.after_s)
        ]
    return tuple(row_cells)


def _error_row(
    learning: CalibrationReport, metric_name: str
) -> tuple[str, str, str]:
    def mean_error(prediction_side: str) -> str:
        relative_errors = [
            # Mean absolute error, so that opposite errors do not cancel.
            abs(
                getattr(comparison, prediction_side)[metric_name]
                / comparison.measured_s[metric_name]
                - 1
            )
            for comparison in learning.comparisons
        ]
        return figures.percentage(statistics.fmean(relative_errors))

    return (metric_name.upper(), mean_error("before_s"), mean_error("after_s"))


def recipe_page(sweep: BenchmarkSweep) -> Page:
    """Return the page of a benchmark sweep: commands, duration and cost."""
    # vLLM does not record these; calibrate reads them from the result.
    metadata_flags = (
        f"--metadata gpu={sweep.accelerator} tp={sweep.layout.tp} "
        f"dtype={sweep.layout.precision}"
    )
    engine_flag = ""
    if sweep.engine != DEFAULT_ENGINE:
        metadata_flags += f" framework={sweep.engine}"
        engine_flag = f" --framework {sweep.engine}"
    table_rows = tuple(
        (
            f"{load_step.user_count}",
            f"{load_step.request_count}",
            f"{load_step.minutes:.1f}",
        )
        for load_step in sweep.steps
    )
    guidellm_rates = ",".join(
        str(load_step.user_count) for load_step in sweep.steps
    )
    cost_text = figures.dollars(sweep.usd, cents=True)
    calibrate_flags = (
        f"--model {sweep.model_name} --gpu {sweep.accelerator} --tp "
        f"{sweep.layout.tp}"
    )
    return (
        Paragraph(
            (
                f"one {sweep.instance_type} for {sweep.minutes:.0f} minutes: about "
                f"{cost_text}"
            ),
            "strong",
        ),
        PageTable((">users", ">requests", ">minutes"), table_rows),
        Heading("with vLLM"),
        *(
            Paragraph(command_line)
            for command_line in _vllm_commands(sweep, metadata_flags)
        ),
        Heading("or with GuideLLM"),
        Paragraph(
            "guidellm benchmark --target http://localhost:8000 --model $MODEL --rate-type "
            f"concurrent --rate {guidellm_rates} --data prompt_tokens={sweep.prompt_tokens},"
            f"output_tokens={sweep.answer_tokens} --output-path bench.json"
        ),
        Heading("then"),
        Paragraph(
            f"tonnage calibrate bench*.json {calibrate_flags} --precision "
            f"{sweep.layout.precision}{engine_flag} -o mine.json"
        ),
    )


def _vllm_commands(sweep: BenchmarkSweep, metadata: str) -> list[str]:
    """Return one vLLM command for each concurrency.

    Each has its own seed. Equal seeds repeat prompts, which the prefix cache would answer.
    """
    return [
        "vllm bench serve --model $MODEL --dataset-name random "
        f"--random-input-len {sweep.prompt_tokens} "
        f"--random-output-len {sweep.answer_tokens} --ignore-eos "
        f"--max-concurrency {load_step.user_count} "
        f"--num-prompts {load_step.request_count} --seed {load_step.user_count} "
        "--percentile-metrics ttft,tpot,itl,e2el "
        f"{metadata} --save-result --result-filename bench-{load_step.user_count}.json"
        for load_step in sweep.steps
    ]


def training_page(report: TrainingReport, calibration_path: str) -> Page:
    """Return the page of a calibration of training: each run before and after, and its band."""
    correction = report.correction
    plural = "s" if correction.runs > 1 else ""
    headline = (
        f"{correction.runs} run{plural} of {correction.kind.model} on "
        f"{correction.kind.accelerator}, {correction.kind.precision}, sequences of "
        f"{correction.kind.sequence_tokens:,}"
    )
    table_rows = tuple(
        (
            run.place.rsplit("/", 1)[-1],
            f"{run.measured_s:.3g} s",
            figures.signed_share(run.predicted_s / run.measured_s - 1),
            "-"
            if after_s is None
            else figures.signed_share(after_s / run.measured_s - 1),
        )
        for run, after_s in zip(report.runs, report.after_s, strict=True)
    )
    learned_text = (
        f"steps take {figures.signed_share(math.exp(correction.bias_ln) - 1)} of what was "
        f"predicted; another run is within {figures.percentage(math.expm1(correction.half_ln))}"
    )
    next_step = "keep it: add -o FILE"
    if calibration_path:
        next_step = (
            f"use it: tonnage plan SPEC --calibration {calibration_path}"
        )
    return (
        Paragraph(headline, "strong"),
        PageTable(("run", ">a step", ">before", ">after"), table_rows),
        Paragraph("after: predicted by the other runs alone", "dim"),
        Paragraph(learned_text),
        *(Paragraph(f"! {warning}", "warn") for warning in report.warnings),
        Paragraph(next_step, "dim"),
    )


def training_recipe_page(
    recipe: TrainingRecipe,
    commands: tuple[str, ...],
    arguments: tuple[str, ...],
) -> Page:
    """Return the page of a short run: machines, commands, arguments, and the table to fill in."""
    return (
        Paragraph(
            f"{recipe.nodes} x {recipe.instance_type} for {recipe.minutes:.0f} minutes: "
            f"about {figures.dollars(recipe.usd, cents=True)}",
            "strong",
        ),
        Heading("on each machine"),
        *(Paragraph(command) for command in commands),
        Heading("then the job, with"),
        *(Paragraph(argument) for argument in arguments),
        Heading("then write runs.csv, with the mean of the last 20 steps"),
        Paragraph(",".join(recipe.row)),
        Paragraph(",".join(recipe.row.values())),
        Heading("then"),
        Paragraph("tonnage calibrate runs.csv -o mine.json"),
    )
