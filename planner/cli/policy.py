"""Policies of plans: where they are found, and what is refused because of them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from planner.cli import complete, option
from planner.cli.compose import read_file
from planner.errors import PolicyError
from providers.files import MAX_DOCUMENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from planner.cli.compose import SpecFile
    from planner.plan.diff_document import SpecDiff
    from planner.plan.policy.judged_plan import JudgedPlan
    from planner.plan.policy.rule import PolicyFile
    from planner.plan.policy.verdict import Verdict
    from planner.plan.types import Plan

POLICY_NAME: Final = "policy.yaml"
REPOSITORY_MARK: Final = ".git"
FLAG: Final = click.option(
    "--policy",
    shell_complete=complete.file_names,
    metavar="FILE",
    multiple=True,
    help="Judge by this policy, instead of each policy.yaml from the spec up to the repository "
    "(exit 5).",
)
PACK_FLAG: Final = click.option(
    "--policy-pack",
    metavar="FOLDER",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="Let Pulumi judge its resources by this policy pack (CrossGuard) too (exit 5).",
)


def policy_paths(spec_path: str) -> list[str]:
    """Return the policies of a spec: beside it, and in every folder up to that of the repository.

    All of them count, so a nearer one loosens nothing. Outside of a repository, it is the one
    beside the spec.
    """
    # Of a link, it is the folder that it stands in which has a say.
    folders = Path(os.path.normpath(Path.cwd() / spec_path)).parents
    repository = next(
        (
            position
            for position, folder in enumerate(folders)
            if (folder / REPOSITORY_MARK).exists()
        ),
        0,
    )
    return [
        _shown_path(folder / POLICY_NAME)
        for folder in folders[: repository + 1]
        # A link that leads nowhere is a policy that cannot be read, not none.
        if os.path.lexists(folder / POLICY_NAME)
    ]


def _shown_path(path: Path) -> str:
    """Return a path as seen from the working folder."""
    return os.path.relpath(path)


def check_policies(paths: Sequence[str], spec_paths: Iterable[str]) -> None:
    """Raise what is wrong with the policies of specs, before these take minutes to plan."""
    found_paths = dict.fromkeys(
        paths or (path for spec in spec_paths for path in policy_paths(spec))
    )
    if not found_paths:
        return
    from planner.cli.policy_process import require_engine

    require_engine()
    for path in found_paths:
        read_policy_file(path)


def judge_specs(
    paths: Sequence[str], plans: Iterable[tuple[Plan, SpecFile | None]]
) -> tuple[Verdict, ...]:
    """Return what policies say of the plans of specs; one that builds nothing breaks no rule."""
    from planner.plan.policy.judged_plan import JudgedPlan

    return judge_all(
        paths,
        [
            JudgedPlan(
                plan=plan,
                spec_path=spec_file.path if spec_file else plan.spec.path,
                spec_bytes=spec_file.file_bytes if spec_file else None,
            )
            for plan, spec_file in plans
            if plan.is_feasible
        ],
    )


def judge_changes(
    paths: Sequence[str], changes: Iterable[tuple[str, Plan, SpecDiff]]
) -> tuple[Verdict, ...]:
    """Return what the files of specs say of plans with the difference of each to another one."""
    return judge_all(
        paths,
        [
            _changed_plan(path, plan, diff)
            for path, plan, diff in changes
            if plan.is_feasible
        ],
    )


def _changed_plan(path: str, plan: Plan, diff: SpecDiff) -> JudgedPlan:
    from planner.plan.policy.judged_plan import JudgedPlan

    spec_bytes = read_file(path) if Path(path).is_file() else b""
    # Lines of another file would mislead.
    is_same = hashlib.sha256(spec_bytes).hexdigest() == plan.spec.sha256
    return JudgedPlan(
        plan=plan,
        spec_path=path,
        spec_bytes=spec_bytes if is_same else None,
        diff=diff,
    )


def sarif_of(plans: Sequence[Plan], verdicts: Sequence[Verdict]) -> str:
    """Return a SARIF log of what policies say of plans, and of what these warn of."""
    from planner.render.policy import notice_finding, verdict_findings
    from planner.render.sarif import sarif_text

    notices = [
        notice_finding(notice, plan.spec.path)
        for plan in plans
        for notice in plan.warnings
    ]
    return sarif_text([*verdict_findings(verdicts), *notices])


def judge_all(
    paths: Sequence[str], plans: Iterable[JudgedPlan]
) -> tuple[Verdict, ...]:
    """Return what policies say of plans: those that are named, or those of each spec."""
    verdicts: list[Verdict] = []
    plans_of: dict[tuple[str, ...], list[JudgedPlan]] = {}
    for plan in plans:
        found_paths = tuple(paths or policy_paths(plan.spec_path))
        plans_of.setdefault(found_paths, []).append(plan)
    for found_paths, same_plans in plans_of.items():
        # Nothing is imported for plans without a policy.
        if found_paths:
            verdicts += _judge(found_paths, same_plans)
    return tuple(verdicts)


def _judge(
    paths: Sequence[str], plans: Sequence[JudgedPlan]
) -> tuple[Verdict, ...]:
    from planner.cli.policy_process import judge_in_process
    from planner.plan.policy.verdict import judge_plans

    policies = [read_policy_file(path) for path in paths]
    return judge_plans(policies, plans, judge_in_process, option.today())


def read_policy_file(path: str) -> PolicyFile:
    """Return the policy of a file."""
    from planner.plan.policy.rule import read_policy

    file_bytes = read_file(
        path, MAX_DOCUMENT_BYTES, begin="see its keys: tonnage schema policy"
    )
    return read_policy(file_bytes, path)


def refuse_denied(verdicts: Sequence[Verdict]) -> None:
    """Tell what policies warn of and what is waived. Raises PolicyError for what they deny."""
    from planner.cli.failure import problem_text
    from planner.render.policy import verdicts_line, waiver_text

    if not verdicts:
        return
    click.echo(verdicts_line(verdicts), err=True)
    for verdict in verdicts:
        if verdict.judgment == "warns":
            text = problem_text(verdict.problem)
            click.echo(text.replace("error[", "warning[", 1), err=True)
        elif verdict.judgment == "waived" and verdict.waiver is not None:
            click.echo(
                f"note: {verdict.rule.id} of {verdict.stack} is {waiver_text(verdict.waiver)}",
                err=True,
            )
    denied = [
        verdict.problem for verdict in verdicts if verdict.judgment == "denies"
    ]
    if denied:
        raise PolicyError(*denied)
