"""Zones of the scale set: one when nodes work together or share InfiniBand, else all.

A reservation of the stack keeps machines of one type in one zone until the stack goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stacks.azure.fabric import has_infiniband
from stacks.azure.identity import common_inputs
from stacks.graph import Resource, ref
from stacks.spec.fleet import reservation_resource

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.spec.fleet import FleetSpec
    from stacks.spec.stack import StackSpec


def resources(stack: StackSpec) -> list[Resource]:
    """What is reserved. Nothing else: a proximity group would only lower the chance."""
    return [
        resource
        for fleet in stack.fleets
        if fleet.is_reserved
        for resource in _made_reservation(stack, fleet)
    ]


def _made_reservation(stack: StackSpec, fleet: FleetSpec) -> list[Resource]:
    """What keeps the machines of a fleet, in a group of its own.

    Nothing of both changes but the size, so their names say what they are of.
    """
    place: Properties = {**common_inputs(stack), **zone_inputs(fleet)}
    instance_type = fleet.instance.instance_type
    group_name = "-".join((stack.name, fleet.name, *fleet.zones))
    return [
        Resource(
            type="azure-native:compute:CapacityReservationGroup",
            name=_group_resource(fleet),
            inputs={**place, "capacityReservationGroupName": group_name},
        ),
        Resource(
            type="azure-native:compute:CapacityReservation",
            name=reservation_resource(fleet),
            inputs={
                **place,
                "capacityReservationGroupName": ref(
                    _group_resource(fleet), "name"
                ),
                "capacityReservationName": "-".join(
                    (instance_type, *fleet.zones)
                ),
                "sku": {"name": instance_type, "capacity": fleet.nodes},
            },
        ),
    ]


def reservation(fleet: FleetSpec) -> Any:
    """The id of what the machines of a fleet are taken from; empty where nothing is reserved."""
    if fleet.is_reserved:
        return ref(_group_resource(fleet))
    return fleet.reservation


def prerequisites(fleet: FleetSpec) -> tuple[str, ...]:
    """What has to be reserved before there are machines: they name only its group."""
    return (reservation_resource(fleet),) if fleet.is_reserved else ()


def _group_resource(fleet: FleetSpec) -> str:
    return f"{fleet.name}-reservations"


def zone_inputs(fleet: FleetSpec) -> Properties:
    """The zones of the scale set; regions without zones take none."""
    if not fleet.zones or has_infiniband(fleet):
        return {}
    return {"zones": list(fleet.zones)}
