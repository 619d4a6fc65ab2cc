"""plan --tco: a plan against machines of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from planner.cli import progress
from planner.cli.compose import (
    own_catalog,
    solve_settings,
    spec_folder_reader,
)
from planner.market.on_premises import read_data_center
from planner.render.ownership import ownership_page
from planner.workload.ownership import own_instead

if TYPE_CHECKING:
    from planner.cli.compose import PlanningOptions, SpecFile
    from planner.market.offer import Catalog
    from planner.plan.types import Plan
    from planner.render.page import Page


def tco_page(
    spec_file: SpecFile, plan: Plan, catalog: Catalog, options: PlanningOptions
) -> Page:
    """Return what own machines would cost instead. Raises UsageError where nothing compares."""
    path = spec_file.spec.where.on_premises
    if path is None:
        raise click.UsageError(
            "--tco compares with machines of your own: name their file in where.on_premises"
        )
    if plan.cost.period != "month":
        raise click.UsageError(
            "--tco compares what runs month by month, and this ends"
        )
    center = read_data_center(spec_folder_reader(spec_file.path)(path), path)
    settings = solve_settings(
        spec_file, own_catalog(catalog, options.prices), options
    )
    with progress.waiting("sizing machines of your own"):
        found = list(
            own_instead(spec_file.spec, settings, center, plan.cost.total)
        )
    return ownership_page(plan, center, found)
