"""What a report draws beside the plan: the week, other loads, and other circumstances. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from planner.facts.accelerator import accelerators
from planner.workload.hourly_fleet import hourly_fleet
from planner.workload.variation import answer_of, variations

if TYPE_CHECKING:
    from planner.solve.settings import SolveSettings
    from planner.solve.solution import LoadPoint, Solution
    from planner.spec.model import Spec
    from planner.workload.hourly_fleet import FleetHour
    from planner.workload.variation import Variation


class FactSource(Struct, frozen=True):
    """A row of facts that a plan rests on: its name, where it is from, and when it was read."""

    name: str
    source: str
    as_of: str


class Outlook(Struct, frozen=True, kw_only=True):
    """What a solution says beside its plan.

    hours        the 168 hours of the week, none of a job
    load_curve   what the fleet does at other loads, none without a latency
    frontier     what other limits and confidences cost, where that was planned
    sensitivity  what other circumstances cost, where that was planned
    data_sheets  rows of the accelerators
    """

    hours: tuple[FleetHour, ...] = ()
    load_curve: tuple[LoadPoint, ...] = ()
    frontier: tuple[Variation, ...] = ()
    sensitivity: tuple[Variation, ...] = ()
    data_sheets: tuple[FactSource, ...] = ()


def outlook(
    spec: Spec, solution: Solution, settings: SolveSettings | None = None
) -> Outlook:
    """Return what a solution says beside its plan.

    With settings the spec is planned anew under other circumstances too, which takes as long as
    some more plans.
    """
    find_curve = solution.find_load_curve
    frontier: list[Variation] = []
    sensitivity: list[Variation] = []
    if settings is not None and solution.bill is not None:
        planned = answer_of(solution)
        frontier = variations(spec, settings, "frontier", planned)
        sensitivity = variations(spec, settings, "sensitivity", planned)
    return Outlook(
        hours=hourly_fleet(solution, spec.shutdown.schedule),
        load_curve=() if find_curve is None else find_curve(),
        frontier=tuple(frontier),
        sensitivity=tuple(sensitivity),
        data_sheets=_data_sheets(solution),
    )


def _data_sheets(solution: Solution) -> tuple[FactSource, ...]:
    names = sorted({pool.instance.accelerator for pool in solution.pools})
    return tuple(
        FactSource(sheet.name, sheet.source, sheet.as_of)
        # A slice of an accelerator has the data sheet of the whole one.
        for name in names
        if (sheet := accelerators().get(name.split("/")[0])) is not None
    )
