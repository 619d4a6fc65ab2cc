"""What usage and review share: a plan, and the charges of its stack from files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from planner.cli import complete
from planner.cli.compose import read_file
from providers.files import MAX_DOCUMENT_BYTES

if TYPE_CHECKING:
    from planner.cli.option import CommandT
    from planner.plan.actual.charge import Charge
    from planner.plan.types import Plan

HOW_TO_EXPORT: Final = "export the costs of your cloud: docs/usage.md"


def charge_files(command: CommandT) -> CommandT:
    """Add --from FILE..., whose further files are arguments, so that *.csv works."""
    command = click.option(
        "--from",
        "first_files",
        shell_complete=complete.file_names,
        metavar="FILE...",
        multiple=True,
        required=True,
        help="Cost exports: FOCUS, Azure or BigQuery, as CSV or JSON lines.",
    )(command)
    return click.argument(
        "more_files", metavar="", nargs=-1, shell_complete=complete.file_names
    )(command)


def read_plan(path: str) -> Plan:
    """Return the plan of a file."""
    from planner.plan.canonical import parse_plan

    return parse_plan(read_file(path, MAX_DOCUMENT_BYTES), path)


def stack_charges(plan: Plan, paths: tuple[str, ...]) -> list[Charge]:
    """Return the charges of a plan's stack. Raises MissingError where there are none."""
    from planner.plan.actual.charge import StackTags, read_charges
    from stacks.spec.stack import POOL_TAG, STACK_TAG

    return read_charges(
        {path: read_file(path, begin=HOW_TO_EXPORT) for path in paths},
        StackTags(STACK_TAG, plan.stack.name, POOL_TAG),
    )
