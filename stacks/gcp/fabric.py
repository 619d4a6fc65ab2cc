"""The networks of the fabric, and the interfaces of a node in their order.

GPUDirect-TCPX and TCPXO: a network of its own for each gVNIC. RoCE: a second gVNIC network, and
one network of a zonal profile with a subnet for each RDMA interface, without firewall rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.gcp.network import (
    fleet_zone,
    internal_rule,
    subnet_resource,
    subnetted_network,
)
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.stack_spec import StackSpec


def resources(stack: StackSpec) -> list[Resource]:
    """Networks beside the host network."""
    if not stack.fabric_attached:
        return []
    fabric_kind = stack.instance.fabric
    interface_count = stack.instance.fabric_interfaces
    if fabric_kind in ("tcpx", "tcpxo"):
        fabric_networks: list[Resource] = []
        for network_index in range(interface_count):
            cidr_block = f"10.{64 + network_index}.0.0/20"
            fabric_networks += subnetted_network(
                stack, f"gpu-{network_index}", cidr_block
            )
            fabric_networks.append(
                internal_rule(stack, f"gpu-{network_index}", cidr_block)
            )
        return fabric_networks
    if fabric_kind == "roce":
        return [
            *subnetted_network(stack, "net-1", "10.43.0.0/20"),
            internal_rule(stack, "net-1", "10.43.0.0/20"),
            *_rdma_network(stack, interface_count),
        ]
    return []


def _rdma_network(stack: StackSpec, interface_count: int) -> list[Resource]:
    """The RDMA network. Its profile binds it to the zone, so another zone is another network."""
    network_profile = f"projects/${{project}}/global/networkProfiles/{fleet_zone(stack)}-vpc-roce"
    rdma_network = Resource(
        type="gcp:compute/network:Network",
        name="rdma",
        inputs={
            "name": f"{stack.name}-rdma",
            "autoCreateSubnetworks": False,
            "mtu": 8896,
            "routingMode": "REGIONAL",
            "networkProfile": network_profile,
        },
    )
    rail_subnets = [
        subnet_resource(
            stack, "rdma", f"rdma-{rail_index}", f"10.44.{16 * rail_index}.0/20"
        )
        for rail_index in range(interface_count)
    ]
    return [rdma_network, *rail_subnets]


def interfaces(stack: StackSpec) -> list[Properties]:
    """The interfaces of a node: host first, then the fabric in the order of its networks."""
    node_interfaces = [_interface("net", "net", "GVNIC")]
    if not stack.fabric_attached:
        return node_interfaces
    interface_count = stack.instance.fabric_interfaces
    if stack.instance.fabric in ("tcpx", "tcpxo"):
        return node_interfaces + [
            _interface(f"gpu-{rail_index}", f"gpu-{rail_index}", "GVNIC")
            for rail_index in range(interface_count)
        ]
    if stack.instance.fabric == "roce":
        node_interfaces.append(_interface("net-1", "net-1", "GVNIC"))
        node_interfaces += [
            _interface("rdma", f"rdma-{rail_index}", "MRDMA")
            for rail_index in range(interface_count)
        ]
    return node_interfaces


def _interface(network_name: str, name_stem: str, nic_type: str) -> Properties:
    return {
        "network": ref(network_name),
        "subnetwork": ref(f"{name_stem}-subnet"),
        "nicType": nic_type,
    }
