"""tonnage apply: create or change a stack from a reviewed plan."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli import option, progress
from planner.cli.compose import (
    PlanningOptions,
    SpecFile,
    make_plan,
    open_catalog,
    open_engine,
    open_world,
    read_file,
)
from planner.errors import InfeasibleError, Problem, UsageError
from planner.plan.staleness import check_staleness

if TYPE_CHECKING:
    from planner.cli.option import OptionValues
    from planner.market.offer import Catalog
    from planner.plan.status import StackStatus
    from planner.plan.types import Plan


@click.command("apply")
@click.argument("path", metavar="PLAN|SPEC")
@option.planning_flags
@option.allow
@option.color
@option.no_input
@click.option("-y", "--yes", is_flag=True, help="Do not ask for a SPEC.")
def command(path: str, **option_values: Any) -> int:
    """Create or change a stack. A PLAN asks only before data or service go; a SPEC always asks.

    A plan that no longer matches what it was made from is refused (exit 11), and nothing is
    touched. A second apply changes nothing, and one after a crash goes on from there.

    Example: tonnage apply chat.plan.json --simulate
    """
    from planner.plan.canonical import is_plan, parse_plan
    from stacks.engine.protocol import RunControl

    options = option.planning_options(option_values)
    catalog = open_catalog(options.catalog, open_world(options.simulate))
    file_bytes = read_file(path)
    # A saved plan is the approval, so only a spec needs a question.
    if is_plan(file_bytes):
        plan = parse_plan(file_bytes, path)
        spec_sha256 = _spec_sha256(plan, path)
    else:
        reviewed_plan = _plan_and_confirm(
            path, file_bytes, catalog, (options, option_values)
        )
        if reviewed_plan is None:
            click.echo("declined: nothing was done", err=True)
            return 0
        plan = reviewed_plan
        spec_sha256 = plan.spec.sha256
    if not plan.solution.pools:
        next_step = "relax what tonnage plan shows"
        raise InfeasibleError(
            Problem(
                code="infeasible",
                message="the plan has nothing to create",
                next_step=next_step,
            )
        )

    def check(stack_status: StackStatus | None) -> None:
        check_staleness(
            plan,
            spec_sha256=spec_sha256,
            catalog_sha256=catalog.sha256,
            stack_status=stack_status,
        )

    return progress.run_engine(
        lambda listener, stop: open_engine(options).apply(
            plan,
            listener,
            RunControl(stop=stop, check=check, allow=option_values["allow"]),
        ),
        "applied",
        plan.stack.name,
        options,
        usd_hour=plan.cost.usd_hour,
    )


def _plan_and_confirm(
    path: str,
    file_bytes: bytes,
    catalog: Catalog,
    option_pair: tuple[PlanningOptions, OptionValues],
) -> Plan | None:
    """Plan a spec on its stack, show the plan and ask; None when the answer is no."""
    from msgspec.structs import replace

    from planner.render.plan import plan_page
    from planner.spec.load import load_spec

    options, option_values = option_pair
    spec_file = SpecFile(
        path=path, file_bytes=file_bytes, spec=load_spec(file_bytes, path)
    )
    plan = make_plan(
        spec_file,
        catalog,
        # A stack name makes the plan start from the state of that stack.
        replace(options, stack=options.stack or spec_file.spec.name),
    )
    shown_page = plan_page(plan, today=option.today())
    option.print_page(shown_page, "text", option_values["color"])
    # An infeasible plan is shown; the caller then refuses it.
    if not plan.solution.pools or option_values["yes"]:
        return plan
    if option_values["no_input"]:
        problem = Problem(
            code="confirm",
            message="apply of a spec asks, and --no-input forbids asking",
            next_step="review a plan and apply it: tonnage plan SPEC -o FILE",
        )
        raise UsageError(problem)
    return (
        plan if click.confirm("Create this?", default=False, err=True) else None
    )


def _spec_sha256(plan: Plan, path: str) -> str | None:
    """Return the SHA-256 of the plan's spec as it is now; None when there is no file.

    It looks at the path in the plan, then for a file of that name beside the plan.
    """
    planned_path = Path(plan.spec.path)
    # Plan and spec may have moved to another folder together.
    for candidate_path in (planned_path, Path(path).parent / planned_path.name):
        if candidate_path.is_file():
            return hashlib.sha256(candidate_path.read_bytes()).hexdigest()
    click.echo(
        f"warning: {planned_path} is not here, so it was not compared with the plan",
        err=True,
    )
    return None
