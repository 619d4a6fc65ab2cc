"""Zones of the scale set: one when nodes work together or share InfiniBand, else all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.azure.fabric import has_infiniband

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.graph import Resource
    from stacks.spec.fleet import FleetSpec
    from stacks.spec.stack import StackSpec


def resources(stack: StackSpec) -> list[Resource]:  # noqa: ARG001 - the same shape in every module
    """Nothing: one placement group needs no proximity group, and each one lowers the chance."""
    return []


def zone_inputs(fleet: FleetSpec) -> Properties:
    """The zones of the scale set; regions without zones take none."""
    if not fleet.zones or has_infiniband(fleet):
        return {}
    return {"zones": list(fleet.zones)}
