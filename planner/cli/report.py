"""Reports of plans in HTML: one document for all specs of a command."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from planner.cli import option, progress
from planner.cli.parallel import results_in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.cli.option import OptionValues
    from planner.cli.planning import FoundPlan, UsedPlan
    from planner.render.html.report import PlanView


def write_report(
    searches: Sequence[Callable[[], FoundPlan]], option_values: OptionValues
) -> list[UsedPlan]:
    """Make the plans of specs, write the report of all, and return them with their use of quotas.

    With -o the plan is saved too. With --full each spec is planned anew under other
    circumstances, which takes as long as some more plans.
    """
    from planner.plan.canonical import dump_plan
    from planner.render.html.report import portfolio_report

    is_full, output_path = option_values["full"], option_values["output"]
    with progress.waiting("planning, and what each wish of a spec costs"):
        views = list(
            results_in_order(
                [partial(_view, search, is_full=is_full) for search in searches]
            )
        )
    if output_path:
        option.write_output(dump_plan(views[0][0].plan), output_path)
    option.write_output(portfolio_report([view for view, _ in views]))
    return [used for _, used in views]


def _view(
    search: Callable[[], FoundPlan], *, is_full: bool
) -> tuple[PlanView, UsedPlan]:
    # A solution does not leave its process: what a report draws of it does.
    from planner.render.html.report import PlanView
    from planner.workload.outlook import outlook

    found = search()
    view = PlanView(
        found.explained(),
        outlook(
            found.spec, found.solution, found.settings if is_full else None
        ),
    )
    return view, found.used(view.plan)
