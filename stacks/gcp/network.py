"""The host network: subnet, firewall and NAT. The fabric adds networks of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stacks.graph import Resource, ref
from stacks.spec.stack import SERVING_PORT
from stacks.spec.table import lookup_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.plan.types import Properties
    from stacks.spec.fleet import FleetSpec
    from stacks.spec.stack import StackSpec

NODE_END: Final = "0.0/20"


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
    """The host network, from the network to the NAT."""
    network_resources = [
        *subnetted_network(
            stack, "net", stack.addresses(NODE_END), mtu=mtu_bytes(stack.fleets)
        ),
        *_security_rules(stack),
    ]
    router_name = f"{stack.name}-router"
    network_resources.append(
        Resource(
            type="gcp:compute/router:Router",
            name="router",
            inputs={
                "name": router_name,
                "network": ref("net"),
                "region": stack.region,
            },
        )
    )
    network_resources.append(
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
        )
    )
    return network_resources


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
    return Resource(
        type="gcp:compute/subnetwork:Subnetwork",
        name=f"{name_stem}-subnet",
        inputs=subnet_inputs,
    )


def internal_rule(
    stack: StackSpec, network_name: str, cidr_block: str
) -> Resource:
    """Lets the nodes of a network talk to each other."""
    return security_rule(
        stack,
        f"{network_name}-inside",
        network_name,
        (cidr_block,),
        [
            {"protocol": "tcp"},
            {"protocol": "udp"},
            {"protocol": "icmp"},
        ],
    )


def _security_rules(stack: StackSpec) -> list[Resource]:
    shell_protocols = [{"protocol": "tcp", "ports": ["22"]}]
    firewall_rules = [
        internal_rule(stack, "net", stack.addresses(NODE_END)),
        security_rule(
            stack,
            "net-proxy",
            "net",
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
                "net",
                _limit_ranges("gcp_probe_ranges"),
                probe_protocols,
            )
        )
        if stack.peer_cidrs:
            firewall_rules.append(
                security_rule(
                    stack,
                    "net-peers",
                    "net",
                    stack.peer_cidrs,
                    probe_protocols,
                )
            )
    return firewall_rules


def security_rule(
    stack: StackSpec,
    rule_name: str,
    network_name: str,
    source_ranges: tuple[str, ...],
    allowed_protocols: list[Properties],
) -> Resource:
    """Let some addresses open connections to the nodes in one of the networks."""
    return Resource(
        type="gcp:compute/firewall:Firewall",
        name=rule_name,
        inputs={
            "name": global_name(stack, rule_name),
            "network": ref(network_name),
            "direction": "INGRESS",
            "sourceRanges": list(source_ranges),
            "targetTags": [f"{stack.name}-node"],
            "allows": allowed_protocols,
        },
    )


def _limit_ranges(limit_name: str) -> tuple[str, ...]:
    return tuple(
        lookup_table("limits.csv", "limit", "value")[limit_name].split(";")
    )
