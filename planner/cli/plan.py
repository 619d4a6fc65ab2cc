"""tonnage plan: the cheapest fleet for a spec, its cost and its resources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from planner.cli import option
from planner.cli.compose import open_catalog, open_world, read_spec
from planner.cli.parallel import make_plans

if TYPE_CHECKING:
    from planner.cli.option import OptionValues
    from planner.plan.types import Plan

INFEASIBLE_EXIT_CODE = 10


@click.command("plan")
@click.argument("specs", nargs=-1, required=True, metavar="SPEC...")
@option.planning_flags
@option.format_option("text", "json", "markdown")
@option.output
@option.color
@option.exit_code
@option.detailed_exitcode
@click.option(
    "--full",
    is_flag=True,
    help="Show every line: of the bill, fleets, layouts, resources.",
)
def command(specs: tuple[str, ...], **option_values: Any) -> int:
    """Solve specs and show the plans; nothing is created and no account is needed.

    The cheapest fleet that meets the spec, with its cost line by line, why nothing cheaper will
    do, and the resources. With -o the plan is saved: apply it later exactly as reviewed.

    Example: tonnage plan chat.yaml -o chat.plan.json
    """
    options = replace(
        option.planning_options(option_values),
        # `explain` answers for one of many.
        explains=len(specs) == 1,
    )
    catalog = open_catalog(options.catalog, open_world(options.simulate))
    if option_values["output"] and len(specs) > 1:
        raise click.UsageError("-o takes one SPEC: a plan file holds one plan")
    _refuse_overwrite(specs[0], option_values["output"])
    worst_exit_code = 0
    any_changed = False
    plans = []
    for plan in make_plans(
        [read_spec(spec_path) for spec_path in specs], catalog, options
    ):
        plans.append(plan)
        _write_plan(plan, option_values, alone=len(specs) == 1)
        is_infeasible = plan.solution.status == "infeasible"
        # One infeasible spec decides the exit code of the command.
        worst_exit_code = (
            INFEASIBLE_EXIT_CODE if is_infeasible else worst_exit_code
        )
        any_changed = any_changed or (
            not is_infeasible and _would_change(plan, option_values, options)
        )
    if len(plans) > 1 and option_values["format"] == "json":
        from planner.plan.canonical import to_document

        option.write_output(
            json.dumps(
                [to_document(plan) for plan in plans],
                indent=2,
                sort_keys=True,
                ensure_ascii=False,
            )
            + "\n"
        )
    return _exit_code(worst_exit_code, option_values, changed=any_changed)


def _refuse_overwrite(spec_path: str, output_path: str | None) -> None:
    """Raise UsageError when -o names the spec itself."""
    if (
        output_path
        and spec_path != "-"
        and Path(output_path).resolve() == Path(spec_path).resolve()
    ):
        raise click.UsageError(
            f"-o {output_path} would replace the spec: name another file"
        )


def _write_plan(
    plan: Plan, option_values: OptionValues, *, alone: bool
) -> None:
    from planner.plan.canonical import dump_plan
    from planner.render.plan import plan_page

    if option_values["output"]:
        option.write_output(dump_plan(plan), option_values["output"])
    if option_values["format"] == "json":
        # Several plans become one JSON list, which the caller writes.
        if alone and not option_values["output"]:
            option.write_output(dump_plan(plan))
        return
    shown_page = plan_page(
        plan,
        today=option.today(),
        full=option_values["full"],
        saved_path=option_values["output"] or "",
    )
    option.print_page(
        shown_page, option_values["format"], option_values["color"]
    )


def _would_change(
    plan: Plan, option_values: OptionValues, options: Any
) -> bool:
    """Return whether an apply would change anything; without a stack it would."""
    # A preview opens an engine, so it is made only for an exit code.
    if (
        not (option_values["exit_code"] or option_values["detailed_exitcode"])
        or not options.uses_stack_state
    ):
        return True
    from planner.cli.compose import open_engine

    return any(
        preview_step.action != "same"
        for preview_step in open_engine(options).preview(plan)
    )


def _exit_code(
    worst_exit_code: int, option_values: OptionValues, *, changed: bool
) -> int:
    # Terraform's convention has one code for all errors.
    if option_values["detailed_exitcode"]:
        return (
            1
            if worst_exit_code
            else option.TERRAFORM_EXIT_CODE
            if changed
            else 0
        )
    return worst_exit_code or (
        option.CHANGED_EXIT_CODE
        if option_values["exit_code"] and changed
        else 0
    )
