"""tonnage diff: cost difference of two specs or plans."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from planner.cli import option, policy
from planner.cli.compose import (
    PlanningOptions,
    SpecFile,
    open_catalog,
    read_file,
)
from planner.cli.planning import make_plan
from providers.files import MAX_DOCUMENT_BYTES

if TYPE_CHECKING:
    from planner.market.offer import Catalog
    from planner.plan.diff import PlanDiff
    from planner.plan.types import Plan


@click.command("diff")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@option.prices
@option.catalog
@option.format_option("text", "json", "markdown")
@option.color
@option.exit_code
@option.detailed_exitcode
@policy.FLAG
def command(before: str, after: str, **option_values: Any) -> int:
    """Show the cost difference from A to B, each a spec or a saved plan.

    Specs are planned with the same catalog, so the difference is that of the specs.

    Example: tonnage diff main.yaml branch.yaml
    """
    from planner.plan.diff import compare_plans
    from planner.render.diff import diff_page

    # One catalog for both sides: prices do not differ, only the specs.
    catalog = open_catalog(option_values["catalog"], None)
    plan_before, plan_after = (
        _read_plan(path, catalog, option_values["prices"])
        for path in (before, after)
    )
    plan_diff = compare_plans(plan_before, plan_after)
    if option_values["format"] == "json":
        option.write_output(_diff_json(plan_diff))
    else:
        option.print_page(
            diff_page((plan_diff,), (before, after)),
            option_values["format"],
            option_values["color"],
        )
    policy.refuse_change(
        option_values["policy"], plan_after, json.loads(_diff_json(plan_diff))
    )
    # Terraform scripts expect 2 for changes.
    if option_values["detailed_exitcode"]:
        return option.TERRAFORM_EXIT_CODE if plan_diff.changes else 0
    return (
        option.CHANGED_EXIT_CODE
        if option_values["exit_code"] and plan_diff.changes
        else 0
    )


def _read_plan(path: str, catalog: Catalog, prices_path: str | None) -> Plan:
    from planner.plan.canonical import is_plan, parse_plan
    from planner.spec.load import load_spec

    file_bytes = read_file(path, MAX_DOCUMENT_BYTES)
    if is_plan(file_bytes):
        return parse_plan(file_bytes, path)
    return make_plan(
        SpecFile(
            path=path, file_bytes=file_bytes, spec=load_spec(file_bytes, path)
        ),
        catalog,
        PlanningOptions(prices=prices_path),
    )


def _diff_json(plan_diff: PlanDiff) -> str:
    from planner.plan.canonical import dump_document

    change_entries = [
        {
            "mark": diff_change.mark,
            "what": diff_change.subject,
            "name": diff_change.name,
            "before": diff_change.before,
            "after": diff_change.after,
            "usd_before": str(diff_change.usd_before),
            "usd_after": str(diff_change.usd_after),
        }
        for diff_change in plan_diff.changes
    ]
    return dump_document(
        {
            "schema": "tonnage.diff/1",
            "name": plan_diff.name,
            "period": plan_diff.period,
            "period_before": plan_diff.period_before,
            "changes": change_entries,
            "usd_before": str(plan_diff.usd_before),
            "usd_after": str(plan_diff.usd_after),
            "usd_delta": None
            if plan_diff.delta_usd is None
            else str(plan_diff.delta_usd),
            "percent": None
            if plan_diff.delta_percent is None
            else str(plan_diff.delta_percent),
            "partial": plan_diff.partial,
        }
    )
