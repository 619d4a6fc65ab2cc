"""The host network: subnet, firewall and NAT. The fabric adds networks of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stacks.graph import Resource, ref
from stacks.site import PORT, table

if TYPE_CHECKING:
    from stacks.site import Site

RANGE: Final = "10.42.0.0/20"


def mtu(site: Site) -> int:
    """Frames as large as the fabric of the type wants; the default of Google Cloud otherwise."""
    known = table("fabrics.csv", "fabric", "mtu")
    return int(known[site.instance.fabric if site.fabric else "none"])


def zone(site: Site) -> str:
    """The one zone of the fleet: group, fabric network and scheduler address it by name."""
    return site.zones[0]


def resources(site: Site) -> list[Resource]:
    """The host network, from the network to the NAT."""
    found = [*pair(site, "net", RANGE), *_firewall(site)]
    name = f"{site.name}-router"
    found.append(
        Resource(
            type="gcp:compute/router:Router",
            name="router",
            inputs={
                "name": name,
                "network": ref("net"),
                "region": site.region,
            },
        )
    )
    found.append(
        Resource(
            type="gcp:compute/routerNat:RouterNat",
            name="nat",
            inputs={
                "name": f"{site.name}-nat",
                "router": ref("router", "name"),
                "region": site.region,
                "natIpAllocateOption": "AUTO_ONLY",
                "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES",
            },
        )
    )
    return found


def pair(site: Site, part: str, block: str, **extra: Any) -> list[Resource]:
    """A network with one subnet."""
    name = f"{site.name}-{part}"
    return [
        Resource(
            type="gcp:compute/network:Network",
            name=part,
            inputs={
                "name": name,
                "autoCreateSubnetworks": False,
                "mtu": mtu(site),
                "routingMode": "REGIONAL",
                **extra,
            },
        ),
        subnet(site, part, part, block),
    ]


def subnet(site: Site, network: str, part: str, block: str) -> Resource:
    """A subnet of a network in the fleet's region."""
    inputs: dict[str, Any] = {
        "name": f"{site.name}-{part}",
        "network": ref(network),
        "region": site.region,
        "ipCidrRange": block,
    }
    if part == "net":
        inputs["privateIpGoogleAccess"] = True
    return Resource(
        type="gcp:compute/subnetwork:Subnetwork",
        name=f"{part}-subnet",
        inputs=inputs,
    )


def inside(site: Site, network: str, block: str) -> Resource:
    """Lets the nodes of a network talk to each other."""
    return _rule(
        site,
        f"{network}-inside",
        network,
        (block,),
        [
            {"protocol": "tcp"},
            {"protocol": "udp"},
            {"protocol": "icmp"},
        ],
    )


def _firewall(site: Site) -> list[Resource]:
    shell = [{"protocol": "tcp", "ports": ["22"]}]
    found = [
        inside(site, "net", RANGE),
        _rule(
            site,
            "net-proxy",
            "net",
            _ranges("gcp_proxy_ranges"),
            shell,
        ),
    ]
    if site.served:
        probe = [{"protocol": "tcp", "ports": [str(PORT)]}]
        found.append(
            _rule(site, "net-probes", "net", _ranges("gcp_probe_ranges"), probe)
        )
    return found


def _rule(
    site: Site,
    part: str,
    network: str,
    sources: tuple[str, ...],
    allows: list[dict[str, Any]],
) -> Resource:
    return Resource(
        type="gcp:compute/firewall:Firewall",
        name=part,
        inputs={
            "name": f"{site.name}-{part}",
            "network": ref(network),
            "direction": "INGRESS",
            "sourceRanges": list(sources),
            "targetTags": [f"{site.name}-node"],
            "allows": allows,
        },
    )


def _ranges(name: str) -> tuple[str, ...]:
    return tuple(table("limits.csv", "limit", "value")[name].split(";"))
