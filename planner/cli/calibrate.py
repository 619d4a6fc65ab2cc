"""tonnage calibrate: correct predictions with one's own benchmark."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import click

from planner.cli import option
from planner.cli.compose import (
    PlanningOptions,
    open_catalog,
    open_world,
    read_file,
    read_spec,
)
from planner.cli.planning import make_plan
from planner.errors import InfeasibleError, Problem

if TYPE_CHECKING:
    from planner.cli.option import OptionValues
    from planner.render.page import Page


@click.command("calibrate")
@click.argument("benches", nargs=-1, metavar="BENCH...")
@click.option(
    "--recipe",
    metavar="SPEC",
    help="Write the shortest benchmark worth running.",
)
@click.option(
    "--model", metavar="NAME", help="Model, where the files do not say it."
)
@click.option(
    "--gpu", metavar="NAME", help="Accelerator, where the files do not say it."
)
@click.option(
    "--tp",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Accelerators of a replica.",
)
@click.option("--precision", metavar="NAME", help="Precision of the weights.")
@click.option(
    "--framework", metavar="NAME", help="Engine that was measured (vllm)."
)
@option.simulate
@option.catalog
@option.format_option("text", "markdown")
@option.output
@option.color
def command(
    benches: tuple[str, ...], recipe: str | None, **option_values: Any
) -> int:
    """Learn from benchmark files of one deployment; write a calibration for `plan --calibration`.

    Reads vLLM bench serve, GuideLLM, genai-perf, AIPerf, InferenceX and llm-optimizer results, or
    a CSV. Shows each point before and after, predicted by the other points. A few points correct
    the bias, a sweep over concurrency does more: --recipe SPEC writes one.

    Example: tonnage calibrate results/*.json --gpu h100-sxm --tp 4 -o mine.json
    """
    # Exactly one of the two must be given.
    if bool(benches) == bool(recipe):
        raise click.UsageError("give BENCH files, or --recipe SPEC")
    if recipe and option_values["output"]:
        raise click.UsageError(
            "-o keeps what was learned: a recipe is only shown"
        )
    shown_page = (
        _sweep_page(recipe, option_values)
        if recipe
        else _learning_page(benches, option_values)
    )
    option.print_page(
        shown_page, option_values["format"], option_values["color"]
    )
    return 0


def _learning_page(
    benches: tuple[str, ...], option_values: OptionValues
) -> Page:
    from planner.estimate.benchmark import read_benchmark
    from planner.estimate.calibrate import calibrate
    from planner.estimate.calibration_file import dump_correction
    from planner.render.calibrate import calibration_page

    files_by_path = {
        bench_path: read_file(bench_path) for bench_path in benches
    }
    bench_points = [
        bench_point
        for bench_path, file_bytes in files_by_path.items()
        for bench_point in read_benchmark(
            # Spreadsheets start CSV files with a byte order mark.
            file_bytes.decode("utf-8-sig", "replace"),
            bench_path,
        )
    ]
    option_names = ("model", "gpu", "tp", "precision", "framework")
    learning = calibrate(
        bench_points,
        {
            option_name: str(option_values[option_name])
            for option_name in option_names
            if option_values[option_name]
        },
    )
    if option_values["output"]:
        # The calibration file records which results it was made from.
        file_digests = {
            bench_path: hashlib.sha256(file_bytes).hexdigest()
            for bench_path, file_bytes in files_by_path.items()
        }
        option.write_output(
            dump_correction(learning.correction, file_digests),
            option_values["output"],
        )
    return calibration_page(learning, option_values["output"] or "")


def _sweep_page(path: str, option_values: OptionValues) -> Page:
    """Return the page of the benchmark sweep for the fleet that the spec's plan has."""
    from planner.estimate.benchmark_sweep import plan_sweep
    from planner.render.calibrate import recipe_page
    from planner.spec.model import Batch, Inference

    spec_file = read_spec(path)
    catalog = open_catalog(
        option_values["catalog"], open_world(option_values["simulate"])
    )
    # Default options: the fleet that the spec alone leads to.
    plan = make_plan(spec_file, catalog, PlanningOptions())
    sweep = None
    if isinstance(spec_file.spec, Inference | Batch):
        sweep = plan_sweep(plan, spec_file.spec)
    if sweep is None:
        problem = Problem(
            code="infeasible",
            message=f"{path} has no fleet that serves a model",
            next_step=f"run: tonnage plan {path}",
        )
        raise InfeasibleError(problem)
    return recipe_page(sweep)
