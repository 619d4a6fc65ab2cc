"""tonnage bench: measure the fleet of a spec on one machine, and learn from that."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner import figures
from planner.cli import complete, option
from planner.cli.bench_plan import plan_bench
from planner.cli.compose import open_catalog, open_world, read_spec
from planner.errors import Problem, UsageError
from planner.spec.model import BUCKET_WEIGHTS

if TYPE_CHECKING:
    from planner.cli.bench_plan import PlannedBench
    from planner.cli.compose import PlanningOptions
    from planner.cli.option import OptionValues
    from planner.render.page import Page


@click.command("bench")
@click.argument("path", metavar="SPEC", shell_complete=complete.file_names)
@click.option(
    "--max-cost",
    metavar="USD",
    type=click.FloatRange(0, min_open=True),
    help="End at the latest when so much is spent (exit 9); refuse what takes more (exit 5).",
)
@click.option(
    "--weights",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Bring these weights, where model.weights does not say where they are.",
)
@click.option(
    "--results",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write what was measured to FOLDER; default NAME-bench.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Go on with the stack that a run has left which was cut off.",
)
@option.simulate
@option.catalog
@option.prices
@option.engine
@option.backend
@option.format_option("text", "markdown")
@option.output
@option.color
@click.option(
    "-y", "--yes", is_flag=True, help="Run it; without, only show it."
)
def command(path: str, **option_values: Any) -> int:
    """Measure the model of SPEC on one machine, and write the calibration that this teaches.

    The machine is the cheapest on demand that holds a replica as the plan has it. It is applied,
    measures one load after the other with the benchmark of vLLM, and is deleted, whatever
    happens. Without --yes it is only shown, with what it costs at most.

    Example: tonnage bench chat.yaml --max-cost 5 --yes
    """
    options = option.planning_options(option_values)
    spec_file = read_spec(path)
    catalog = open_catalog(options.catalog, open_world(options.simulate))
    most_usd = option_values["max_cost"]
    bench = plan_bench(
        spec_file,
        catalog,
        options,
        None if most_usd is None else Decimal(str(most_usd)),
    )
    shown_page = (
        _measured_page(bench, options, option_values)
        if option_values["yes"]
        else _intended_page(bench, options, option_values)
    )
    option.print_page(
        shown_page, option_values["format"], option_values["color"]
    )
    return 0


def _awaits_weights(bench: PlannedBench, option_values: OptionValues) -> bool:
    """Whether the machine would wait for weights that nobody brings."""
    return (
        bench.spec.model.weights == BUCKET_WEIGHTS
        and option_values["weights"] is None
    )


def _intended_page(
    bench: PlannedBench, options: PlanningOptions, option_values: OptionValues
) -> Page:
    """Return what a benchmark would do and cost."""
    from planner.cli.bench_run import removal_command
    from planner.render.bench import BenchFigures, bench_page

    pool = bench.pool
    instance = pool.instance
    ttl_s = bench.spec.shutdown.ttl or Decimal(0)
    limit = option_values["max_cost"]
    limit_flag = f" --max-cost {limit:g}" if limit is not None else ""
    return bench_page(
        BenchFigures(
            stack=bench.spec.name,
            sweep=bench.sweep,
            machines=f"{pool.nodes} x {instance.instance_type} "
            f"({instance.accelerators} x {instance.accelerator})",
            place=f"{instance.provider} {pool.region}",
            expected_s=bench.time.expected_s,
            ttl_s=float(ttl_s),
            most_usd=bench.most_usd,
            usd_hour=bench.cost.usd_hour,
            start_usd=bench.cost.start_usd,
            left_usd_hour=bench.cost.left_usd_hour,
            awaits_weights=_awaits_weights(bench, option_values),
            next_command=f"tonnage bench {bench.spec_file.path}{limit_flag}{options.flags} --yes",
            removal=removal_command(bench.spec.name, options),
        )
    )


def _measured_page(
    bench: PlannedBench, options: PlanningOptions, option_values: OptionValues
) -> Page:
    """Carry a benchmark out, and return the page of what it teaches."""
    from planner.cli.bench_run import BenchRun
    from planner.cli.calibrate import learning_page
    from planner.render.page import Paragraph

    is_real = options.simulate is None
    if is_real and _awaits_weights(bench, option_values):
        raise UsageError(
            Problem(
                code="weights",
                message="the machine would wait for the weights of "
                f"{bench.sweep.model_name}",
                place=bench.spec.model.place,
                next_step="bring them: --weights FOLDER; or say where they are: "
                "model.weights: hf:owner/name",
            )
        )
    limit_text = figures.dollars(bench.most_usd, cents=True)
    click.echo(f"{bench.spec.name} costs {limit_text} at most", err=True)
    run = BenchRun(
        bench=bench,
        options=options,
        weights=option_values["weights"],
        results=option_values["results"] or Path(bench.spec.name),
        resumes=option_values["resume"],
    )
    measured = run.carry_out()
    if not measured:
        return (
            Paragraph(
                f"{bench.spec.name} was applied and deleted; simulated machines measure nothing, "
                "so there is no calibration",
                width=99,
            ),
        )
    layout = bench.sweep.layout
    overrides = {
        "model": bench.sweep.model_name,
        "gpu": bench.sweep.accelerator,
        "tp": str(layout.tp),
        "precision": layout.precision,
    }
    output = (
        option_values["output"]
        or f"{bench.spec_file.spec.name}.calibration.json"
    )
    return learning_page(measured, overrides, output)
