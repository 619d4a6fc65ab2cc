"""--budgets: what plans may cost together, with the stacks that stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from planner.cli import complete
from planner.cli.compose import open_engine, read_file, readable_stacks
from planner.errors import PolicyError
from providers.files import MAX_DOCUMENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from decimal import Decimal

    from planner.cli.compose import PlanningOptions
    from planner.plan.types import Plan

FLAG: Final = click.option(
    "--budgets",
    shell_complete=complete.file_names,
    metavar="FILE",
    help="Refuse what exceeds a budget of this file (exit 5).",
)


def refuse_overspending(
    path: str | None,
    plans: Sequence[Plan],
    options: PlanningOptions,
    *,
    counts_stacks: bool,
    together_usd: Mapping[str, Decimal] | None = None,
) -> None:
    """Raise PolicyError for plans that exceed a budget, and tell of those that nearly do.

    With `counts_stacks` the stacks that stand are counted too. `together_usd` has what stacks pay
    a month that buy together.
    """
    if path is None:
        return
    from planner.plan.budget import judge, read_budgets, spendings_of

    file_bytes = read_file(
        path, MAX_DOCUMENT_BYTES, begin="see its keys: tonnage schema budgets"
    )
    budgets = read_budgets(file_bytes, path)
    stacks = readable_stacks(open_engine(options)) if counts_stacks else ()
    problems, warnings = judge(
        budgets, tuple(spendings_of(plans, stacks, together_usd or {}))
    )
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    if problems:
        raise PolicyError(*problems)
