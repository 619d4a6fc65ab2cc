"""The Python API: plan a spec, predict rows of a table, compare plans.

It does what the commands do without files, terminals and exit codes. Errors are those of
`planner.errors`; each has the place, the cause and one next step.

    from planner.api import diff, plan

    before = plan(open("main.yaml", "rb").read(), path="main.yaml")
    after = plan(open("branch.yaml", "rb").read(), path="branch.yaml")
    print(after.cost.total, diff(before, after).delta_usd)
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from planner.market.owned_check import check_owned
from planner.market.region import check_regions
from planner.plan.diff import compare_plans
from planner.plan.document import PlannedStack, SpecSource, assemble
from planner.plan.types import PlanInputs
from planner.solve.settings import (
    DEFAULT_CONFIDENCE,
    DEFAULT_LEVEL,
    SolveSettings,
)
from planner.spec.load import load_spec
from planner.workload.solver import solve
from providers.files import read_regular

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.market.offer import Catalog
    from planner.plan.diff import PlanDiff
    from planner.plan.types import Plan

__all__ = ["diff", "estimate", "load_catalog", "plan"]


def load_catalog(manifest: str | None = None) -> Catalog:
    """Open the catalog that tonnage brings along, or that of a manifest.json.

    Raises CatalogError when a file was changed, or a row is wrong.
    """
    from providers.catalog.load import load_catalog as load

    return load(Path(manifest) if manifest else None)


def plan(
    spec: bytes,
    *,
    path: str = "spec.yaml",
    catalog: Catalog | None = None,
    confidence: float = DEFAULT_LEVEL,
    alternatives: int = 3,
    read_file: Callable[[str], bytes] | None = None,
) -> Plan:
    """Return the plan of a spec, as `tonnage plan` saves it.

    spec          the YAML text
    path          what errors and the plan call it
    catalog       the embedded one when left out
    confidence    share of cases in which the limits are met, 0.5 to 0.99
    alternatives  how many alternatives of each sort are listed
    read_file     opens files that the spec names; by default those beside `path`

    An infeasible spec gives a plan without pools. Raises SpecError for a spec that is wrong.
    """
    from planner.spec.network import chosen_range, with_range
    from stacks.build import planned_stack, with_planned_fallbacks
    from stacks.graph import plugin_versions
    from stacks.spec.table import unsupported_reason

    digests: dict[str, str] = {}
    parsed_spec = load_spec(spec, path)
    catalog = (catalog or load_catalog()).using(parsed_spec.stated_usage)
    check_regions(parsed_spec.where, catalog)
    read_beside = _recorded(read_file or _beside(path), digests)
    check_owned(parsed_spec, catalog, read_beside)
    settings = SolveSettings(
        catalog=catalog,
        unbuilt_reason=unsupported_reason,
        read_file=read_beside,
        alternative_count=alternatives,
        confidence=replace(DEFAULT_CONFIDENCE, level=confidence),
    )
    solution = solve(parsed_spec, settings)
    stack = PlannedStack(name=parsed_spec.name)
    own_range = chosen_range(parsed_spec.network, ())
    placed_spec = with_range(parsed_spec, own_range)
    # Of some machines nothing is built, and a plan only compares them.
    if solution.is_built:
        stack = planned_stack(placed_spec, solution, stack)
    assembled_plan = assemble(
        parsed_spec,
        solution,
        catalog,
        source=SpecSource(path, hashlib.sha256(spec).hexdigest()),
        stack=stack,
        inputs=PlanInputs(
            files=digests,
            alternatives=alternatives,
            confidence=round(confidence * 100),
            plugins=plugin_versions(stack.graph.provider),
            network_range=own_range,
        ),
    )
    return with_planned_fallbacks(
        assembled_plan, placed_spec, settings, solution
    )


def estimate(table: str, *, path: str = "rows.csv") -> str:
    """Predict every row of a table, as `tonnage estimate --table` does; CSV in, CSV out.

    A config.json that a row names is read beside `path`. Raises UsageError when the header is that
    of no table; rows that cannot be answered are refused in their `reason`.
    """
    from planner.estimate.table import predict_table

    return predict_table(table, path, _beside(path))


def diff(before: Plan, after: Plan) -> PlanDiff:
    """Compare two plans: pools and cost lines by their names."""
    return compare_plans(before, after)


def _recorded(
    read_file: Callable[[str], bytes], digests: dict[str, str]
) -> Callable[[str], bytes]:
    """Return a reader that enters the SHA-256 of what it reads into `digests`."""

    def read(name: str) -> bytes:
        content = read_file(name)
        digests[name] = hashlib.sha256(content).hexdigest()
        return content

    return read


def _beside(path: str) -> Callable[[str], bytes]:
    return lambda name: read_regular(Path(path).parent / name)
