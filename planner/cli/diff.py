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
def command(before: str, after: str, **values: Any) -> int:
    """Show the cost difference from A to B, each a spec or a saved plan.

    Specs are planned with the same catalog, so the difference is that of the specs.

    Example: tonnage diff main.yaml branch.yaml
    """
    from planner.plan.diff import diff
    from planner.render.diff import page

    catalog = open_catalog(values["catalog"], None)
    found = diff(_plan(before, catalog), _plan(after, catalog))
    if values["format"] == "json":
        option.write(_json(found))
    else:
        option.show(
            page((found,), (before, after)), values["format"], values["color"]
        )
    if values["detailed_exitcode"]:
        return option.TERRAFORM_CHANGED if found.changes else 0
    return option.CHANGED if values["exit_code"] and found.changes else 0


def _plan(path: str, catalog: Catalog) -> dict[str, Any]:
    from planner.plan.canonical import is_plan, parse
    from planner.spec.load import load

    raw = read_file(path)
    if is_plan(raw):
        return parse(raw, path)
    return make_plan(
        Source(path=path, raw=raw, spec=load(raw, path)), catalog, Options()
    )


def _json(found: Any) -> str:
    from planner.plan.canonical import dump

    changes = [
        {
            "mark": c.mark,
            "what": c.what,
            "name": c.name,
            "before": c.before,
            "after": c.after,
            "usd_before": str(c.usd_before),
            "usd_after": str(c.usd_after),
        }
        for c in found.changes
    ]
    return dump(
        {
            "schema": "tonnage.diff/1",
            "name": found.name,
            "changes": changes,
            "usd_month_before": str(found.usd_before),
            "usd_month_after": str(found.usd_after),
            "usd_month_delta": str(found.delta),
            "percent": None if found.percent is None else str(found.percent),
            "partial": found.partial,
        }
    )
