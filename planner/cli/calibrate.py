"""tonnage calibrate: correct predictions with a benchmark, one's own or one of a cloud."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec.structs import replace

from planner.cli import complete, option
from planner.cli.compose import (
    PlanningOptions,
    open_catalog,
    open_world,
    read_file,
    read_spec,
    solve_settings,
)
from planner.cli.planning import make_plan
from planner.cli.profiled import asked_profiles
from planner.errors import InfeasibleError, Problem
from providers.live.profile import profile_clouds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.cli.compose import SpecFile
    from planner.cli.option import OptionValues
    from planner.render.page import Page

# What a benchmark was of, as options that take precedence over its files.
DEPLOYMENT_OPTIONS: Final = ("model", "gpu", "tp", "precision", "framework")


@click.command("calibrate")
@click.argument(
    "benches", nargs=-1, metavar="BENCH...", shell_complete=complete.file_names
)
@click.option(
    "--from",
    "source",
    type=click.Choice(tuple(profile_clouds())),
    help="Use what Google measured of the model that stands in place of BENCH.",
)
@click.option(
    "--record",
    shell_complete=complete.file_names,
    metavar="FILE",
    help="With --from: write what was answered, as a BENCH file.",
)
@click.option(
    "--recipe",
    shell_complete=complete.file_names,
    metavar="SPEC",
    help="Write the shortest benchmark worth running.",
)
@click.option(
    "--model",
    shell_complete=complete.model_names,
    metavar="NAME",
    help="Model, where the files do not say it.",
)
@click.option(
    "--gpu",
    shell_complete=complete.accelerator_names,
    metavar="NAME",
    help="Accelerator, where the files do not say it.",
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
    benches: tuple[str, ...],
    source: str | None,
    recipe: str | None,
    **option_values: Any,
) -> int:
    """Learn from benchmark files of one deployment; write a calibration for `plan --calibration`.

    Reads vLLM bench serve, GuideLLM, genai-perf, AIPerf, InferenceX and llm-optimizer results, or
    a CSV. Shows each point before and after, predicted by the other points. A few points correct
    the bias, a sweep over concurrency does more: --recipe SPEC writes one. --from gke MODEL takes
    the profiles of GKE Inference Quickstart instead of files. A CSV of training runs, with what a
    step took, corrects trainings: one short run does, and --recipe writes it.

    Example: tonnage calibrate results/*.json --gpu h100-sxm --tp 4 -o mine.json
    """
    # Exactly one of the two must be given.
    if bool(benches) == bool(recipe):
        raise click.UsageError(
            "give BENCH files, --from gke MODEL, or --recipe SPEC"
        )
    if recipe and option_values["output"]:
        raise click.UsageError(
            "-o keeps what was learned: a recipe is only shown"
        )
    shown_page = (
        _recipe_page(recipe, option_values)
        if recipe
        else learning_page(
            _measured_files(benches, source, option_values),
            {
                name: str(option_values[name])
                for name in DEPLOYMENT_OPTIONS
                if option_values[name]
            },
            option_values["output"],
        )
    )
    option.print_page(
        shown_page, option_values["format"], option_values["color"]
    )
    return 0


def _measured_files(
    benches: tuple[str, ...], source: str | None, option_values: OptionValues
) -> dict[str, bytes]:
    """Return the files that were measured, by path; with --from what was answered is one."""
    record_path = option_values["record"]
    if not source:
        if record_path:
            raise click.UsageError("--record takes --from")
        return {bench_path: read_file(bench_path) for bench_path in benches}
    if len(benches) != 1 or option_values["model"]:
        raise click.UsageError(
            f"--from {source} takes one MODEL as its argument, without files or --model"
        )
    profiles = asked_profiles(source, benches[0])
    if record_path:
        option.write_output(profiles, record_path)
    return {record_path or f"{source} {benches[0]}": profiles.encode()}


def learning_page(
    files_by_path: Mapping[str, bytes],
    overrides: Mapping[str, str],
    output: str | None,
) -> Page:
    """Return the page of what measurements teach, and keep it in the file `output`.

    `overrides` says what was measured, by the names of options, where the files do not.
    """
    from planner.estimate.calibrate import calibrate
    from planner.estimate.calibration_file import dump_correction
    from planner.estimate.quickstart import read_measured
    from planner.estimate.training_calibration import is_training_table
    from planner.render.calibrate import calibration_page

    texts = {
        bench_path: file_bytes.decode("utf-8-sig", "replace")
        for bench_path, file_bytes in files_by_path.items()
    }
    if all(is_training_table(text) for text in texts.values()):
        return _training_page(texts, files_by_path, output)
    measured_sets = [
        # Spreadsheets start CSV files with a byte order mark.
        read_measured(text, bench_path, overrides)
        for bench_path, text in texts.items()
    ]
    learning = calibrate(
        [point for measured in measured_sets for point in measured.points],
        overrides,
    )
    left_out = [
        sentence for measured in measured_sets for sentence in measured.left_out
    ]
    learning = replace(learning, warnings=(*left_out, *learning.warnings))
    if output:
        option.write_output(
            dump_correction(learning.correction, _digests(files_by_path)),
            output,
        )
    return calibration_page(learning, output or "")


def _digests(files_by_path: Mapping[str, bytes]) -> dict[str, str]:
    """Return the SHA-256 of each file: a calibration records what it was made from."""
    return {
        bench_path: hashlib.sha256(file_bytes).hexdigest()
        for bench_path, file_bytes in files_by_path.items()
    }


def _training_page(
    texts: Mapping[str, str],
    files_by_path: Mapping[str, bytes],
    output: str | None,
) -> Page:
    """Return the page of what training runs teach, and keep it in the file `output`."""
    from planner.estimate.training_calibration import (
        calibrate_training,
        dump_training,
        read_runs,
    )
    from planner.render.calibrate import training_page

    report = calibrate_training(
        [run for path, text in texts.items() for run in read_runs(text, path)]
    )
    if output:
        option.write_output(
            dump_training(report.correction, _digests(files_by_path)), output
        )
    return training_page(report, output or "")


def _recipe_page(path: str, option_values: OptionValues) -> Page:
    """Return the page of the shortest benchmark of what the spec's plan has."""
    from planner.spec.model import Training

    spec_file = read_spec(path)
    if isinstance(spec_file.spec, Training):
        return _short_run_page(spec_file, option_values)
    return _sweep_page(path, spec_file, option_values)


def _short_run_page(spec_file: SpecFile, option_values: OptionValues) -> Page:
    """Return the page of the shortest run of a planned training."""
    from planner.estimate.training_recipe import shortest_run
    from planner.render.calibrate import training_recipe_page
    from planner.workload.solver import find
    from stacks.runtime.vm.trainer import job_commands, trainer_options

    catalog = open_catalog(
        option_values["catalog"], open_world(option_values["simulate"])
    )
    recipe = shortest_run(
        find(
            spec_file.spec,
            solve_settings(spec_file, catalog, PlanningOptions()),
        )
    )
    if recipe is None:
        raise _no_fleet(spec_file.path, "trains a model")
    arguments = trainer_options(recipe.run, "$DATA", "$CHECKPOINTS")
    return training_recipe_page(recipe, job_commands(recipe.run), arguments)


def _no_fleet(path: str, purpose: str) -> InfeasibleError:
    return InfeasibleError(
        Problem(
            code="infeasible",
            message=f"{path} has no fleet that {purpose}",
            next_step=f"run: tonnage plan {path}",
        )
    )


def _sweep_page(
    path: str, spec_file: SpecFile, option_values: OptionValues
) -> Page:
    """Return the page of the benchmark sweep for the fleet that the spec's plan has."""
    from planner.estimate.benchmark_sweep import plan_sweep
    from planner.render.calibrate import recipe_page
    from planner.spec.model import Batch, Inference

    catalog = open_catalog(
        option_values["catalog"], open_world(option_values["simulate"])
    )
    # Default options: the fleet that the spec alone leads to.
    plan = make_plan(spec_file, catalog, PlanningOptions())
    sweep = None
    if isinstance(spec_file.spec, Inference | Batch):
        sweep = plan_sweep(plan, spec_file.spec)
    if sweep is None:
        raise _no_fleet(path, "serves a model")
    return recipe_page(sweep)
