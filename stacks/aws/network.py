"""VPC, subnets, NAT and security groups. Nodes are private; one zone when they work together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.facts.cloud import clouds
from stacks.graph import Resource, ref
from stacks.spec.stack import SERVING_PORT, range_word

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.plan.types import Properties
    from stacks.graph import Reference
    from stacks.spec.fleet import FleetSpec
    from stacks.spec.stack import StackSpec

# Ends of ranges in the network of the stack; each zone of nodes has a /20 after this one.
PUBLIC_END: Final = "0.0/24"


def node_zones(fleets: Iterable[FleetSpec]) -> tuple[str, ...]:
    """The zones that nodes of some fleets may be in, each once."""
    return tuple(
        dict.fromkeys(
            zone_name
            for fleet in fleets
            for zone_name in fleet.zones[: clouds()["aws"].spread_zones]
        )
    )


def vpc(stack: StackSpec) -> Reference | str:
    """The network of the nodes: that of the stack, or one that there is already."""
    if stack.given_network is not None:
        return stack.given_network.network_id
    return ref("vpc")


def subnets(
    stack: StackSpec, fleets: Iterable[FleetSpec]
) -> list[Reference] | list[str]:
    """The private subnets of some fleets."""
    zones = node_zones(fleets)
    if stack.given_network is not None:
        return [
            name for name, zone in stack.given_network.subnets if zone in zones
        ]
    return [ref(_subnet_name(zone_name)) for zone_name in zones]


def _subnet_name(zone_name: str) -> str:
    return f"private-{zone_name[-1]}"


def resources(stack: StackSpec) -> list[Resource]:
    """The network, from the VPC to the rules; in one that there is already, the rules alone."""
    if stack.given_network is not None:
        return _security_rules(stack)
    return [
        *_public_resources(stack),
        *_private_resources(stack),
        *_node_subnets(stack),
        *_security_rules(stack),
    ]


def _public_resources(stack: StackSpec) -> list[Resource]:
    """The VPC, and the subnet from which its only address faces the internet."""
    return [
        _tagged_resource(
            stack,
            "aws:ec2/vpc:Vpc",
            "vpc",
            {
                "cidrBlock": stack.network_range,
                "enableDnsSupport": True,
                "enableDnsHostnames": True,
            },
        ),
        _tagged_resource(
            stack,
            "aws:ec2/internetGateway:InternetGateway",
            "gateway",
            {"vpcId": ref("vpc")},
        ),
        _tagged_resource(
            stack,
            "aws:ec2/subnet:Subnet",
            "public",
            {
                "vpcId": ref("vpc"),
                "cidrBlock": stack.addresses(PUBLIC_END),
                "availabilityZone": min(node_zones(stack.fleets)),
                "mapPublicIpOnLaunch": False,
            },
        ),
        _tagged_resource(
            stack,
            "aws:ec2/routeTable:RouteTable",
            "public-routes",
            {"vpcId": ref("vpc")},
        ),
        Resource(
            type="aws:ec2/route:Route",
            name="public-default",
            inputs={
                "routeTableId": ref("public-routes"),
                "destinationCidrBlock": "0.0.0.0/0",
                "gatewayId": ref("gateway"),
            },
        ),
        _route_association("public", "public-routes"),
    ]


def _private_resources(stack: StackSpec) -> list[Resource]:
    """The way out of the nodes: through the NAT, and to object storage past it."""
    return [
        _tagged_resource(
            stack,
            "aws:ec2/eip:Eip",
            "nat-address",
            {"domain": "vpc"},
            ("gateway",),
        ),
        _tagged_resource(
            stack,
            "aws:ec2/natGateway:NatGateway",
            "nat",
            {
                "subnetId": ref("public"),
                "allocationId": ref("nat-address"),
                "connectivityType": "public",
            },
            ("public-default", "public-routes-public"),
        ),
        _tagged_resource(
            stack,
            "aws:ec2/routeTable:RouteTable",
            "private-routes",
            {"vpcId": ref("vpc")},
        ),
        Resource(
            type="aws:ec2/route:Route",
            name="private-default",
            inputs={
                "routeTableId": ref("private-routes"),
                "destinationCidrBlock": "0.0.0.0/0",
                "natGatewayId": ref("nat"),
            },
        ),
        _tagged_resource(
            stack,
            "aws:ec2/vpcEndpoint:VpcEndpoint",
            "s3-endpoint",
            {
                "vpcId": ref("vpc"),
                "serviceName": f"com.amazonaws.{stack.region}.s3",
                "vpcEndpointType": "Gateway",
                "routeTableIds": [ref("private-routes")],
            },
        ),
    ]


def _node_subnets(stack: StackSpec) -> list[Resource]:
    """A private subnet in each zone of the nodes, with a range of the zone's own.

    So a subnet stays as it is when the pools of other zones come and go.
    """
    subnet_resources = []
    for zone_name in node_zones(stack.fleets):
        subnet_name = _subnet_name(zone_name)
        zone_number = ord(zone_name[-1]) - ord("a") + 1
        subnet_resources.append(
            _tagged_resource(
                stack,
                "aws:ec2/subnet:Subnet",
                subnet_name,
                {
                    "vpcId": ref("vpc"),
                    "cidrBlock": stack.addresses(f"{16 * zone_number}.0/20"),
                    "availabilityZone": zone_name,
                    "mapPublicIpOnLaunch": False,
                },
            )
        )
        subnet_resources.append(
            _route_association(subnet_name, "private-routes")
        )
    return subnet_resources


def prerequisites(stack: StackSpec, fleet: FleetSpec) -> tuple[str, ...]:
    """What must exist before a node of a fleet can boot: routes, endpoint and rules."""
    rules = ["nodes-in", "nodes-out", "nodes-out-all"]
    if fleet.is_serving:
        rules.append("nodes-from-clients")
    if stack.given_network is not None:
        return tuple(sorted(rules))
    associations = [
        f"private-routes-{_subnet_name(zone_name)}"
        for zone_name in node_zones([fleet])
    ]
    return tuple(
        sorted(["private-default", "s3-endpoint", *rules, *associations])
    )


def _client_cidrs(stack: StackSpec) -> dict[str, str]:
    """The addresses of clients, by the name of the rule that lets them in."""
    return {
        "nodes-from-clients": stack.network_range,
        **{f"nodes-from-{range_word(cidr)}": cidr for cidr in stack.peer_cidrs},
    }


def _security_rules(stack: StackSpec) -> list[Resource]:
    """The group of the nodes.

    EFA needs ingress and egress rules that name the group itself; 0.0.0.0/0 does not cover it.
    """
    group_ref = ref("nodes-group")
    ingress_type = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
    egress_type = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
    group_resources = [
        _tagged_resource(
            stack,
            "aws:ec2/securityGroup:SecurityGroup",
            "nodes-group",
            {
                "vpcId": vpc(stack),
                "description": f"{stack.name} nodes",
                "revokeRulesOnDelete": True,
            },
        ),
        Resource(
            type=ingress_type,
            name="nodes-in",
            inputs={
                "securityGroupId": group_ref,
                "ipProtocol": "-1",
                "referencedSecurityGroupId": group_ref,
            },
        ),
        Resource(
            type=egress_type,
            name="nodes-out",
            inputs={
                "securityGroupId": group_ref,
                "ipProtocol": "-1",
                "referencedSecurityGroupId": group_ref,
            },
        ),
        Resource(
            type=egress_type,
            name="nodes-out-all",
            inputs={
                "securityGroupId": group_ref,
                "ipProtocol": "-1",
                "cidrIpv4": "0.0.0.0/0",
            },
        ),
    ]
    if stack.is_serving:
        group_resources += [
            Resource(
                type=ingress_type,
                name=rule_name,
                inputs={
                    "securityGroupId": group_ref,
                    "ipProtocol": "tcp",
                    "fromPort": SERVING_PORT,
                    "toPort": SERVING_PORT,
                    "cidrIpv4": client_cidr,
                },
            )
            for rule_name, client_cidr in _client_cidrs(stack).items()
        ]
    return group_resources


def _route_association(subnet_name: str, route_table_name: str) -> Resource:
    return Resource(
        type="aws:ec2/routeTableAssociation:RouteTableAssociation",
        name=f"{route_table_name}-{subnet_name}",
        inputs={
            "subnetId": ref(subnet_name),
            "routeTableId": ref(route_table_name),
        },
    )


def _tagged_resource(
    stack: StackSpec,
    type_token: str,
    resource_name: str,
    inputs: Properties,
    dependencies: tuple[str, ...] = (),
) -> Resource:
    resource_tags = {**stack.tags, "Name": f"{stack.name}-{resource_name}"}
    return Resource(
        type=type_token,
        name=resource_name,
        inputs={**inputs, "tags": resource_tags},
        depends_on=dependencies,
    )
