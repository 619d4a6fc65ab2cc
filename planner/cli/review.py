"""tonnage review: planned beside actual cost, and what the cheapest plan of today would save."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from planner.cli import complete, option
from planner.cli.charges import charge_files, read_plan, stack_charges
from planner.cli.compose import PlanningOptions, open_catalog, read_spec
from planner.cli.planning import make_plan
from planner.errors import PolicyError, Problem, TonnageError

if TYPE_CHECKING:
    from planner.plan.actual.review import Move, Review
    from planner.plan.types import Plan


def parse_share(
    _context: click.Context, _parameter: click.Parameter, share_text: str | None
) -> Any:
    """Return a share of a text such as 20%; raises BadParameter for another one."""
    if share_text is None:
        return None
    try:
        share = Decimal(share_text.removesuffix("%")) / 100
    except InvalidOperation:
        share = Decimal("NaN")
    if not share.is_finite() or share < 0 or not share_text.endswith("%"):
        raise click.BadParameter("write a share of the planned cost: 20%")
    return share


@click.command("review")
@click.argument("plan", shell_complete=complete.file_names)
@charge_files
@option.catalog
@click.option(
    "--fail-above",
    metavar="PERCENT",
    callback=parse_share,
    help="Exit with 5 when it has cost so much more than planned: 20%.",
)
@option.format_option("text", "json", "markdown", "html")
@option.color
def command(
    plan: str,
    first_files: tuple[str, ...],
    more_files: tuple[str, ...],
    **option_values: Any,
) -> int:
    """Compare a PLAN with what its stack has cost, with the cause of each difference.

    Then the cheapest plan of the same spec on today's catalog, and what a move to it would save.
    With -f markdown it is the body of a pull request.

    Example: tonnage review chat.plan.json --from focus-*.csv -f markdown
    """
    from planner.plan.actual.review import review
    from planner.render.review import review_page

    plan_document = read_plan(plan)
    reviewed = review(
        plan_document,
        stack_charges(plan_document, (*first_files, *more_files)),
    )
    reviewed = replace(
        reviewed,
        move=_move(reviewed, plan_document, option_values["catalog"]),
    )
    if option_values["format"] == "json":
        from msgspec import to_builtins

        from planner.plan.canonical import dump_document

        option.write_output(dump_document(to_builtins(reviewed)))
    elif option_values["format"] == "html":
        from planner.render.html.comparison import review_report

        option.write_output(review_report(reviewed, review_page(reviewed)))
    else:
        option.print_page(
            review_page(reviewed),
            option_values["format"],
            option_values["color"],
        )
    _refuse_above(reviewed, option_values["fail_above"])
    return 0


def _move(reviewed: Review, plan: Plan, catalog_path: str | None) -> Move:
    """Return what today's plan of the spec would save, or why there is none."""
    from planner.plan.actual.review import Move, proposed_move

    if not Path(plan.spec.path).is_file():
        return Move(
            spec=plan.spec.path,
            problem=f"{plan.spec.path} is not here: go to the folder that it was planned in",
        )
    catalog = open_catalog(catalog_path, None)
    # The same questions as those of the plan.
    options = PlanningOptions(
        alternatives=0,
        confidence=plan.inputs.confidence,
        calibration=plan.inputs.calibration,
        prices=plan.inputs.prices,
    )
    try:
        now = make_plan(read_spec(plan.spec.path), catalog, options)
    except TonnageError as error:
        return Move(spec=plan.spec.path, problem=str(error))
    return proposed_move(reviewed, plan, now)


def _refuse_above(reviewed: Review, most_share: Decimal | None) -> None:
    """Raise PolicyError where it has cost more than planned by more than a share."""
    if most_share is None:
        return
    if reviewed.difference_usd <= reviewed.planned_usd * most_share:
        return
    from planner import figures

    raise PolicyError(
        Problem(
            code="review",
            message=(
                f"it has cost {figures.dollars(reviewed.actual_usd, cents=True)}, which is more "
                f"than {figures.dollars(reviewed.planned_usd, cents=True)} and "
                f"{most_share * 100:f} % of it"
            ),
            next_step="see the causes above, and plan the spec again",
        )
    )
