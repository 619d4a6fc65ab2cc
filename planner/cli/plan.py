"""tonnage plan: the cheapest fleet for a spec, its cost and its resources."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from planner.cli import budget, complete, option, policy, progress
from planner.cli.compose import open_catalog, open_world, read_spec
from planner.cli.parallel import results_in_order
from planner.cli.planning import UsedPlan, find_plan
from planner.cli.refusal import refuse_together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from decimal import Decimal

    from planner.cli.compose import PlanningOptions, SpecFile
    from planner.cli.option import OptionValues
    from planner.cli.planning import FoundPlan
    from planner.cli.shared_quota import PlanUse
    from planner.market.offer import Catalog
    from planner.plan.types import Plan
    from planner.render.page import Page

INFEASIBLE_EXIT_CODE = 10
# The other formats are documents of their own.
PAGE_FORMATS = ("text", "markdown")


@click.command("plan")
@click.argument(
    "specs",
    nargs=-1,
    required=True,
    metavar="SPEC...",
    shell_complete=complete.file_names,
)
@option.planning_flags
@option.overrides
@option.format_option("text", "json", "markdown", "html", "sarif")
@option.output
@option.color
@option.exit_code
@option.detailed_exitcode
@budget.FLAG
@policy.FLAG
@click.option(
    "--tco",
    is_flag=True,
    help="Compare with machines of your own, of where.on_premises.",
)
@click.option(
    "--share",
    is_flag=True,
    help="Show what several services pay when they buy together; -o saves it as JSON.",
)
@click.option(
    "--live",
    "is_live",
    is_flag=True,
    help="Ask the account for quota, zones, reservations and prices, and plan within them.",
)
@click.option(
    "--record",
    shell_complete=complete.file_names,
    metavar="FILE",
    help="With --live: write what clouds answered.",
)
@click.option(
    "--replay",
    shell_complete=complete.file_names,
    metavar="FILE",
    help="Plan with the answers of a file that --record wrote.",
)
@click.option(
    "--full",
    is_flag=True,
    help="Show every line: of the bill, fleets, layouts, resources. With -f html, also what other "
    "limits, confidences and prices would cost.",
)
def command(specs: tuple[str, ...], **option_values: Any) -> int:
    """Solve specs and show the plans; nothing is created and no account is needed.

    The cheapest fleet that meets the spec, with its cost line by line, why nothing cheaper will
    do, and the resources. With -o the plan is saved: apply it later exactly as reviewed. With
    -f html it is a report with pictures, in one file; with -f sarif it is what policies and
    warnings say, at their lines, for a code host.

    Example: tonnage plan chat.yaml -o chat.plan.json
    """
    from planner.solve.settings import Memory

    options = option.planning_options(option_values)
    catalog = open_catalog(options.catalog, open_world(options.simulate))
    _refuse_flags(specs, option_values)
    worst_exit_code = 0
    any_changed = False
    plans: list[Plan] = []
    uses: list[PlanUse | None] = []
    together_usd: dict[str, Decimal] = {}
    # Specs of one repository often have models and traffic in common. Each process that they
    # are divided among has a memory of its own.
    memory = Memory()
    spec_files = [
        read_spec(spec_path, option_values["set"]) for spec_path in specs
    ]
    if option_values["share"]:
        # Of stacks that share quotas the page says what all of them lack.
        options = replace(options, tells_shortfalls=False)
    if option_values["share"] or option_values["budgets"]:
        _refuse_one_stack_twice(spec_files)
    searches = [
        partial(find_plan, spec_file, catalog, options, memory)
        for spec_file in spec_files
    ]
    for used in progress.timed(
        "planned in",
        partial(
            _written, spec_files, searches, catalog, options, option_values
        ),
    ):
        plan = used.plan
        plans.append(plan)
        uses.append(used.use)
        if used.together_usd is not None:
            together_usd[plan.stack.name] = used.together_usd
        _write_record(plan, option_values["record"])
        _say_refusals(plan, options)
        _offer_rename(plan, options)
        is_infeasible = plan.solution.status == "infeasible"
        # One infeasible spec decides the exit code of the command.
        worst_exit_code = (
            INFEASIBLE_EXIT_CODE if is_infeasible else worst_exit_code
        )
        any_changed = any_changed or (
            not is_infeasible and _would_change(plan, option_values, options)
        )
    is_list = len(plans) > 1 and not option_values["share"]
    if is_list and option_values["format"] == "json":
        _write_list(plans)
    _warn_of_joint_quotas(uses, specs, catalog, option_values)
    if option_values["tco"] and plans[0].is_feasible:
        from planner.cli.ownership import tco_page

        _print_page(
            tco_page(spec_files[0], plans[0], catalog, options),
            option_values,
        )
    _refuse_plans(
        plans, spec_files, options, option_values, together_usd=together_usd
    )
    return _exit_code(worst_exit_code, option_values, changed=any_changed)


def _write_list(plans: list[Plan]) -> None:
    """Write several plans as one JSON list."""
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


def _warn_of_joint_quotas(
    uses: list[PlanUse | None],
    specs: tuple[str, ...],
    catalog: Catalog,
    option_values: OptionValues,
) -> None:
    """Say which quotas plans exceed together that were made apart from each other."""
    if not any(uses):
        return
    from planner.cli.failure import problem_text
    from planner.cli.portfolio import minutes_ahead
    from planner.cli.shared_quota import joint_quota_problems

    record = option_values["replay"]
    flags = f"--replay {record}" if record else "--live"
    problems = joint_quota_problems(
        uses,
        f"tonnage plan --share {flags} {' '.join(specs)}",
        partial(minutes_ahead, int(catalog.as_of[:4])),
    )
    for problem in problems:
        text = problem_text(problem)
        click.echo(text.replace("error[", "warning[", 1), err=True)


def _refuse_plans(
    plans: list[Plan],
    spec_files: list[SpecFile],
    options: PlanningOptions,
    option_values: OptionValues,
    *,
    together_usd: Mapping[str, Decimal],
) -> None:
    """Raise PolicyError for plans that a policy denies, or that exceed a budget.

    `together_usd` has what each pays a month with the others, where they buy together.
    """
    verdicts = policy.judge_specs(
        option_values["policy"], list(zip(plans, spec_files, strict=True))
    )
    if option_values["format"] == "sarif":
        option.write_output(policy.sarif_of(plans, verdicts))
    refuse_together(
        partial(policy.refuse_denied, verdicts),
        partial(
            budget.refuse_overspending,
            option_values["budgets"],
            plans,
            options,
            counts_stacks=options.uses_stack_state,
            together_usd=together_usd,
        ),
    )


def _written(
    spec_files: list[SpecFile],
    searches: list[partial[FoundPlan]],
    catalog: Catalog,
    options: PlanningOptions,
    option_values: OptionValues,
) -> Iterable[UsedPlan]:
    """Make the plans of specs, and show each, or one answer for all where they buy together.

    What a plan adds to quotas is known where others are made apart from it.
    """
    is_shared = option_values["share"]
    if len(searches) > 1:
        from planner.cli.portfolio import warn_of_owned_twice

        warn_of_owned_twice(spec_files, is_shared=is_shared)
    if is_shared:
        from planner.cli.portfolio import shared_plans, write_portfolio

        plans, document = shared_plans(spec_files, searches, catalog, options)
        write_portfolio(document, option_values)
        return [
            UsedPlan(
                plan,
                together_usd=workload.together.usd
                if workload.together
                else None,
            )
            for plan, workload in zip(plans, document.workloads, strict=True)
        ]
    if option_values["format"] == "html":
        from planner.cli.report import write_report

        return write_report(searches, option_values)
    if len(searches) == 1:
        return [UsedPlan(_write_one(_search_one(searches[0]), option_values))]
    return _write_many(searches, option_values)


def _refuse_flags(specs: tuple[str, ...], option_values: OptionValues) -> None:
    """Raise UsageError for flags that do not go with so many specs, or with a format.

    SpecError for a policy that is none.
    """
    if (
        option_values["output"]
        and len(specs) > 1
        and not option_values["share"]
    ):
        raise click.UsageError("-o takes one SPEC: a plan file holds one plan")
    for spec_path in specs:
        _refuse_overwrite(spec_path, option_values["output"])
    is_page = option_values["format"] in PAGE_FORMATS
    if option_values["tco"] and (len(specs) > 1 or not is_page):
        raise click.UsageError("--tco takes one SPEC, and shows a page")
    if option_values["record"] and (
        len(specs) > 1 or not option_values["is_live"]
    ):
        raise click.UsageError("--record takes --live and one SPEC")
    if option_values["is_live"] and (
        option_values["replay"] or option_values["simulate"] is not None
    ):
        raise click.UsageError(
            "--live asks real clouds: leave out --replay and --simulate"
        )
    if option_values["share"] and len(specs) == 1:
        raise click.UsageError("--share takes several SPECs")
    if option_values["share"] and option_values["format"] == "sarif":
        raise click.UsageError(
            "--share has no findings: for those of each plan as -f sarif leave it out"
        )
    policy.check_policies(option_values["policy"], specs)


def _write_record(plan: Plan, path: str | None) -> None:
    """Write what clouds answered to a file of --record."""
    if path is None or plan.inputs.live is None:
        return
    from planner.cli.live import facts_text

    option.write_output(facts_text(plan.inputs.live.facts), path)


def _refuse_one_stack_twice(spec_files: list[SpecFile]) -> None:
    """Raise UsageError for two specs of one stack: together they would count as two."""
    names = Counter(spec_file.spec.name for spec_file in spec_files)
    for name, count in names.items():
        if count > 1:
            raise click.UsageError(
                f"{count} of the SPECs are of the stack {name}: name each stack once"
            )


def _offer_rename(plan: Plan, options: PlanningOptions) -> None:
    """Name a stack that stands and was applied from the same file under another name."""
    if (
        not options.uses_stack_state
        or options.stack
        or plan.stack.state_sha256 is not None
    ):
        return
    from planner.cli.compose import open_engine, readable_stacks

    engine = open_engine(options)
    for status in readable_stacks(engine):
        if status.facts and status.facts.spec_path == plan.spec.path:
            click.echo(
                f"stack {status.stack} was applied from {plan.spec.path} and stays beside "
                f"{plan.stack.name}; to go on with it: "
                f"tonnage rename {status.stack} {plan.stack.name}{options.flags}",
                err=True,
            )


def _say_refusals(plan: Plan, options: PlanningOptions) -> None:
    """Say what the simulated clouds would refuse of a plan; nothing is known of real ones."""
    if options.simulate is None or not plan.is_feasible:
        return
    from planner.cli.compose import open_engine
    from planner.cli.failure import problem_text
    from stacks.engine.failure import combined_error

    refusals = open_engine(options).preflight(plan)
    if refusals:
        error = combined_error(refusals, "would be refused", "")
        for problem in error.problems:
            click.echo(problem_text(problem), err=True)


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


def _write_many(
    searches: list[partial[FoundPlan]], option_values: OptionValues
) -> Iterator[UsedPlan]:
    """Make plans in parallel and show each; `explain` says what the wishes of one cost.

    Several plans become one JSON list, which the caller writes. Pages end with the total of all.
    """
    from planner.render.plan import fleet_page
    from planner.render.total import total_page

    # A budget that is exceeded names the wish that would help most.
    make = _explained if option_values["budgets"] else _plan_only
    plans = []
    for used in results_in_order(
        [partial(make, search) for search in searches]
    ):
        plan = used.plan
        plans.append(plan)
        if option_values["format"] in PAGE_FORMATS:
            _print_page(
                fleet_page(
                    plan, today=option.today(), full=option_values["full"]
                ),
                option_values,
            )
        yield used
    if option_values["format"] in PAGE_FORMATS:
        _print_page(total_page(plans), option_values)


def _plan_only(search: Callable[[], FoundPlan]) -> UsedPlan:
    # A solution does not leave its process: it can still plan.
    found = search()
    return found.used(found.plan)


def _explained(search: Callable[[], FoundPlan]) -> UsedPlan:
    found = search()
    return found.used(found.explained())


def _search_one(search: Callable[[], FoundPlan]) -> FoundPlan:
    with progress.waiting("looking for the cheapest fleet"):
        return search()


def _write_one(found_plan: FoundPlan, option_values: OptionValues) -> Plan:
    """Write a plan with what its wishes cost, and return it.

    A terminal shows the fleet first, and what its wishes cost when that is planned too.
    """
    from planner.plan.canonical import dump_plan
    from planner.render.plan import fleet_page, reasons_page

    full, output_path = option_values["full"], option_values["output"]
    output_format = option_values["format"]
    is_page = output_format in PAGE_FORMATS
    first_page: Page = ()
    if is_page:
        first_page = fleet_page(
            found_plan.plan, today=option.today(), full=full
        )
    if output_format == "text":
        _print_page(first_page, option_values)
    with progress.waiting("planning what each wish of the spec costs"):
        plan = found_plan.explained()
    if output_path or output_format == "json":
        option.write_output(dump_plan(plan), output_path)
    if not is_page:
        return plan
    last_page = reasons_page(
        plan, first_page, full=full, saved_path=output_path or ""
    )
    whole_page = (*first_page, *last_page)
    # Of a text the first part is shown already.
    _print_page(
        last_page if output_format == "text" else whole_page, option_values
    )
    return plan


def _print_page(page: Page, option_values: OptionValues) -> None:
    option.print_page(page, option_values["format"], option_values["color"])


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
