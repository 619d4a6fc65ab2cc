"""What a saved plan was made from, read again and compared before it is applied."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.cli.compose import (
    SpecFile,
    read_file,
    read_spec,
    spec_folder_reader,
)
from planner.cli.planning import derive_plan
from planner.errors import MissingError, Problem, StaleError
from planner.plan.staleness import PresentInputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.cli.compose import PlanningOptions
    from planner.market.offer import Catalog
    from planner.plan.types import Plan

# Parts of a plan that follow from its inputs, whatever stands.
DERIVED_PARTS: Final = (
    "solution",
    "cost",
    "graph",
    "shutdown",
    "launch",
    "fallbacks",
)


def find_spec(plan: Plan, plan_path: str) -> SpecFile | None:
    """Return the spec of a plan as it is now; nothing when there is no file.

    It looks at the path in the plan, then for a file of that name beside the plan.
    """
    planned_path = Path(plan.spec.path)
    # Plan and spec may have moved to another folder together.
    for path in (planned_path, Path(plan_path).parent / planned_path.name):
        if path.is_file():
            return read_spec(str(path))
    return None


def present_inputs(
    plan: Plan, spec_file: SpecFile | None, catalog: Catalog
) -> PresentInputs:
    """Return what a plan was made from, as it is now."""
    from planner.plan.document import normalized_spec
    from stacks.graph import plugin_versions

    plugins = {
        package: version
        for graph in (plan.graph, *(rung.graph for rung in plan.fallbacks))
        for package, version in plugin_versions(graph.provider).items()
    }
    if spec_file is None:
        return PresentInputs(
            normalized=None, catalog_sha256=catalog.sha256, plugins=plugins
        )
    read_beside = spec_folder_reader(spec_file.path)
    calibration, prices = plan.inputs.calibration, plan.inputs.prices
    return PresentInputs(
        normalized=normalized_spec(spec_file.spec),
        files={name: _sha256(read_beside, name) for name in plan.inputs.files},
        calibration_sha256=_sha256(read_file, calibration)
        if calibration
        else None,
        prices_sha256=_sha256(read_file, prices) if prices else None,
        catalog_sha256=catalog.sha256,
        plugins=plugins,
    )


def refuse_underived(
    plan: Plan, spec_file: SpecFile, catalog: Catalog, options: PlanningOptions
) -> None:
    """Plan again from the same inputs. Raises StaleError when another plan comes out.

    A digest tells that a document is whole; only this tells that it follows from its spec.
    """
    options_then = replace(
        options,
        stack=plan.stack.name,
        alternatives=0,
        confidence=plan.inputs.confidence,
        calibration=plan.inputs.calibration,
        stops_after=plan.inputs.stops_after_months,
        prices=plan.inputs.prices,
    )
    derived_plan = derive_plan(
        spec_file,
        catalog,
        options_then,
        standing=plan.inputs.standing,
        own_range=plan.inputs.network_range,
        live=plan.inputs.live,
    ).plan
    # What wishes cost is no part of what is built.
    differing_parts = [
        part_name
        for part_name in DERIVED_PARTS
        if _comparable(derived_plan, part_name) != _comparable(plan, part_name)
    ]
    if differing_parts:
        raise StaleError(
            Problem(
                code="derived",
                message="the plan does not follow from its spec: "
                f"{', '.join(differing_parts)} differ",
                cause="its spec gives another plan with the same catalog and flags",
                next_step="make a new plan: tonnage plan SPEC -o FILE",
            )
        )


def _comparable(plan: Plan, part_name: str) -> object:
    if part_name == "solution":
        return (plan.solution.status, plan.solution.pools)
    part: object = getattr(plan, part_name)
    return part


def _sha256(read_file: Callable[[str], bytes], name: str) -> str | None:
    """Return the SHA-256 of a file; nothing for one that is gone."""
    try:
        return hashlib.sha256(read_file(name)).hexdigest()
    except (MissingError, OSError):
        return None
