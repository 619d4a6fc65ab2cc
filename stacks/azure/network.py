"""Virtual network, subnet, NAT and rules.

The range keeps clear of 172.16.0.0/16, which RDMA reserves on InfiniBand machines. The subnet is
a resource of its own: inline subnets and separate ones overwrite each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stacks.azure import files
from stacks.azure.identity import common
from stacks.graph import Resource, ref
from stacks.site import PORT

if TYPE_CHECKING:
    from stacks.site import Site

RANGE: Final = "10.42.0.0/16"
NODES: Final = "10.42.0.0/20"


def resources(stack: Site) -> list[Resource]:
    """The network, from the address of the NAT to the subnet."""
    shared_inputs = common(stack)
    return [
        Resource(
            type="azure-native:network:PublicIPAddress",
            name="nat-address",
            inputs={
                "publicIpAddressName": f"{stack.name}-nat",
                "sku": {"name": "Standard"},
                "publicIPAllocationMethod": "Static",
                **shared_inputs,
            },
        ),
        Resource(
            type="azure-native:network:NatGateway",
            name="nat",
            inputs={
                "natGatewayName": f"{stack.name}-nat",
                "sku": {"name": "Standard"},
                "publicIpAddresses": [{"id": ref("nat-address")}],
                **shared_inputs,
            },
        ),
        Resource(
            type="azure-native:network:NetworkSecurityGroup",
            name="rules",
            inputs={
                "networkSecurityGroupName": f"{stack.name}-rules",
                "securityRules": _rules(stack),
                **shared_inputs,
            },
        ),
        Resource(
            type="azure-native:network:VirtualNetwork",
            name="network",
            inputs={
                "virtualNetworkName": f"{stack.name}-network",
                "addressSpace": {"addressPrefixes": [RANGE]},
                **shared_inputs,
            },
        ),
        Resource(
            type="azure-native:network:Subnet",
            name="subnet",
            inputs={
                "resourceGroupName": ref("group", "name"),
                "virtualNetworkName": ref("network", "name"),
                "subnetName": "nodes",
                "addressPrefix": NODES,
                "defaultOutboundAccess": False,
                "natGateway": {"id": ref("nat")},
                "networkSecurityGroup": {"id": ref("rules")},
                "serviceEndpoints": [{"service": "Microsoft.Storage"}],
                "privateEndpointNetworkPolicies": "Disabled",
            },
        ),
    ]


def _rules(stack: Site) -> list[dict[str, Any]]:
    """What may come in: nodes from nodes, requests from the network, probes; nothing else."""
    inbound_rules = [_rule("nodes", 100, NODES, "*", "*"), *files.rules(stack)]
    if stack.is_serving:
        inbound_rules.append(
            _rule("requests", 110, "VirtualNetwork", str(PORT), "Tcp")
        )
        inbound_rules.append(
            _rule("probes", 120, "AzureLoadBalancer", str(PORT), "Tcp")
        )
    return [
        *inbound_rules,
        {**_rule("rest", 4096, "*", "*", "*"), "access": "Deny"},
    ]


def _rule(
    rule_name: str,
    priority: int,
    source_prefix: str,
    port_range: str,
    protocol: str,
) -> dict[str, Any]:
    return {
        "name": rule_name,
        "priority": priority,
        "direction": "Inbound",
        "access": "Allow",
        "protocol": protocol,
        "sourceAddressPrefix": source_prefix,
        "sourcePortRange": "*",
        "destinationAddressPrefix": "*",
        "destinationPortRange": port_range,
    }
