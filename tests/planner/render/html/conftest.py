"""Plans of blueprints with what a report draws beside them, each made once."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from planner.cli.portfolio import minutes_ahead
from planner.plan.document import PlannedStack, SpecSource, assemble
from planner.plan.portfolio import NOT_MOVED, portfolio_document
from planner.render.html.report import PlanView
from planner.solve.settings import SolveSettings
from planner.workload.outlook import outlook
from planner.workload.portfolio import share
from planner.workload.sharing import member_of
from planner.workload.solver import find
from providers.catalog.load import load_catalog
from stacks.build import planned_stack
from stacks.spec.table import unsupported_reason
from tests.conftest import BLUEPRINTS, present, spec_of
from tests.planner.test_workload_portfolio import SPEC

if TYPE_CHECKING:
    from planner.plan.portfolio_document import PortfolioDocument
    from planner.spec.model import Spec


def settings_of(spec: Spec) -> SolveSettings:
    return SolveSettings(
        catalog=load_catalog().using(spec.stated_usage),
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
        alternative_count=3,
    )


@cache
def view_of(text: str, path: str = "spec.yaml"):
    """What `plan -f html` draws."""
    spec = spec_of(text)
    settings = settings_of(spec)
    solution = find(spec, settings)
    stack = PlannedStack(name=spec.name)
    if solution.is_built:
        stack = planned_stack(spec, solution, stack)
    plan = assemble(
        spec,
        solution.explained(),
        settings.catalog,
        source=SpecSource(path, "0" * 64),
        stack=stack,
    )
    return PlanView(plan, outlook(spec, solution))


def blueprint_view(name: str) -> PlanView:
    [path] = [path for path in BLUEPRINTS if path.stem == name]
    return view_of(path.read_text(), path.name)


@cache
def two_coasts() -> PortfolioDocument:
    """What `plan --share` says of two services that are busy at other hours."""
    specs = [
        spec_of(
            SPEC.replace("ZONE", zone)
            .replace("MORE", "")
            .replace("name: chat", f"name: {name}")
        )
        for name, zone in (
            ("europe", "Europe/Berlin"),
            ("america", "America/Los_Angeles"),
        )
    ]
    settings = settings_of(specs[0])
    solutions = [find(spec, settings) for spec in specs]
    plans = [
        assemble(
            spec,
            solution,
            settings.catalog,
            source=SpecSource(f"{spec.name}.yaml", "0" * 64),
            stack=PlannedStack(name=spec.name),
        )
        for spec, solution in zip(specs, solutions, strict=True)
    ]
    members = [
        present(member_of(spec, solution, lambda _: b"", "/specs"))
        for spec, solution in zip(specs, solutions, strict=True)
    ]
    return portfolio_document(
        plans,
        share(members, settings.catalog, partial(minutes_ahead, 2026)),
        chosen=None,
        remedy=lambda _: "",
        moves=NOT_MOVED,
    )
