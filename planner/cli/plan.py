"""tonnage plan: what to buy for a spec, what it costs, and what would be created."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from planner.cli import option
from planner.cli.compose import open_catalog, open_world, read_spec
from planner.cli.many import make_plans

INFEASIBLE = 10


@click.command("plan")
@click.argument("specs", nargs=-1, required=True, metavar="SPEC...")
@option.planning
@option.formats("text", "json", "markdown")
@option.output
@option.color
@option.exit_code
@option.detailed
@click.option("--full", is_flag=True, help="List every resource.")
def command(specs: tuple[str, ...], **values: Any) -> int:
    """Solve specs and show the plans; nothing is created and no account is needed.

    The cheapest fleet that meets the spec, with its cost line by line, why nothing cheaper will
    do, and the resources. With -o the plan is saved: apply it later exactly as reviewed.

    Example: tonnage plan chat.yaml -o chat.plan.json
    """
    options = option.options(values)
    catalog = open_catalog(options.catalog, open_world(options.simulate))
    if values["output"] and len(specs) > 1:
        raise click.UsageError("-o takes one SPEC: a plan file holds one plan")
    _spare(specs[0], values["output"])
    worst, changed = 0, False
    plans = []
    for plan in make_plans(
        [read_spec(path) for path in specs], catalog, options
    ):
        plans.append(plan)
        _write(plan, values, alone=len(specs) == 1)
        infeasible = plan["solution"]["status"] == "infeasible"
        worst = INFEASIBLE if infeasible else worst
        changed = changed or (
            not infeasible and _changes(plan, values, options)
        )
    if len(plans) > 1 and values["format"] == "json":
        option.write(
            json.dumps(plans, indent=2, sort_keys=True, ensure_ascii=False)
            + "\n"
        )
    return _code(worst, values, changed=changed)


def _spare(spec: str, output: str | None) -> None:
    """Refuse to write a plan over the spec that it is made from."""
    if (
        output
        and spec != "-"
        and Path(output).resolve() == Path(spec).resolve()
    ):
        raise click.UsageError(
            f"-o {output} would replace the spec: name another file"
        )


def _write(
    plan: dict[str, Any], values: dict[str, Any], *, alone: bool
) -> None:
    from planner.plan.canonical import dump
    from planner.render.plan import page

    if values["output"]:
        option.write(dump(plan), values["output"])
    if values["format"] == "json":
        if alone and not values["output"]:
            option.write(dump(plan))
        return
    shown = page(plan, full=values["full"], saved=values["output"] or "")
    option.show(shown, values["format"], values["color"])


def _changes(
    plan: dict[str, Any], values: dict[str, Any], options: Any
) -> bool:
    """Whether applying would change something; without a stack everything would be new."""
    if (
        not (values["exit_code"] or values["detailed_exitcode"])
        or not options.bound
    ):
        return True
    from planner.cli.compose import open_engine

    return any(s.action != "same" for s in open_engine(options).preview(plan))


def _code(worst: int, values: dict[str, Any], *, changed: bool) -> int:
    if values["detailed_exitcode"]:
        return 1 if worst else option.TERRAFORM_CHANGED if changed else 0
    return worst or (option.CHANGED if values["exit_code"] and changed else 0)
