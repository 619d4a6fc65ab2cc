"""tonnage check: validate specs, and what is built of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from planner.cli import complete, option, policy
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
from planner.market.owned_check import check_owned
from planner.market.region import check_regions
from planner.render.rule import rule_page
from planner.workload.solver import check

if TYPE_CHECKING:
    from planner.cli.option import OptionValues
    from planner.plan.types import Plan
    from planner.render.page import Page
    from planner.render.sarif import SarifFinding


@click.command("check")
@click.argument(
    "specs", nargs=-1, metavar="SPEC...", shell_complete=complete.file_names
)
@click.option(
    "--security",
    is_flag=True,
    help="Plan each spec too, and tell what is not safe of what it builds (exit 5).",
)
@click.option(
    "--policies",
    "judges_policies",
    is_flag=True,
    help="Plan each spec too, and tell what each rule of its policies says (exit 5).",
)
@policy.FLAG
@click.option(
    "--explain",
    "rule_id",
    shell_complete=complete.rule_names,
    metavar="RULE",
    help="Say what a rule refuses, why, and what helps; no SPEC is needed.",
)
@option.format_option("text", "sarif")
def command(
    specs: tuple[str, ...], rule_id: str | None, **option_values: Any
) -> int:
    """Validate specs, offline and without solving them; every problem of every file is listed.

    Models, the files that a spec names, lengths, regions and runtime are checked as plan does.
    With --security, each spec is planned, and findings of weight high or medium that its waivers
    do not accept fail the check. With --policies or --policy FILE, so do rules that deny. With
    -f sarif the findings of all of that are a document for a code host.

    Example: tonnage check *.yaml
    """
    if rule_id is not None:
        option.print_page(rule_page(find_rule(rule_id)), "text")
        return 0
    if not specs:
        raise click.UsageError("Missing argument 'SPEC...'.")
    findings: list[SarifFinding] = []
    is_sarif = option_values["format"] == "sarif"
    try:
        _check_files(specs, is_told=not is_sarif)
        _check_built(specs, option_values, findings)
    except TonnageError as error:
        if is_sarif and not isinstance(error, PolicyError):
            from planner.render.policy import problem_finding

            findings += map(problem_finding, error.problems)
        raise
    finally:
        # What was found is written, also where it fails the check.
        if is_sarif:
            from planner.render.sarif import sarif_text

            option.write_output(sarif_text(findings))
    return 0


def _errors(spec_path: str, *, is_told: bool) -> list[TonnageError]:
    """Return all that a plan would refuse in a file; one that is valid is told, if asked."""
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
    if is_told and not errors:
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
    read_beside = spec_folder_reader(spec_file.path)
    check(spec_file.spec, read_beside)
    if spec_file.spec.buy.owned is not None:
        check_owned(spec_file.spec, open_catalog(None, None), read_beside)


def _check_files(specs: tuple[str, ...], *, is_told: bool) -> None:
    """Raise every problem of every file, once all of them are checked."""
    errors = [
        error
        for spec_path in specs
        for error in _errors(spec_path, is_told=is_told)
    ]
    problems = [problem for error in errors for problem in error.problems]
    if errors and all(isinstance(error, MissingError) for error in errors):
        raise MissingError(*problems)
    if errors:
        raise SpecError(*problems)


def _check_built(
    specs: tuple[str, ...],
    option_values: OptionValues,
    findings: list[SarifFinding],
) -> None:
    """Plan specs, and tell what is not safe and what policies say of what they build.

    Raises PolicyError for what nobody accepts. What is found is entered into `findings`.
    """
    if option_values["policy"]:
        option_values["judges_policies"] = True
    if not option_values["security"] and not option_values["judges_policies"]:
        return
    if option_values["judges_policies"]:
        policy.check_policies(option_values["policy"], specs)
    catalog = open_catalog(None, None)
    problems: list[Problem] = []
    for spec_path in specs:
        spec_file = read_spec(spec_path)
        plan = make_plan(spec_file, catalog, PlanningOptions())
        if not plan.is_feasible:
            raise InfeasibleError(
                Problem(
                    code="infeasible",
                    message=f"{spec_path}: no fleet meets it, so nothing can be checked",
                    next_step=f"see why: tonnage plan {spec_path}",
                )
            )
        if option_values["security"]:
            problems += _security_problems(
                spec_path, plan, option_values, findings
            )
        if option_values["judges_policies"]:
            problems += _denials(spec_file, plan, option_values, findings)
    if problems:
        raise PolicyError(*problems)


def _security_problems(
    spec_path: str,
    plan: Plan,
    option_values: OptionValues,
    sarif_findings: list[SarifFinding],
) -> list[Problem]:
    """Tell what is not safe of what a spec builds, and return what nobody accepts."""
    from planner.plan.security import security_findings
    from planner.render.security import security_page, security_sarif

    today = option.today()
    findings = security_findings(plan)
    sarif_findings += security_sarif(spec_path, findings, today)
    _show_page(security_page(spec_path, findings, today), option_values)
    return [
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


def _denials(
    spec_file: SpecFile,
    plan: Plan,
    option_values: OptionValues,
    sarif_findings: list[SarifFinding],
) -> list[Problem]:
    """Tell what every rule of policies says of a plan, and return what they deny."""
    from planner.render.policy import verdict_findings, verdicts_page

    verdicts = policy.judge_specs(option_values["policy"], [(plan, spec_file)])
    sarif_findings += verdict_findings(verdicts)
    _show_page(verdicts_page(spec_file.path, verdicts), option_values)
    return [
        verdict.problem for verdict in verdicts if verdict.judgment == "denies"
    ]


def _show_page(page: Page, option_values: OptionValues) -> None:
    if option_values["format"] == "text":
        option.print_page(page, "text")
