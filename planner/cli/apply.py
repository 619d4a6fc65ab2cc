"""tonnage apply: carry out what was reviewed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli import option, progress
from planner.cli.compose import (
    Options,
    Source,
    make_plan,
    open_catalog,
    open_engine,
    open_world,
    read_file,
)
from planner.errors import InfeasibleError, Problem, UsageError

if TYPE_CHECKING:
    from planner.solve.offer import Catalog


@click.command("apply")
@click.argument("path", metavar="PLAN|SPEC")
@option.planning
@option.color
@option.no_input
@click.option("-y", "--yes", is_flag=True, help="Do not ask for a SPEC.")
def command(path: str, **values: Any) -> int:
    """Create or change a stack. A PLAN asks nothing; a SPEC shows its plan and asks.

    A plan that no longer matches its spec, the catalog or the stack is refused (exit 11), and
    nothing is touched. A second apply changes nothing.

    Example: tonnage apply chat.plan.json --simulate
    """
    from planner.plan.canonical import is_plan, parse

    options = option.options(values)
    catalog = open_catalog(options.catalog, open_world(options.simulate))
    raw = read_file(path)
    if is_plan(raw):
        plan = parse(raw, path)
        _refuse_stale(plan, path, catalog, options)
    else:
        planned = _reviewed(path, raw, catalog, (options, values))
        if planned is None:
            click.echo("declined: nothing was done", err=True)
            return 0
        plan = planned
    if not plan["solution"]["pools"]:
        step = "relax what tonnage plan shows"
        raise InfeasibleError(
            Problem(
                code="infeasible",
                message="the plan has nothing to create",
                next_step=step,
            )
        )
    return progress.run(
        lambda listen: open_engine(options).apply(plan, listen),
        "applied",
        plan,
        options,
    )


def _reviewed(
    path: str,
    raw: bytes,
    catalog: Catalog,
    asked: tuple[Options, dict[str, Any]],
) -> dict[str, Any] | None:
    """Plan a spec on its stack, show it and ask; None when the answer is no."""
    from dataclasses import replace

    from planner.render.plan import page
    from planner.spec.load import load

    options, values = asked
    source = Source(path=path, raw=raw, spec=load(raw, path))
    plan = make_plan(
        source,
        catalog,
        replace(options, stack=options.stack or source.spec.name),
    )
    option.show(page(plan), "text", values["color"])
    if not plan["solution"]["pools"] or values["yes"]:
        return plan
    if values["no_input"]:
        problem = Problem(
            code="confirm",
            message="apply of a spec asks, and --no-input forbids asking",
            next_step="review a plan and apply it: tonnage plan SPEC -o FILE",
        )
        raise UsageError(problem)
    return (
        plan if click.confirm("Create this?", default=False, err=True) else None
    )


def _refuse_stale(
    plan: dict[str, Any], path: str, catalog: Catalog, options: Options
) -> None:
    from planner.plan.stale import check

    standing = open_engine(options).standing(plan["stack"]["name"])
    state = (
        {"sha256": standing.sha256, "plan": standing.plan}
        if standing
        else {"sha256": None}
    )
    check(
        plan,
        spec_sha256=_spec_sha256(plan, path),
        catalog_sha256=catalog.sha256,
        state=state,
    )


def _spec_sha256(plan: dict[str, Any], path: str) -> str | None:
    """The spec as it is now: where the plan found it, or beside the plan; None when neither."""
    given = Path(plan["spec"]["path"])
    for candidate in (given, Path(path).parent / given.name):
        if candidate.is_file():
            return hashlib.sha256(candidate.read_bytes()).hexdigest()
    click.echo(
        f"warning: {given} is not here, so it was not compared with the plan",
        err=True,
    )
    return None
