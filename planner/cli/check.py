"""tonnage check: validate specs."""

from __future__ import annotations

import click

from planner.cli import option
from planner.cli.compose import (
    PlanningOptions,
    SpecFile,
    open_catalog,
    read_spec,
    spec_folder_reader,
)
from planner.cli.planning import make_plan
from planner.errors import (
    InfeasibleError,
    MissingError,
    PolicyError,
    Problem,
    SpecError,
    TonnageError,
)
from planner.facts.rule import find_rule
from planner.market.region import check_regions
from planner.render.rule import rule_page
from planner.workload.solver import check


def _errors(spec_path: str) -> list[TonnageError]:
    """Return all that a plan would refuse in a file, and announce one that is valid."""
    try:
        spec_file = read_spec(spec_path)
    except TonnageError as error:
        return [error]
    errors: list[TonnageError] = []
    for check_part in (_check_regions, _check_workload):
        try:
            check_part(spec_file)
        except TonnageError as error:
            errors.append(error)
    if not errors:
        option.write_output(
            f"{spec_path}: valid, {type(spec_file.spec).__name__} {spec_file.spec.name}\n"
        )
    return errors


def _check_regions(spec_file: SpecFile) -> None:
    # Most specs name no region, and need no catalog to be checked.
    where = spec_file.spec.where
    if where.regions or where.zones:
        check_regions(where, open_catalog(None, None))


def _check_workload(spec_file: SpecFile) -> None:
    check(spec_file.spec, spec_folder_reader(spec_file.path))


@click.command("check")
@click.argument("specs", nargs=-1, metavar="SPEC...")
@click.option(
    "--security",
    is_flag=True,
    help="Plan each spec too, and tell what is not safe of what it builds (exit 5).",
)
@click.option(
    "--explain",
    "rule_id",
    metavar="RULE",
    help="Say what a rule refuses, why, and what helps; no SPEC is needed.",
)
def command(
    specs: tuple[str, ...],
    security: bool,  # noqa: FBT001 - click passes it by name
    rule_id: str | None,
) -> int:
    """Validate specs, offline and without solving them; every problem of every file is listed.

    Models, the files that a spec names, lengths, regions and runtime are checked as plan does.
    With --security, each spec is planned, and findings of weight high or medium that its waivers
    do not accept fail the check.

    Example: tonnage check *.yaml
    """
    if rule_id is not None:
        option.print_page(rule_page(find_rule(rule_id)), "text")
        return 0
    if not specs:
        raise click.UsageError("Missing argument 'SPEC...'.")
    # All files are checked before the command fails.
    errors = [error for spec_path in specs for error in _errors(spec_path)]
    problems = [problem for error in errors for problem in error.problems]
    if errors and all(isinstance(error, MissingError) for error in errors):
        raise MissingError(*problems)
    if errors:
        raise SpecError(*problems)
    if security:
        _check_security(specs)
    return 0


def _check_security(specs: tuple[str, ...]) -> None:
    """Tell what is not safe of what specs build. Raises PolicyError for what nobody accepts."""
    from planner.plan.security import security_findings
    from planner.render.security import security_page

    today = option.today()
    catalog = open_catalog(None, None)
    problems = []
    for spec_path in specs:
        plan = make_plan(read_spec(spec_path), catalog, PlanningOptions())
        if not plan.is_feasible:
            raise InfeasibleError(
                Problem(
                    code="infeasible",
                    message=f"{spec_path}: no fleet meets it, so nothing can be checked",
                    next_step=f"see why: tonnage plan {spec_path}",
                )
            )
        findings = security_findings(plan)
        option.print_page(security_page(spec_path, findings, today), "text")
        problems += [
            Problem(
                code=finding.rule.id,
                message=f"{spec_path}: {finding.rule.reason}",
                cause=", ".join(finding.resources),
                next_step=f"{finding.rule.remedy}, or accept it: waivers: "
                f"['{finding.rule.id} until DATE: reason']",
            )
            for finding in findings
            if finding.fails(today)
        ]
    if problems:
        raise PolicyError(*problems)
