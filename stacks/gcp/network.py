"""The host network: subnet, firewall and way out. The fabric adds networks of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stacks.graph import Resource, ref
from stacks.spec.stack import LINK_END, SERVING_PORT
from stacks.spec.table import lookup_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.plan.types import Properties
    from stacks.graph import Reference
    from stacks.spec.fleet import FleetSpec
    from stacks.spec.stack import StackSpec


# Of what clients of a private link come through: subnet, rule and service.
LINK: Final = "link"


def mtu_bytes(fleets: Iterable[FleetSpec]) -> int:
    """Frames as large as the fabrics of fleets want, else the default of Google Cloud; bytes."""
    mtu_by_fabric = lookup_table("fabrics.csv", "fabric", "mtu")
    return max(
        int(
            mtu_by_fabric[
                fleet.instance.fabric if fleet.fabric_attached else "none"
            ]
        )
        for fleet in fleets
    )


def fleet_zone(fleet: FleetSpec) -> str:
    """The one zone of a fleet: group, fabric network and scheduler address it by name."""
    return fleet.zones[0]


def resources(stack: StackSpec) -> list[Resource]:
    """The host network, from the network to the NAT; in a given one, the rules alone."""
    if stack.given_network is not None:
        return _security_rules(stack)
    network_resources = [
        *subnetted_network(
            stack, "net", stack.node_range, mtu=mtu_bytes(stack.fleets)
        ),
        *_security_rules(stack),
    ]
    if stack.linked_accounts:
        network_resources.append(
            subnet_resource(stack, "net", LINK, stack.addresses(LINK_END))
        )
    if not stack.has_addresses:
        network_resources += _nat(stack)
    return network_resources


def _nat(stack: StackSpec) -> list[Resource]:
    """The NAT of the region, and the router that it is a part of."""
    return [
        Resource(
            type="gcp:compute/router:Router",
            name="router",
            inputs={
                "name": f"{stack.name}-router",
                "network": ref("net"),
                "region": stack.region,
            },
        ),
        Resource(
            type="gcp:compute/routerNat:RouterNat",
            name="nat",
            inputs={
                "name": f"{stack.name}-nat",
                "router": ref("router", "name"),
                "region": stack.region,
                "natIpAllocateOption": "AUTO_ONLY",
                "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES",
            },
        ),
    ]


def host_network(stack: StackSpec) -> Reference | str:
    """The network of the hosts: that of the stack, or one that there is already."""
    if stack.given_network is not None:
        return stack.given_network.network_id
    return ref("net")


def host_subnet(stack: StackSpec) -> Reference | str:
    """Its subnet in the region of the stack; a given one is in the project of its network."""
    given = stack.given_network
    if given is None:
        return ref("net-subnet")
    project = given.network_id.split("/")[1]
    subnet_name, region = given.subnets[0]
    return f"projects/{project}/regions/{region}/subnetworks/{subnet_name}"


def prerequisites(stack: StackSpec) -> tuple[str, ...]:
    """What must exist before a node can boot: rules, and the way out."""
    rules = ["net-inside", "net-proxy"]
    if stack.is_serving:
        rules.append("net-probes")
    if stack.given_network is None and not stack.has_addresses:
        rules.append("nat")
    return tuple(rules)


def global_name(stack: StackSpec, resource_name: str) -> str:
    """Networks and firewalls have one name in all regions of a project."""
    return f"{stack.short_name}-{resource_name}"


def subnetted_network(
    stack: StackSpec, network_name: str, cidr_block: str, *, mtu: int
) -> list[Resource]:
    """A network with one subnet. `mtu` is the largest frame, bytes."""
    return [
        Resource(
            type="gcp:compute/network:Network",
            name=network_name,
            inputs={
                "name": global_name(stack, network_name),
                "autoCreateSubnetworks": False,
                "mtu": mtu,
                "routingMode": "REGIONAL",
            },
        ),
        subnet_resource(stack, network_name, network_name, cidr_block),
    ]


def subnet_resource(
    stack: StackSpec, network_name: str, name_stem: str, cidr_block: str
) -> Resource:
    """A subnet of a network in the region of the stack."""
    subnet_inputs: Properties = {
        "name": f"{stack.name}-{name_stem}",
        "network": ref(network_name),
        "region": stack.region,
        "ipCidrRange": cidr_block,
    }
    if name_stem == "net":
        subnet_inputs["privateIpGoogleAccess"] = True
    if name_stem == LINK:
        subnet_inputs["purpose"] = "PRIVATE_SERVICE_CONNECT"
    return Resource(
        type="gcp:compute/subnetwork:Subnetwork",
        name=f"{name_stem}-subnet",
        inputs=subnet_inputs,
    )


def internal_rule(
    stack: StackSpec,
    network_name: str,
    cidr_block: str,
    network: Reference | str,
) -> Resource:
    """Lets the nodes of a network talk to each other."""
    return security_rule(
        stack,
        f"{network_name}-inside",
        network,
        (cidr_block,),
        [
            {"protocol": "tcp"},
            {"protocol": "udp"},
            {"protocol": "icmp"},
        ],
    )


def _security_rules(stack: StackSpec) -> list[Resource]:
    network = host_network(stack)
    shell_protocols = [{"protocol": "tcp", "ports": ["22"]}]
    firewall_rules = [
        internal_rule(stack, "net", stack.node_range, network),
        security_rule(
            stack,
            "net-proxy",
            network,
            _limit_ranges("gcp_proxy_ranges"),
            shell_protocols,
        ),
    ]
    if stack.is_serving:
        probe_protocols = [{"protocol": "tcp", "ports": [str(SERVING_PORT)]}]
        firewall_rules.append(
            security_rule(
                stack,
                "net-probes",
                network,
                _limit_ranges(
                    "gcp_public_probe_ranges"
                    if stack.is_public
                    else "gcp_probe_ranges"
                ),
                probe_protocols,
            )
        )
        if stack.is_public:
            # A balancer passes connections on with the addresses of their clients.
            firewall_rules.append(
                security_rule(
                    stack,
                    "net-public",
                    network,
                    ("0.0.0.0/0",),
                    [{"protocol": "tcp", "ports": [str(stack.client_port)]}],
                )
            )
        if stack.linked_accounts:
            firewall_rules.append(
                security_rule(
                    stack,
                    "net-link",
                    network,
                    (stack.addresses(LINK_END),),
                    [{"protocol": "tcp", "ports": [str(stack.client_port)]}],
                )
            )
        if stack.peer_cidrs:
            firewall_rules.append(
                security_rule(
                    stack,
                    "net-peers",
                    network,
                    stack.peer_cidrs,
                    [{"protocol": "tcp", "ports": [str(stack.client_port)]}],
                )
            )
    return firewall_rules


def security_rule(
    stack: StackSpec,
    rule_name: str,
    network: Reference | str,
    source_ranges: tuple[str, ...],
    allowed_protocols: list[Properties],
) -> Resource:
    """Let some addresses open connections to the nodes in one of the networks."""
    return Resource(
        type="gcp:compute/firewall:Firewall",
        name=rule_name,
        inputs={
            "name": global_name(stack, rule_name),
            "network": network,
            **_host_project(network),
            "direction": "INGRESS",
            "sourceRanges": list(source_ranges),
            "targetTags": [f"{stack.name}-node"],
            "allows": allowed_protocols,
        },
    )


def _host_project(network: Reference | str) -> Properties:
    """Rules of a network that is shared are in the project of the network."""
    if isinstance(network, str):
        return {"project": network.split("/")[1]}
    return {}


def _limit_ranges(limit_name: str) -> tuple[str, ...]:
    return tuple(
        lookup_table("limits.csv", "limit", "value")[limit_name].split(";")
    )
