"""Close placement for nodes that hold one replica together, and reservations.

The families with a fabric take a workload policy on the group; the others a compact policy on
the template. Neither is set otherwise: closeness costs availability.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stacks.graph import Resource, ref
from stacks.spec.fleet import reservation_resource

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.spec.fleet import FleetSpec
    from stacks.spec.stack import StackSpec

POLICY_TYPE: Final = "gcp:compute/resourcePolicy:ResourcePolicy"


def resources(stack: StackSpec) -> list[Resource]:
    """A policy for each fleet whose replicas span nodes, and what is reserved for one."""
    return [
        *(
            _placement_policy(stack, fleet)
            for fleet in stack.fleets
            if fleet.is_placed
        ),
        *(
            _made_reservation(stack, fleet)
            for fleet in stack.fleets
            if fleet.is_reserved
        ),
    ]


def _placement_policy(stack: StackSpec, fleet: FleetSpec) -> Resource:
    placement_inputs: Properties = {
        "name": f"{stack.name}-{_policy_resource(fleet)}",
        "region": stack.region,
    }
    if _has_workload_policy(fleet):
        placement_inputs["workloadPolicy"] = {"type": "HIGH_THROUGHPUT"}
    else:
        placement_inputs["groupPlacementPolicy"] = {"collocation": "COLLOCATED"}
    return Resource(
        type=POLICY_TYPE, name=_policy_resource(fleet), inputs=placement_inputs
    )


def _made_reservation(stack: StackSpec, fleet: FleetSpec) -> Resource:
    """What keeps the machines of a fleet; their GPUs and local disks are those of the type.

    Nothing of it changes but its size, so the name says what it is of.
    """
    instance_type, zone = fleet.instance.instance_type, fleet.zones[0]
    return Resource(
        type="gcp:compute/reservation:Reservation",
        name=reservation_resource(fleet),
        inputs={
            "name": f"{stack.short_name}-{fleet.name}-{instance_type}-{zone[-1]}",
            "zone": zone,
            # Machines of others do not take from it, also where they are of the same type.
            "specificReservationRequired": True,
            "specificReservation": {
                "count": fleet.nodes,
                "instanceProperties": {"machineType": instance_type},
            },
        },
    )


def reservation(fleet: FleetSpec) -> Any:
    """The name of what the machines of a fleet are taken from; empty where nothing is reserved."""
    if fleet.is_reserved:
        return ref(reservation_resource(fleet), "name")
    return fleet.reservation


def group_policies(fleet: FleetSpec) -> Properties:
    """What an instance group of a fleet carries."""
    if fleet.is_placed and _has_workload_policy(fleet):
        policy_link = ref(_policy_resource(fleet), "selfLink")
        return {"resourcePolicies": {"workloadPolicy": policy_link}}
    return {}


def template_policies(fleet: FleetSpec) -> Properties:
    """What an instance template of a fleet carries: the schema takes one text, not a list."""
    if fleet.is_placed and not _has_workload_policy(fleet):
        return {"resourcePolicies": ref(_policy_resource(fleet))}
    return {}


def _policy_resource(fleet: FleetSpec) -> str:
    return f"{fleet.name}-together"


def _has_workload_policy(fleet: FleetSpec) -> bool:
    return fleet.instance.fabric in ("tcpx", "tcpxo", "roce")
