"""Virtual network, subnet, way out and rules.

The range keeps clear of 172.16.0.0/16, which RDMA reserves on InfiniBand machines. The subnet is
a resource of its own: inline subnets and separate ones overwrite each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.facts.private_endpoint import endpoint_services
from stacks.azure import files
from stacks.azure.identity import SUBNET_POLICIES, common_inputs
from stacks.graph import Resource, ref
from stacks.spec.stack import (
    LINK_END,
    NOTEBOOK_PORT,
    SERVING_PORT,
    range_word,
)

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.graph import Reference
    from stacks.spec.stack import StackSpec

# Of the way in to a workspace; the name of its subnet is Azure's.
BASTION_END: Final = "255.0/26"
BASTION_SUBNET: Final = "AzureBastionSubnet"
# Off, as the typed SDK of Pulumi sends them.
UNUSED_SWITCHES: Final = (
    "disableCopyPaste",
    "enableFileCopy",
    "enableIpConnect",
    "enableKerberos",
    "enablePrivateOnlyBastion",
    "enableSessionRecording",
    "enableShareableLink",
)


def node_subnet(stack: StackSpec) -> Reference | str:
    """The subnet of the nodes: that of the stack, or one that there is already."""
    given = stack.given_network
    if given is None:
        return ref("subnet")
    subnet_name, _ = given.subnets[0]
    return f"{given.network_id}/subnets/{subnet_name}"


def resources(stack: StackSpec) -> list[Resource]:
    """The network, from the address of the NAT to the subnet; in a given one, the rules alone."""
    shared_inputs = common_inputs(stack)
    rules = Resource(
        type="azure-native:network:NetworkSecurityGroup",
        name="rules",
        inputs={
            "networkSecurityGroupName": f"{stack.name}-rules",
            "securityRules": _security_rules(stack),
            **shared_inputs,
        },
    )
    if stack.given_network is not None:
        return [rules]
    return [
        *([] if stack.has_addresses else _nat(stack)),
        rules,
        Resource(
            type="azure-native:network:VirtualNetwork",
            name="network",
            inputs={
                "virtualNetworkName": f"{stack.name}-network",
                "addressSpace": {"addressPrefixes": [stack.network_range]},
                "enableDdosProtection": False,
                "enableVmProtection": False,
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
                "addressPrefix": stack.node_range,
                "defaultOutboundAccess": False,
                **(
                    {}
                    if stack.has_addresses
                    else {"natGateway": {"id": ref("nat")}}
                ),
                "networkSecurityGroup": {"id": ref("rules")},
                "serviceEndpoints": [
                    {"service": service}
                    for service in (
                        "Microsoft.Storage",
                        *endpoint_services(
                            "azure", "subnet", stack.endpoint_needs
                        ),
                    )
                ],
                **SUBNET_POLICIES,
            },
        ),
        *_bastion(stack),
        *_link_subnet(stack),
    ]


def _nat(stack: StackSpec) -> list[Resource]:
    """The way out of the nodes, with its address. Azure puts it into one zone."""
    sku = {"name": "Standard"}
    return [
        Resource(
            type="azure-native:network:PublicIPAddress",
            name="nat-address",
            inputs={
                "publicIpAddressName": f"{stack.name}-nat",
                "sku": sku,
                "publicIPAllocationMethod": "Static",
                **common_inputs(stack),
            },
        ),
        Resource(
            type="azure-native:network:NatGateway",
            name="nat",
            inputs={
                "natGatewayName": f"{stack.name}-nat",
                "sku": sku,
                "publicIpAddresses": [{"id": ref("nat-address")}],
                **common_inputs(stack),
            },
        ),
    ]


def _link_subnet(stack: StackSpec) -> list[Resource]:
    """Where the addresses of clients of a private link are translated."""
    if not stack.linked_accounts:
        return []
    return [
        Resource(
            type="azure-native:network:Subnet",
            name="link-subnet",
            inputs={
                "resourceGroupName": ref("group", "name"),
                "virtualNetworkName": ref("network", "name"),
                "subnetName": "link",
                "addressPrefix": stack.addresses(LINK_END),
                **SUBNET_POLICIES,
                "privateLinkServiceNetworkPolicies": "Disabled",
            },
            # Subnets of a network are made one after the other.
            depends_on=("subnet",),
        )
    ]


def _bastion(stack: StackSpec) -> list[Resource]:
    """The way in to machines that people work on: it asks who they are, and brings ports."""
    if not stack.homes:
        return []
    shared_inputs = common_inputs(stack)
    return [
        Resource(
            type="azure-native:network:Subnet",
            name="bastion-subnet",
            inputs={
                "resourceGroupName": ref("group", "name"),
                "virtualNetworkName": ref("network", "name"),
                "subnetName": BASTION_SUBNET,
                "addressPrefix": stack.addresses(BASTION_END),
                **SUBNET_POLICIES,
            },
            # Subnets of a network are made one after the other.
            depends_on=("subnet",),
        ),
        Resource(
            type="azure-native:network:PublicIPAddress",
            name="bastion-address",
            inputs={
                "publicIpAddressName": f"{stack.name}-bastion",
                "sku": {"name": "Standard"},
                "publicIPAllocationMethod": "Static",
                **shared_inputs,
            },
        ),
        Resource(
            type="azure-native:network:BastionHost",
            name="bastion",
            inputs={
                "bastionHostName": f"{stack.name}-bastion",
                # The cheapest that brings ports to a person.
                "sku": {"name": "Standard"},
                "enableTunneling": True,
                **dict.fromkeys(UNUSED_SWITCHES, False),
                "ipConfigurations": [
                    {
                        "name": "address",
                        "subnet": {"id": ref("bastion-subnet")},
                        "publicIPAddress": {"id": ref("bastion-address")},
                    }
                ],
                **shared_inputs,
            },
        ),
    ]


def _security_rules(stack: StackSpec) -> list[Properties]:
    """What may come in: nodes from nodes, requests from the network, probes; nothing else."""
    notebooks = str(NOTEBOOK_PORT)
    inbound_rules = [
        *(
            [
                _security_rule(
                    "notebooks",
                    100,
                    stack.addresses(BASTION_END),
                    notebooks,
                    "Tcp",
                ),
                # Users of one workspace have no business in each other's notebooks.
                {
                    **_security_rule("neighbours", 101, "*", notebooks, "Tcp"),
                    "access": "Deny",
                },
            ]
            if stack.homes
            else []
        ),
        _security_rule("nodes", 102, stack.node_range, "*", "*"),
        *files.security_rules(stack),
    ]
    if stack.is_serving:
        inbound_rules.append(
            _security_rule(
                "requests",
                110,
                stack.network_range,
                str(stack.client_port),
                "Tcp",
            )
        )
        if stack.is_public:
            inbound_rules.append(
                _security_rule(
                    "public", 111, "Internet", str(stack.client_port), "Tcp"
                )
            )
        inbound_rules += [
            _security_rule(
                f"peer-{range_word(cidr)}",
                200 + number,
                cidr,
                str(stack.client_port),
                "Tcp",
            )
            for number, cidr in enumerate(stack.peer_cidrs)
        ]
        inbound_rules.append(
            _security_rule(
                "probes", 120, "AzureLoadBalancer", str(SERVING_PORT), "Tcp"
            )
        )
    return [
        *inbound_rules,
        {**_security_rule("rest", 4096, "*", "*", "*"), "access": "Deny"},
    ]


def _security_rule(
    rule_name: str,
    priority: int,
    source_prefix: str,
    port_range: str,
    protocol: str,
) -> Properties:
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
