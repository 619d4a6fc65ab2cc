"""plan --tco: a plan against machines of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from planner.cli import progress
from planner.cli.compose import own_catalog, solve_settings
from planner.market.on_premises import read_data_center
from planner.render.ownership import ownership_page
from planner.workload.owned_run import own_run
from planner.workload.ownership import own_instead

if TYPE_CHECKING:
    from planner.cli.compose import PlanningOptions, SpecFile
    from planner.market.offer import Catalog
    from planner.market.on_premises import DataCenter
    from planner.plan.types import Plan
    from planner.render.page import Page
    from planner.solve.settings import SolveSettings
    from planner.spec.model import Spec
    from planner.workload.owned_run import OwnedRun
    from planner.workload.ownership import Ownership


def tco_page(
    spec_file: SpecFile, plan: Plan, catalog: Catalog, options: PlanningOptions
) -> Page:
    """Return what own machines would cost instead. Raises UsageError where nothing compares."""
    spec = spec_file.spec
    if spec.where.on_premises is None:
        raise click.UsageError(
            "--tco compares with machines of your own: name their file in where.on_premises"
        )
    settings = solve_settings(
        spec_file, own_catalog(catalog, options.prices), options
    )
    center = data_center(spec, settings)
    assert center is not None  # noqa: S101 - its file is named
    with progress.waiting("sizing machines of your own"):
        found = _sized(plan, spec, settings, center)
    return ownership_page(plan, center, found)


def own_machine_page(
    plan: Plan, spec: Spec, settings: SolveSettings, name: str
) -> Page | None:
    """Return what one kind of own machines would cost instead; None where none is called so."""
    center = data_center(spec, settings)
    if center is None:
        return None
    named = tuple(
        machine for machine in center.machines if machine.name == name
    )
    if not named:
        return None
    found = [
        one
        for one in _sized(plan, spec, settings, center)
        if one.machine.name == name
    ]
    return ownership_page(plan, replace(center, machines=named), found)


def data_center(spec: Spec, settings: SolveSettings) -> DataCenter | None:
    """Return the machines of the file that a spec names; None without one."""
    path = spec.where.on_premises
    if path is None:
        return None
    return read_data_center(settings.read_file(path), path)


def machines_of_ones_own(
    plan: Plan, spec: Spec, settings: SolveSettings
) -> list[Ownership] | list[OwnedRun]:
    """Return each kind of own machines that would do: none without a file."""
    center = data_center(spec, settings)
    if center is None:
        return []
    return _sized(plan, spec, settings, center)


def names_of_own_machines(
    spec: Spec, settings: SolveSettings
) -> tuple[str, ...]:
    """Return the kinds of machines that the file of a spec names: none without a file."""
    center = data_center(spec, settings)
    machines = center.machines if center is not None else ()
    return tuple(machine.name for machine in machines)


def _sized(
    plan: Plan, spec: Spec, settings: SolveSettings, center: DataCenter
) -> list[Ownership] | list[OwnedRun]:
    """Return what runs month by month over the years, and of what ends its hours."""
    # Nothing is compared with a plan that has no fleet.
    if not plan.solution.pools:
        return []
    total = plan.cost.total
    if plan.cost.period == "month":
        return list(own_instead(spec, settings, center, total))
    return list(own_run(spec, settings, center, total))
