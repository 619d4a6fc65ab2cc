"""Plans of blueprints with what a report draws beside them, each made once."""

from __future__ import annotations

from functools import cache

from planner.plan.document import PlannedStack, SpecSource, assemble
from planner.render.html.report import PlanView
from planner.solve.settings import SolveSettings
from planner.workload.outlook import outlook
from planner.workload.solver import find
from providers.catalog.load import load_catalog
from stacks.build import planned_stack
from stacks.spec.table import unsupported_reason
from tests.conftest import BLUEPRINTS, spec_of


@cache
def view_of(text: str, path: str = "spec.yaml"):
    """What `plan -f html` draws."""
    spec = spec_of(text)
    settings = SolveSettings(
        catalog=load_catalog().using(spec.stated_usage),
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
        alternative_count=3,
    )
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
