"""tonnage diff: cost difference of two specs or plans, or of a branch of specs and its base."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from planner.cli import complete, option, policy
from planner.cli.compose import (
    PlanningOptions,
    SpecFile,
    open_catalog,
    read_file,
)
from planner.cli.planning import make_plan
from planner.errors import (
    InfeasibleError,
    Place,
    PolicyError,
    Problem,
    SpecError,
)
from providers.files import MAX_DOCUMENT_BYTES

if TYPE_CHECKING:
    from planner.cli.base_diff import NewPlan
    from planner.cli.option import OptionValues
    from planner.market.offer import Catalog
    from planner.plan.diff_document import DiffDocument, SpecDiff
    from planner.plan.policy.verdict import Verdict
    from planner.plan.types import Plan

FORMATS: Final = (
    "text",
    "json",
    "markdown",
    "csv",
    "html",
    "github",
    "gitlab",
    "sarif",
)


def parse_thresholds(
    _context: click.Context,
    _parameter: click.Parameter,
    texts: tuple[str, ...],
) -> Any:
    """Return thresholds of texts such as +10%; raises BadParameter for another one."""
    from planner.plan.threshold import parse_threshold

    try:
        return tuple(map(parse_threshold, texts))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("diff")
@click.argument(
    "paths",
    nargs=-1,
    metavar="A B | PATH...",
    shell_complete=complete.file_names,
)
@click.option(
    "--base",
    metavar="REF",
    help="Compare the specs of this repository with those of a branch, tag or commit.",
)
@click.option(
    "--head",
    metavar="REF",
    help="With --base: compare this revision instead of the files as they are.",
)
@click.option(
    "--merge-base",
    is_flag=True,
    help="With --base: compare with where the two sides have parted.",
)
@click.option(
    "--all",
    is_flag=True,
    help="With --base: plan unchanged specs too, so that totals are those of all.",
)
@click.option(
    "--base-catalog",
    shell_complete=complete.catalogs_or_files,
    metavar="NAME|FILE",
    help="With --base: say apart what prices alone did since this catalog.",
)
@click.option(
    "--fail-if",
    metavar="GROWTH",
    multiple=True,
    callback=parse_thresholds,
    help="Exit with 5 when the cost grows by more: +10%, +5000/month, +5000/run. May be repeated.",
)
@option.calibration
@option.confidence
@option.prices
@option.catalog
@option.format_option(*FORMATS)
@option.output
@option.color
@option.exit_code
@option.detailed_exitcode
@policy.FLAG
def command(paths: tuple[str, ...], **option_values: Any) -> int:
    """Show the cost difference of A and B, or with --base that of a repository of specs.

    A and B are specs or saved plans. With --base the specs of a revision are compared with the
    files as they are: those that were added, removed, changed or renamed, below PATH if it is
    given. Both sides have the prices of one catalog, so the difference is that of the specs; only
    what differs is planned. Nothing is checked out, and nothing is fetched.

    Example: tonnage diff --base origin/main --fail-if +10% -f markdown -o comment.md
    """
    _refuse_flags(paths, option_values)
    if option_values["base"] is None:
        document, plans = _compare_files(paths, option_values)
    else:
        from planner.cli.base_diff import compare_revisions

        document, plans = compare_revisions(paths, option_values)
    verdicts = policy.judge_changes(
        option_values["policy"],
        [
            (path, plan, spec)
            for (path, plan), spec in zip(plans, document.specs, strict=True)
            if plan is not None
        ],
    )
    _write(document, verdicts, option_values)
    _raise_problems(document)
    policy.refuse_denied(verdicts)
    is_changed = document.is_changed
    # Terraform scripts expect 2 for changes.
    if option_values["detailed_exitcode"]:
        return option.TERRAFORM_EXIT_CODE if is_changed else 0
    return (
        option.CHANGED_EXIT_CODE
        if option_values["exit_code"] and is_changed
        else 0
    )


def _refuse_flags(paths: tuple[str, ...], option_values: OptionValues) -> None:
    """Raise UsageError for flags that do not go together."""
    if option_values["base"] is not None:
        return
    if len(paths) != 2:
        raise click.UsageError(
            "name two specs or plans, A and B, or a revision: --base REF"
        )
    for flag in ("head", "merge_base", "all", "base_catalog"):
        if option_values[flag]:
            name = flag.replace("_", "-")
            raise click.UsageError(f"--{name} takes --base REF")


def _compare_files(
    paths: tuple[str, ...], option_values: OptionValues
) -> tuple[DiffDocument, list[NewPlan]]:
    """Return the difference of two specs or plans, and the new one of them."""
    from planner.cli.difference import file_difference

    # One catalog for both sides: prices do not differ, only the specs.
    catalog = open_catalog(option_values["catalog"], None)
    options = option.planning_options(option_values)
    contents = [read_file(path, MAX_DOCUMENT_BYTES) for path in paths]
    plans = [
        _read_plan(path, content, catalog, options)
        for path, content in zip(paths, contents, strict=True)
    ]
    document = file_difference(
        (paths[0], paths[1]),
        (contents[0], contents[1]),
        (plans[0], plans[1]),
        option_values["fail_if"],
    )
    return document, [(plans[1].spec.path, plans[1])]


def _read_plan(
    path: str, file_bytes: bytes, catalog: Catalog, options: PlanningOptions
) -> Plan:
    from planner.plan.canonical import is_plan, parse_plan
    from planner.spec.load import load_spec

    if is_plan(file_bytes):
        return parse_plan(file_bytes, path)
    return make_plan(
        SpecFile(
            path=path, file_bytes=file_bytes, spec=load_spec(file_bytes, path)
        ),
        catalog,
        options,
    )


def _write(
    document: DiffDocument,
    verdicts: tuple[Verdict, ...],
    option_values: OptionValues,
) -> None:
    """Write the difference in the format that was asked for."""
    output_format = option_values["format"]
    output_path = option_values["output"]
    if output_format == "text":
        from planner.render.diff.page import diff_page

        option.print_page(
            diff_page(document), "text", option_values["color"], output_path
        )
        return
    from planner.render.diff.formats import WRITERS

    option.write_output(WRITERS[output_format](document, verdicts), output_path)


def _raise_problems(document: DiffDocument) -> None:
    """Raise what keeps a difference from being good: the gravest decides the exit code.

    Raises SpecError for an invalid spec of either side, InfeasibleError for a spec of the new side
    that nothing meets, and PolicyError for a threshold that is exceeded.
    """
    invalid = [
        problem
        for spec in document.specs
        for problem in _invalid_problems(spec, document.before.name)
    ]
    infeasible = [
        _infeasible_problem(spec)
        for spec in document.specs
        if spec.after is not None and spec.after.status == "infeasible"
    ]
    exceeded = _threshold_problems(document)
    problems = (*invalid, *infeasible, *exceeded)
    if invalid:
        raise SpecError(*problems)
    if infeasible:
        raise InfeasibleError(*problems)
    if exceeded:
        raise PolicyError(*problems)


def _invalid_problems(spec: SpecDiff, base_name: str) -> list[Problem]:
    """Return what is wrong with a spec; a file of the old side has the revision before it."""
    problems = []
    for side, prefix in (
        (spec.before, f"{base_name.split(maxsplit=1)[0]}:"),
        (spec.after, ""),
    ):
        problems += [
            Problem(
                code=problem.code,
                message=problem.message,
                place=Place(
                    f"{prefix}{problem.path}", problem.line, problem.column
                ),
                next_step=problem.next_step,
            )
            for problem in (side.problems if side is not None else ())
        ]
    return problems


def _infeasible_problem(spec: SpecDiff) -> Problem:
    return Problem(
        code="infeasible",
        message="no fleet meets it, so it has no cost",
        place=Place(spec.path),
        next_step=f"see what would do: tonnage plan {spec.path}",
    )


def _threshold_problems(document: DiffDocument) -> list[Problem]:
    from planner.render.diff.wording import verdict_text

    return [
        Problem(
            code="threshold",
            message=verdict_text(verdict),
            next_step="see the cause of each change above, or raise --fail-if",
        )
        for verdict in document.thresholds
        if verdict.is_exceeded
    ]
