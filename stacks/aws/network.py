"""VPC, subnets, ways out and security groups. One zone when nodes work together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.facts.cloud import clouds
from planner.facts.private_endpoint import endpoint_services
from stacks.graph import Resource, ref
from stacks.spec.stack import SERVING_PORT, range_word
from stacks.spec.table import lookup_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.plan.types import Properties
    from stacks.graph import Reference
    from stacks.spec.fleet import FleetSpec
    from stacks.spec.stack import StackSpec

INGRESS_TYPE: Final = (
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
)
ENDPOINT_TYPE: Final = "aws:ec2/vpcEndpoint:VpcEndpoint"
EGRESS_TYPE: Final = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
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
    """The network, from the VPC to the rules; in one that there is already, no more than these."""
    if stack.given_network is not None:
        return [*_security_rules(stack), *_private_endpoints(stack)]
    return [
        *_public_resources(stack),
        *_private_resources(stack),
        *_node_subnets(stack),
        *_security_rules(stack),
        *_private_endpoints(stack),
    ]


def _ways_out(stack: StackSpec) -> dict[str, str]:
    """The zones with a way out of their own, each with the end of the names of what belongs to it.

    One NAT serves all zones, unless the stack survives the loss of a zone. Where machines have
    addresses the routes are the same, so that a stack changes from one to the other in place.
    """
    first, *others = sorted(node_zones(stack.fleets))
    ends = {first: ""}
    if stack.survives_zone:
        ends |= {zone_name: f"-{zone_name[-1]}" for zone_name in others}
    return ends


def _public_ends(stack: StackSpec) -> dict[str, str]:
    """The zones with a subnet that faces the internet, each with the end of its name.

    Those are the zones of a NAT, and of a public balancer, which stands where its machines are.
    No spec has a public balancer and machines with addresses.
    """
    if stack.has_addresses:
        return {}
    first, *others = sorted(node_zones(stack.fleets))
    ends = {first: ""}
    if stack.survives_zone or stack.is_public:
        ends |= {zone_name: f"-{zone_name[-1]}" for zone_name in others}
    return ends


def balancer_subnets(stack: StackSpec) -> list[Reference] | list[str]:
    """The subnets of the balancer: those of its machines, or public ones in the same zones."""
    serving_fleets = [fleet for fleet in stack.fleets if fleet.is_serving]
    if not stack.is_public:
        return subnets(stack, serving_fleets)
    ends = _public_ends(stack)
    return [
        ref(f"public{ends[zone_name]}")
        for zone_name in node_zones(serving_fleets)
    ]


def balancer_group(stack: StackSpec) -> Reference:
    """The rules of the balancer: those of its machines, or its own when it is public."""
    return ref("balancer-group" if stack.is_public else "nodes-group")


def balancer_prerequisites(stack: StackSpec) -> tuple[str, ...]:
    """What must exist before a balancer can be reached from the internet."""
    return ("public-default",) if stack.is_public else ()


def _routes(stack: StackSpec, zone_name: str) -> str:
    """The route table of the nodes in a zone."""
    return f"private-routes{_ways_out(stack).get(zone_name, '')}"


def _public_resources(stack: StackSpec) -> list[Resource]:
    """The VPC, and the subnets from which its addresses face the internet."""
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
        *_public_subnets(stack),
    ]


def _public_subnets(stack: StackSpec) -> list[Resource]:
    """The subnets that face the internet, and their route to it; none where no zone needs one."""
    ends = _public_ends(stack)
    if not ends:
        return []
    return [
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
        *(
            resource
            for zone_name, end in ends.items()
            for resource in _public_subnet(stack, zone_name, end)
        ),
    ]


def _public_subnet(
    stack: StackSpec, zone_name: str, end: str
) -> list[Resource]:
    """A subnet with a way to the internet; those after the first have a /24 by their zone."""
    address_end = f"{_zone_number(zone_name)}.0/24" if end else PUBLIC_END
    return [
        _tagged_resource(
            stack,
            "aws:ec2/subnet:Subnet",
            f"public{end}",
            {
                "vpcId": ref("vpc"),
                "cidrBlock": stack.addresses(address_end),
                "availabilityZone": zone_name,
                "mapPublicIpOnLaunch": False,
            },
        ),
        _route_association(f"public{end}", "public-routes"),
    ]


def _zone_number(zone_name: str) -> int:
    return ord(zone_name[-1]) - ord("a") + 1


def _private_resources(stack: StackSpec) -> list[Resource]:
    """The way out of the nodes, and to object storage past it."""
    ends = _ways_out(stack).values()
    return [
        *(resource for end in ends for resource in _way_out(stack, end)),
        _tagged_resource(
            stack,
            ENDPOINT_TYPE,
            "s3-endpoint",
            {
                "vpcId": ref("vpc"),
                "serviceName": f"com.amazonaws.{stack.region}.s3",
                "vpcEndpointType": "Gateway",
                "routeTableIds": [ref(f"private-routes{end}") for end in ends],
            },
        ),
    ]


def _way_out(stack: StackSpec, end: str) -> list[Resource]:
    """The routes of the nodes: through a NAT, or by addresses of their own."""
    route = (
        {"gatewayId": ref("gateway")}
        if stack.has_addresses
        else {"natGatewayId": ref(f"nat{end}")}
    )
    return [
        *([] if stack.has_addresses else _nat(stack, end)),
        _tagged_resource(
            stack,
            "aws:ec2/routeTable:RouteTable",
            f"private-routes{end}",
            {"vpcId": ref("vpc")},
        ),
        Resource(
            type="aws:ec2/route:Route",
            name=f"private-default{end}",
            inputs={
                "routeTableId": ref(f"private-routes{end}"),
                "destinationCidrBlock": "0.0.0.0/0",
                **route,
            },
        ),
    ]


def _nat(stack: StackSpec, end: str) -> list[Resource]:
    """A NAT with its address."""
    return [
        _tagged_resource(
            stack,
            "aws:ec2/eip:Eip",
            f"nat-address{end}",
            {"domain": "vpc"},
            ("gateway",),
        ),
        _tagged_resource(
            stack,
            "aws:ec2/natGateway:NatGateway",
            f"nat{end}",
            {
                "subnetId": ref(f"public{end}"),
                "allocationId": ref(f"nat-address{end}"),
                "connectivityType": "public",
            },
            ("public-default", f"public-routes-public{end}"),
        ),
    ]


def _node_subnets(stack: StackSpec) -> list[Resource]:
    """A subnet in each zone of the nodes, with a range of the zone's own.

    So a subnet stays as it is when the pools of other zones come and go.
    """
    subnet_resources = []
    for zone_name in node_zones(stack.fleets):
        subnet_name = _subnet_name(zone_name)
        address_end = f"{16 * _zone_number(zone_name)}.0/20"
        subnet_resources.append(
            _tagged_resource(
                stack,
                "aws:ec2/subnet:Subnet",
                subnet_name,
                {
                    "vpcId": ref("vpc"),
                    "cidrBlock": stack.addresses(address_end),
                    "availabilityZone": zone_name,
                    "mapPublicIpOnLaunch": False,
                },
            )
        )
        subnet_resources.append(
            _route_association(subnet_name, _routes(stack, zone_name))
        )
    return subnet_resources


def prerequisites(stack: StackSpec, fleet: FleetSpec) -> tuple[str, ...]:
    """What must exist before a node of a fleet can boot: routes, endpoint and rules."""
    rules = ["nodes-in", "nodes-out", "nodes-out-all"]
    # In a given network they may be the only way to these services.
    rules += map(_endpoint_name, _endpoint_services(stack))
    if fleet.is_serving:
        rules.append("nodes-from-clients")
    if stack.given_network is not None:
        return tuple(sorted(rules))
    ends = _ways_out(stack)
    zones = node_zones([fleet])
    routes = {
        f"private-default{ends.get(zone_name, '')}" for zone_name in zones
    }
    associations = [
        f"{_routes(stack, zone_name)}-{_subnet_name(zone_name)}"
        for zone_name in zones
    ]
    return tuple(sorted([*routes, "s3-endpoint", *rules, *associations]))


def _client_cidrs(stack: StackSpec) -> dict[str, str]:
    """The addresses of clients, by the name of the rule that lets them in."""
    return {
        "nodes-from-clients": stack.network_range,
        **{f"nodes-from-{range_word(cidr)}": cidr for cidr in stack.peer_cidrs},
    }


def _endpoint_services(stack: StackSpec) -> tuple[str, ...]:
    """The services that machines reach by endpoints of the stack."""
    return endpoint_services("aws", "interface", stack.endpoint_needs)


def _endpoint_name(service: str) -> str:
    return f"{service}-endpoint"


def _private_endpoints(stack: StackSpec) -> list[Resource]:
    """An endpoint of each service, with an interface in each zone of the nodes.

    Its private name is the one that everybody in the network calls, so everybody is let in.
    """
    services = _endpoint_services(stack)
    return [
        *(_endpoint_rules(stack) if services else []),
        *(_private_endpoint(stack, service) for service in services),
    ]


def _private_endpoint(stack: StackSpec, service: str) -> Resource:
    return _tagged_resource(
        stack,
        ENDPOINT_TYPE,
        _endpoint_name(service),
        {
            "vpcId": vpc(stack),
            "serviceName": f"com.amazonaws.{stack.region}.{service}",
            "vpcEndpointType": "Interface",
            "subnetIds": subnets(stack, stack.fleets),
            "securityGroupIds": [ref("endpoints-group")],
            "privateDnsEnabled": True,
        },
    )


def _endpoint_rules(stack: StackSpec) -> list[Resource]:
    """The group of the endpoints: HTTPS from whoever has an address of a network of its own."""
    ranges = (
        [stack.network_range]
        if stack.given_network is None
        else lookup_table("limits.csv", "limit", "value")[
            "private_ranges"
        ].split(";")
    )
    return [
        _tagged_resource(
            stack,
            "aws:ec2/securityGroup:SecurityGroup",
            "endpoints-group",
            {
                "vpcId": vpc(stack),
                "description": f"{stack.name} endpoints",
                "revokeRulesOnDelete": True,
            },
        ),
        *(
            Resource(
                type=INGRESS_TYPE,
                name=f"endpoints-from-{range_word(client_range)}",
                inputs={
                    "securityGroupId": ref("endpoints-group"),
                    "ipProtocol": "tcp",
                    "fromPort": 443,
                    "toPort": 443,
                    "cidrIpv4": client_range,
                },
            )
            for client_range in ranges
        ),
    ]


def _security_rules(stack: StackSpec) -> list[Resource]:
    """The group of the nodes.

    EFA needs ingress and egress rules that name the group itself; 0.0.0.0/0 does not cover it.
    """
    group_ref = ref("nodes-group")
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
            type=INGRESS_TYPE,
            name="nodes-in",
            inputs={
                "securityGroupId": group_ref,
                "ipProtocol": "-1",
                "referencedSecurityGroupId": group_ref,
            },
        ),
        Resource(
            type=EGRESS_TYPE,
            name="nodes-out",
            inputs={
                "securityGroupId": group_ref,
                "ipProtocol": "-1",
                "referencedSecurityGroupId": group_ref,
            },
        ),
        Resource(
            type=EGRESS_TYPE,
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
                type=INGRESS_TYPE,
                name=rule_name,
                inputs={
                    "securityGroupId": group_ref,
                    "ipProtocol": "tcp",
                    "fromPort": stack.client_port,
                    "toPort": stack.client_port,
                    "cidrIpv4": client_cidr,
                },
            )
            for rule_name, client_cidr in _client_cidrs(stack).items()
        ]
    if stack.is_public:
        group_resources += _public_rules(stack)
    return group_resources


def _public_rules(stack: StackSpec) -> list[Resource]:
    """The group of a public balancer: from everybody to it, and from it to the machines."""
    group_ref = ref("balancer-group")
    nodes_ref = ref("nodes-group")
    return [
        _tagged_resource(
            stack,
            "aws:ec2/securityGroup:SecurityGroup",
            "balancer-group",
            {
                "vpcId": vpc(stack),
                "description": f"{stack.name} balancer",
                "revokeRulesOnDelete": True,
            },
        ),
        Resource(
            type=INGRESS_TYPE,
            name="balancer-from-all",
            inputs={
                "securityGroupId": group_ref,
                "ipProtocol": "tcp",
                "fromPort": stack.client_port,
                "toPort": stack.client_port,
                "cidrIpv4": "0.0.0.0/0",
            },
        ),
        *(
            Resource(
                type=rule_type,
                name=f"{rule_name}-{port}",
                inputs={
                    "securityGroupId": own_ref,
                    "ipProtocol": "tcp",
                    "fromPort": port,
                    "toPort": port,
                    "referencedSecurityGroupId": other_ref,
                },
            )
            for port in sorted({stack.machine_port, SERVING_PORT})
            for rule_type, rule_name, own_ref, other_ref in (
                (EGRESS_TYPE, "balancer-to-nodes", group_ref, nodes_ref),
                (INGRESS_TYPE, "nodes-from-balancer", nodes_ref, group_ref),
            )
        ),
    ]


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
