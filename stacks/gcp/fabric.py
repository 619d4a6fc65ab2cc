"""The networks of the fabric, and the interfaces of a node in their order.

GPUDirect-TCPX and TCPXO: a network of its own for each gVNIC. RoCE: a second gVNIC network, and
one network of a zonal profile with a subnet for each RDMA interface, without firewall rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.gcp.network import (
    fleet_zone,
    global_name,
    host_network,
    host_subnet,
    internal_rule,
    mtu_bytes,
    subnet_resource,
    subnetted_network,
)
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.spec.fleet import FleetSpec
    from stacks.spec.stack import StackSpec


def resources(stack: StackSpec) -> list[Resource]:
    """Networks beside the host network, of each fleet its own."""
    return [
        resource
        for fleet in stack.fleets
        if fleet.fabric_attached
        for resource in _fleet_networks(stack, fleet)
    ]


def _fleet_networks(stack: StackSpec, fleet: FleetSpec) -> list[Resource]:
    fabric_kind = fleet.instance.fabric
    if fabric_kind in ("tcpx", "tcpxo"):
        return [
            resource
            for network_index in range(fleet.instance.fabric_interfaces)
            for resource in _open_network(
                stack,
                fleet,
                f"{fleet.name}-gpu-{network_index}",
                f"10.{64 + network_index}.0.0/20",
            )
        ]
    if fabric_kind == "roce":
        return [
            *_open_network(stack, fleet, f"{fleet.name}-net-1", "10.43.0.0/20"),
            *_rdma_network(stack, fleet),
        ]
    return []


def _open_network(
    stack: StackSpec, fleet: FleetSpec, network_name: str, cidr_block: str
) -> list[Resource]:
    """A network whose nodes may talk to each other."""
    return [
        *subnetted_network(
            stack, network_name, cidr_block, mtu=mtu_bytes([fleet])
        ),
        internal_rule(stack, network_name, cidr_block, ref(network_name)),
    ]


def _rdma_network(stack: StackSpec, fleet: FleetSpec) -> list[Resource]:
    """The RDMA network. Its profile binds it to the zone, so another zone is another network."""
    network_name = f"{fleet.name}-rdma"
    network_profile = f"projects/${{project}}/global/networkProfiles/{fleet_zone(fleet)}-vpc-roce"
    rdma_network = Resource(
        type="gcp:compute/network:Network",
        name=network_name,
        inputs={
            "name": global_name(stack, network_name),
            "autoCreateSubnetworks": False,
            "mtu": 8896,
            "routingMode": "REGIONAL",
            "networkProfile": network_profile,
        },
    )
    rail_subnets = [
        subnet_resource(
            stack,
            network_name,
            f"{network_name}-{rail_index}",
            f"10.44.{16 * rail_index}.0/20",
        )
        for rail_index in range(fleet.instance.fabric_interfaces)
    ]
    return [rdma_network, *rail_subnets]


def interfaces(stack: StackSpec, fleet: FleetSpec) -> list[Properties]:
    """The interfaces of a node: host first, then the fabric in the order of its networks."""
    node_interfaces: list[Properties] = [
        {
            "network": host_network(stack),
            "subnetwork": host_subnet(stack),
            "nicType": "GVNIC",
        }
    ]
    if stack.has_addresses:
        # Without an address in it, Google Cloud chooses one for as long as the machine runs.
        node_interfaces[0]["accessConfigs"] = [{"networkTier": "PREMIUM"}]
    if not fleet.fabric_attached:
        return node_interfaces
    interface_count = fleet.instance.fabric_interfaces
    if fleet.instance.fabric in ("tcpx", "tcpxo"):
        return node_interfaces + [
            _interface(
                f"{fleet.name}-gpu-{rail_index}",
                f"{fleet.name}-gpu-{rail_index}",
                "GVNIC",
            )
            for rail_index in range(interface_count)
        ]
    if fleet.instance.fabric == "roce":
        node_interfaces.append(
            _interface(f"{fleet.name}-net-1", f"{fleet.name}-net-1", "GVNIC")
        )
        node_interfaces += [
            _interface(
                f"{fleet.name}-rdma",
                f"{fleet.name}-rdma-{rail_index}",
                "MRDMA",
            )
            for rail_index in range(interface_count)
        ]
    return node_interfaces


def _interface(network_name: str, name_stem: str, nic_type: str) -> Properties:
    return {
        "network": ref(network_name),
        "subnetwork": ref(f"{name_stem}-subnet"),
        "nicType": nic_type,
    }
