"""VPC, subnets, NAT and security groups. Nodes are private; one zone when they work together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stacks.graph import Resource, ref
from stacks.site import PORT

if TYPE_CHECKING:
    from stacks.site import Site

RANGE: Final = "10.42.0.0/16"
PUBLIC: Final = "10.42.0.0/24"
MOST_ZONES: Final = 3


def zones(site: Site) -> tuple[str, ...]:
    """The zones that nodes may be in: the fabric and cluster placement do not cross zones."""
    return site.zones[:1] if site.one_zone else site.zones[:MOST_ZONES]


def subnets(site: Site) -> list[dict[str, str]]:
    """References to the private subnets."""
    return [ref(f"private-{zone[-1]}") for zone in zones(site)]


def resources(site: Site) -> list[Resource]:
    """The network, from the VPC to the rules."""
    found = [
        _named(
            site,
            "aws:ec2/vpc:Vpc",
            "vpc",
            {
                "cidrBlock": RANGE,
                "enableDnsSupport": True,
                "enableDnsHostnames": True,
            },
        ),
        _named(
            site,
            "aws:ec2/internetGateway:InternetGateway",
            "gateway",
            {"vpcId": ref("vpc")},
        ),
        _named(
            site,
            "aws:ec2/subnet:Subnet",
            "public",
            {
                "vpcId": ref("vpc"),
                "cidrBlock": PUBLIC,
                "availabilityZone": zones(site)[0],
                "mapPublicIpOnLaunch": False,
            },
        ),
        _named(
            site,
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
        _joined("public", "public-routes"),
        _named(
            site,
            "aws:ec2/eip:Eip",
            "nat-address",
            {"domain": "vpc"},
            ("gateway",),
        ),
        _named(
            site,
            "aws:ec2/natGateway:NatGateway",
            "nat",
            {
                "subnetId": ref("public"),
                "allocationId": ref("nat-address"),
                "connectivityType": "public",
            },
            ("public-default", "public-routes-public"),
        ),
        _named(
            site,
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
        _named(
            site,
            "aws:ec2/vpcEndpoint:VpcEndpoint",
            "s3-endpoint",
            {
                "vpcId": ref("vpc"),
                "serviceName": f"com.amazonaws.{site.region}.s3",
                "vpcEndpointType": "Gateway",
                "routeTableIds": [ref("private-routes")],
            },
        ),
    ]
    for index, zone in enumerate(zones(site)):
        name = f"private-{zone[-1]}"
        found.append(
            _named(
                site,
                "aws:ec2/subnet:Subnet",
                name,
                {
                    "vpcId": ref("vpc"),
                    "cidrBlock": f"10.42.{16 * (index + 1)}.0/20",
                    "availabilityZone": zone,
                    "mapPublicIpOnLaunch": False,
                },
            )
        )
        found.append(_joined(name, "private-routes"))
    return found + _rules(site)


def ready(site: Site) -> tuple[str, ...]:
    """What must exist before a node can boot: routes, endpoint and rules."""
    joined = [f"private-routes-private-{zone[-1]}" for zone in zones(site)]
    served = ["nodes-from-clients"] if site.served else []
    return tuple(
        sorted(
            [
                "private-default",
                "s3-endpoint",
                "nodes-in",
                "nodes-out",
                "nodes-out-all",
                *joined,
                *served,
            ]
        )
    )


def _rules(site: Site) -> list[Resource]:
    """The group of the nodes.

    EFA needs ingress and egress rules that name the group itself; 0.0.0.0/0 does not cover it.
    """
    group = ref("nodes-group")
    ingress = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
    egress = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
    found = [
        _named(
            site,
            "aws:ec2/securityGroup:SecurityGroup",
            "nodes-group",
            {
                "vpcId": ref("vpc"),
                "description": f"{site.name} nodes",
                "revokeRulesOnDelete": True,
            },
        ),
        Resource(
            type=ingress,
            name="nodes-in",
            inputs={
                "securityGroupId": group,
                "ipProtocol": "-1",
                "referencedSecurityGroupId": group,
            },
        ),
        Resource(
            type=egress,
            name="nodes-out",
            inputs={
                "securityGroupId": group,
                "ipProtocol": "-1",
                "referencedSecurityGroupId": group,
            },
        ),
        Resource(
            type=egress,
            name="nodes-out-all",
            inputs={
                "securityGroupId": group,
                "ipProtocol": "-1",
                "cidrIpv4": "0.0.0.0/0",
            },
        ),
    ]
    if site.served:
        found.append(
            Resource(
                type=ingress,
                name="nodes-from-clients",
                inputs={
                    "securityGroupId": group,
                    "ipProtocol": "tcp",
                    "fromPort": PORT,
                    "toPort": PORT,
                    "cidrIpv4": RANGE,
                },
            )
        )
    return found


def _joined(subnet: str, routes: str) -> Resource:
    return Resource(
        type="aws:ec2/routeTableAssociation:RouteTableAssociation",
        name=f"{routes}-{subnet}",
        inputs={"subnetId": ref(subnet), "routeTableId": ref(routes)},
    )


def _named(
    site: Site,
    token: str,
    name: str,
    inputs: dict[str, Any],
    after: tuple[str, ...] = (),
) -> Resource:
    tags = {**site.tags, "Name": f"{site.name}-{name}"}
    return Resource(
        type=token, name=name, inputs={**inputs, "tags": tags}, depends_on=after
    )
