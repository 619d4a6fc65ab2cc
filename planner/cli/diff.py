"""tonnage diff: what two specs or plans differ in, in money."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from planner.cli import option
from planner.cli.compose import (
    Options,
    Source,
    make_plan,
    open_catalog,
    read_file,
)

if TYPE_CHECKING:
    from planner.solve.offer import Catalog


@click.command("diff")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@option.catalog
@option.formats("text", "json", "markdown")
@option.color
@option.exit_code
@option.detailed
def command(before: str, after: str, **option_values: Any) -> int:
    """Show the cost difference from A to B, each a spec or a saved plan.

    Specs are planned with the same catalog, so the difference is that of the specs.

    Example: tonnage diff main.yaml branch.yaml
    """
    from planner.plan.diff import diff
    from planner.render.diff import page

    catalog = open_catalog(option_values["catalog"], None)
    plan_diff = diff(_plan(before, catalog), _plan(after, catalog))
    if option_values["format"] == "json":
        option.write(_json(plan_diff))
    else:
        option.show(
            page((plan_diff,), (before, after)),
            option_values["format"],
            option_values["color"],
        )
    if option_values["detailed_exitcode"]:
        return option.TERRAFORM_CHANGED if plan_diff.changes else 0
    return (
        option.CHANGED
        if option_values["exit_code"] and plan_diff.changes
        else 0
    )


def _plan(path: str, catalog: Catalog) -> dict[str, Any]:
    from planner.plan.canonical import is_plan, parse
    from planner.spec.load import load

    file_bytes = read_file(path)
    if is_plan(file_bytes):
        return parse(file_bytes, path)
    return make_plan(
        Source(path=path, file_bytes=file_bytes, spec=load(file_bytes, path)),
        catalog,
        Options(),
    )


def _json(plan_diff: Any) -> str:
    from planner.plan.canonical import dump

    change_entries = [
        {
            "mark": diff_change.mark,
            "what": diff_change.what,
            "name": diff_change.name,
            "before": diff_change.before,
            "after": diff_change.after,
            "usd_before": str(diff_change.usd_before),
            "usd_after": str(diff_change.usd_after),
        }
        for diff_change in plan_diff.changes
    ]
    return dump(
        {
            "schema": "tonnage.diff/1",
            "name": plan_diff.name,
            "changes": change_entries,
            "usd_month_before": str(plan_diff.usd_before),
            "usd_month_after": str(plan_diff.usd_after),
            "usd_month_delta": str(plan_diff.delta),
            "percent": None
            if plan_diff.percent is None
            else str(plan_diff.percent),
            "partial": plan_diff.partial,
        }
    )
