"""tonnage explain: reasons for a plan, and counterfactuals."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec.structs import replace

from planner.cli import complete, option, progress
from planner.cli.binding import present_inputs
from planner.cli.compose import (
    PlanningOptions,
    SpecFile,
    open_catalog,
    open_world,
    own_catalog,
    read_file,
    read_spec,
    solve_settings,
)
from planner.cli.planning import find_plan
from planner.errors import Place, Problem, StaleError

if TYPE_CHECKING:
    from planner.market.offer import Catalog
    from planner.plan.types import Plan
    from planner.render.page import Page
    from planner.solve.settings import Memory, SolveSettings
    from planner.solve.solution import Counterfactual
    from planner.spec.model import Spec


# What may be asked beside why the plan is as it is, one at a time.
QUESTIONS: Final = ("offer", "traffic", "ways", "pareto", "sensitivity")


@click.command("explain")
@click.argument("path", metavar="PLAN|SPEC", shell_complete=complete.file_names)
@click.argument("offer", required=False, shell_complete=complete.machine_types)
@click.option(
    "--traffic",
    metavar="FACTOR",
    help="What so much more traffic costs, such as 2x.",
)
@click.option(
    "--ways", is_flag=True, help="What each way to buy it costs, and risks."
)
@click.option(
    "--pareto",
    is_flag=True,
    help="What tighter and looser limits, and other confidences, cost.",
)
@click.option(
    "--sensitivity", is_flag=True, help="What moves the bill, the most first."
)
@option.prices
@option.simulate
@option.catalog
@option.format_option("text", "markdown")
@option.color
def command(path: str, **option_values: Any) -> int:
    """Explain a plan: why this fleet; why not OFFER (a machine type or accelerator, * allowed).

    Example: tonnage explain chat.yaml g5.12xlarge && tonnage explain chat.yaml --traffic 2x
    """
    from planner.solve.settings import Memory

    asked = [name for name in QUESTIONS if option_values[name]]
    if len(asked) > 1:
        raise click.UsageError(
            "ask one thing: OFFER, --traffic, --ways, --pareto or --sensitivity"
        )
    catalog = open_catalog(
        option_values["catalog"], open_world(option_values["simulate"])
    )
    options = PlanningOptions(prices=option_values["prices"])
    _refuse_prices_of_plan(path, options)
    # What the plan takes to find, its variations need too.
    memory = Memory()
    plan, spec_file = _read_plan(
        path, catalog, options, memory, with_reasons=not asked
    )
    if asked:
        # A counterfactual is solved anew, which needs the spec itself.
        current_spec = _unchanged_spec(plan, spec_file, catalog)
        settings = solve_settings(
            current_spec,
            own_catalog(catalog, plan.inputs.prices),
            replace(
                options,
                confidence=plan.inputs.confidence,
                calibration=plan.inputs.calibration,
                stops_after=plan.inputs.stops_after_months,
            ),
            memory,
        )
        with progress.waiting("planning it in other ways"):
            answer_page = _answer(
                asked[0],
                option_values[asked[0]],
                plan,
                current_spec.spec,
                settings,
            )
    else:
        from planner.render.explain import reasons_page

        answer_page = reasons_page(plan)
    option.print_page(
        answer_page, option_values["format"], option_values["color"]
    )
    return 0


def _answer(
    question: str, words: str, plan: Plan, spec: Spec, settings: SolveSettings
) -> Page:
    """Return the page of an answer; `words` are an offer or a factor."""
    from planner.cli.ownership import (
        machines_of_ones_own,
        names_of_own_machines,
        own_machine_page,
    )
    from planner.estimate.calibration_worth import calibration_worth
    from planner.render import buying, explain, variation
    from planner.workload.buying import buy_in_every_way
    from planner.workload.solver import what_if, why_not
    from planner.workload.variation import variations

    match question:
        case "offer":
            own_page = own_machine_page(plan, spec, settings, words)
            return own_page or explain.rejections_page(
                plan, why_not(spec, settings, words)
            )
        case "traffic":
            factor = _parse_factor(words)
            return explain.scaling_page(
                plan, factor, what_if(spec, settings, factor)
            )
        case "ways":
            return buying.buying_page(
                plan,
                buy_in_every_way(spec, settings),
                machines_of_ones_own(plan, spec, settings),
                names_of_own_machines(spec, settings),
            )
        case "pareto":
            return variation.frontier_page(
                plan, variations(spec, settings, "frontier", _fleet_of(plan))
            )
        case _:
            return variation.sensitivity_page(
                plan,
                variations(spec, settings, "sensitivity", _fleet_of(plan)),
                calibration_worth(plan, spec, settings),
            )


def _fleet_of(plan: Plan) -> Counterfactual | None:
    """Return the fleet of a plan as an answer to its spec; None where it has none."""
    from planner.solve.solution import (
        Counterfactual,
        FleetSummary,
        joint_summary,
    )

    if not plan.solution.pools:
        return None
    fleet = joint_summary(
        [
            FleetSummary(
                pool.provider, pool.region, pool.instance_type, pool.nodes
            )
            for pool in plan.solution.pools
        ]
    )
    return Counterfactual(
        fleet, plan.cost.total, None, is_partial=plan.cost.is_partial
    )


def _read_plan(
    path: str,
    catalog: Catalog,
    options: PlanningOptions,
    memory: Memory,
    *,
    with_reasons: bool,
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
    found_plan = find_plan(spec_file, catalog, options, memory)
    plan = found_plan.explained() if with_reasons else found_plan.plan
    return plan, spec_file


def _refuse_prices_of_plan(path: str, options: PlanningOptions) -> None:
    """Raise UsageError for prices beside a saved plan, which has its own."""
    from planner.plan.canonical import is_plan

    if options.prices is not None and is_plan(read_file(path)):
        raise click.UsageError(
            "a PLAN has its own prices: give --prices with a SPEC"
        )


def _unchanged_spec(
    plan: Plan, spec_file: SpecFile | None, catalog: Catalog
) -> SpecFile:
    """Return the spec of a plan; raises StaleError when it, or what it names, has changed."""
    from planner.plan.staleness import changed_inputs

    if spec_file is not None:
        return spec_file
    current_spec = read_spec(plan.spec.path)
    reasons = list(
        changed_inputs(plan, present_inputs(plan, current_spec, catalog))
    )
    if reasons:
        raise StaleError(
            *(
                Problem(
                    code="stale",
                    message=f"{reason} since the plan was made",
                    place=Place(plan.spec.path),
                    next_step=f"ask about the spec: tonnage explain {plan.spec.path}",
                )
                for reason in reasons
            )
        )
    return current_spec


def _parse_factor(factor_text: str) -> float:
    factor_match = re.fullmatch(
        r"(\d{1,4}(?:\.\d{1,3})?)x?", factor_text.strip().lower()
    )
    if not factor_match or float(factor_match[1]) == 0:
        raise click.BadParameter(
            "write a factor such as 2x or 1.5", param_hint="--traffic"
        )
    return float(factor_match[1])
