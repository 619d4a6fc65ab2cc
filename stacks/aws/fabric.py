"""The network interfaces of a node: one, or the ENA and EFA layout of its type.

Card 0 device 0 is a plain ENA interface and carries the address. Every card with EFA then gets
one efa-only interface: device 1 on card 0, device 0 on the others. A type with fewer EFA
interfaces than cards has none on card 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.graph import ref
from stacks.spec.table import stack_error

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.graph import Resource
    from stacks.spec.fleet import FleetSpec
    from stacks.spec.stack import StackSpec


def resources(stack: StackSpec) -> list[Resource]:  # noqa: ARG001 - the same shape in every module
    """Nothing: EFA interfaces are part of the launch template."""
    return []


def interfaces(stack: StackSpec, fleet: FleetSpec) -> list[Properties]:
    """The interfaces of the launch template. Only a single one may have a public address.

    Raises SpecError for a fleet with several that are to have one.
    """
    primary_interface = _interface(0, 0, "interface")
    if not fleet.fabric_attached:
        if stack.has_addresses:
            primary_interface["associatePublicIpAddress"] = "true"
        return [primary_interface]
    if stack.has_addresses:
        raise stack_error(
            f"{fleet.instance.instance_type} has interfaces of its fabric, "
            "and AWS gives a public address to none of several",
            "leave network.public_addresses out",
        )
    machine_type = fleet.instance
    card_count = max(1, machine_type.network_cards)
    first_efa_card = 0 if machine_type.fabric_interfaces >= card_count else 1
    efa_cards = range(
        first_efa_card, first_efa_card + machine_type.fabric_interfaces
    )
    return [
        primary_interface,
        *(
            _interface(card_index, 1 if card_index == 0 else 0, "efa-only")
            for card_index in efa_cards
        ),
    ]


def _interface(
    card_index: int, device_index: int, interface_type: str
) -> Properties:
    return {
        "networkCardIndex": card_index,
        "deviceIndex": device_index,
        "interfaceType": interface_type,
        "deleteOnTermination": "true",
        "securityGroups": [ref("nodes-group")],
    }
