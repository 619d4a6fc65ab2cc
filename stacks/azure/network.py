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


def resources(site: Site) -> list[Resource]:
    """The network, from the address of the NAT to the subnet."""
    every = common(site)
    return [
        Resource(
            type="azure-native:network:PublicIPAddress",
            name="nat-address",
            inputs={
                "publicIpAddressName": f"{site.name}-nat",
                "sku": {"name": "Standard"},
                "publicIPAllocationMethod": "Static",
                **every,
            },
        ),
        Resource(
            type="azure-native:network:NatGateway",
            name="nat",
            inputs={
                "natGatewayName": f"{site.name}-nat",
                "sku": {"name": "Standard"},
                "publicIpAddresses": [{"id": ref("nat-address")}],
                **every,
            },
        ),
        Resource(
            type="azure-native:network:NetworkSecurityGroup",
            name="rules",
            inputs={
                "networkSecurityGroupName": f"{site.name}-rules",
                "securityRules": _rules(site),
                **every,
            },
        ),
        Resource(
            type="azure-native:network:VirtualNetwork",
            name="network",
            inputs={
                "virtualNetworkName": f"{site.name}-network",
                "addressSpace": {"addressPrefixes": [RANGE]},
                **every,
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


def _rules(site: Site) -> list[dict[str, Any]]:
    """What may come in: nodes from nodes, requests from the network, probes; nothing else."""
    found = [_rule("nodes", 100, NODES, "*", "*"), *files.rules(site)]
    if site.served:
        found.append(_rule("requests", 110, "VirtualNetwork", str(PORT), "Tcp"))
        found.append(
            _rule("probes", 120, "AzureLoadBalancer", str(PORT), "Tcp")
        )
    return [*found, {**_rule("rest", 4096, "*", "*", "*"), "access": "Deny"}]


def _rule(
    name: str, priority: int, source: str, port: str, protocol: str
) -> dict[str, Any]:
    return {
        "name": name,
        "priority": priority,
        "direction": "Inbound",
        "access": "Allow",
        "protocol": protocol,
        "sourceAddressPrefix": source,
        "sourcePortRange": "*",
        "destinationAddressPrefix": "*",
        "destinationPortRange": port,
    }
