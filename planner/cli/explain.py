"""tonnage explain: reasons for a plan, and counterfactuals."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import click

from planner.cli import option
from planner.cli.compose import (
    PlanningOptions,
    SpecFile,
    make_plan,
    open_catalog,
    open_world,
    own_catalog,
    read_file,
    spec_folder_reader,
)
from planner.cli.parallel import run_in_parallel
from planner.errors import Place, Problem, StaleError

if TYPE_CHECKING:
    from planner.market.offer import Catalog
    from planner.plan.types import Plan


@click.command("explain")
@click.argument("path", metavar="PLAN|SPEC")
@click.argument("offer", required=False)
@click.option(
    "--traffic",
    metavar="FACTOR",
    help="What so much more traffic costs, such as 2x.",
)
@click.option(
    "--ways", is_flag=True, help="What each way to buy it costs, and risks."
)
@option.prices
@option.simulate
@option.catalog
@option.format_option("text", "markdown")
@option.color
def command(
    path: str,
    offer: str | None,
    traffic: str | None,
    *,
    ways: bool,
    **option_values: Any,
) -> int:
    """Explain a plan: why this fleet; why not OFFER (a machine type or accelerator, * allowed).

    Example: tonnage explain chat.yaml g5.12xlarge && tonnage explain chat.yaml --traffic 2x
    """
    if sum((offer is not None, traffic is not None, ways)) > 1:
        raise click.UsageError(
            "ask about OFFER, --traffic or --ways: one of them"
        )
    from planner.render import explain
    from planner.render.buying import buying_page
    from planner.solve.settings import SolveSettings
    from planner.workload.buying import buy_in_every_way
    from planner.workload.solver import what_if, why_not
    from stacks.spec.table import unsupported_reason

    catalog = open_catalog(
        option_values["catalog"], open_world(option_values["simulate"])
    )
    options = PlanningOptions(prices=option_values["prices"])
    plan, spec_file = _read_plan(path, catalog, options)
    if offer is None and traffic is None and not ways:
        answer_page = explain.reasons_page(plan)
    else:
        # A counterfactual is solved anew, which needs the spec itself.
        current_spec = _unchanged_spec(plan, spec_file)
        settings = SolveSettings(
            catalog=own_catalog(catalog, plan.inputs.prices),
            run_all=run_in_parallel,
            unbuilt_reason=unsupported_reason,
            read_file=spec_folder_reader(current_spec.path),
        )
        if offer is not None:
            answer_page = explain.rejections_page(
                plan, why_not(current_spec.spec, settings, offer)
            )
        elif ways:
            answer_page = buying_page(
                plan, buy_in_every_way(current_spec.spec, settings)
            )
        else:
            traffic_factor = _parse_factor(traffic or "")
            answer_page = explain.scaling_page(
                plan,
                traffic_factor,
                what_if(current_spec.spec, settings, traffic_factor),
            )
    option.print_page(
        answer_page, option_values["format"], option_values["color"]
    )
    return 0


def _read_plan(
    path: str, catalog: Catalog, options: PlanningOptions
) -> tuple[Plan, SpecFile | None]:
    from planner.plan.canonical import is_plan, parse_plan
    from planner.spec.load import load_spec

    file_bytes = read_file(path)
    if is_plan(file_bytes):
        # A plan file has no spec file: its path is in the plan.
        return parse_plan(file_bytes, path), None
    spec_file = SpecFile(
        path=path, file_bytes=file_bytes, spec=load_spec(file_bytes, path)
    )
    return make_plan(spec_file, catalog, options), spec_file


def _unchanged_spec(plan: Plan, spec_file: SpecFile | None) -> SpecFile:
    """Return the spec of a plan; raises StaleError when the file has changed."""
    from planner.spec.load import load_spec

    if spec_file is not None:
        return spec_file
    spec_path = plan.spec.path
    file_bytes = read_file(spec_path)
    if hashlib.sha256(file_bytes).hexdigest() != plan.spec.sha256:
        problem = Problem(
            code="stale",
            message="the spec has changed since the plan was made",
            place=Place(spec_path),
            next_step=f"ask about the spec: tonnage explain {spec_path}",
        )
        raise StaleError(problem)
    return SpecFile(
        path=spec_path,
        file_bytes=file_bytes,
        spec=load_spec(file_bytes, spec_path),
    )


def _parse_factor(factor_text: str) -> float:
    factor_match = re.fullmatch(
        r"(\d{1,4}(?:\.\d{1,3})?)x?", factor_text.strip().lower()
    )
    if not factor_match or float(factor_match[1]) == 0:
        raise click.BadParameter(
            "write a factor such as 2x or 1.5", param_hint="--traffic"
        )
    return float(factor_match[1])
