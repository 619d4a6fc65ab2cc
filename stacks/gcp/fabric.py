"""The networks of the fabric, and the interfaces of a node in their order.

GPUDirect-TCPX and TCPXO: a network of its own for each gVNIC. RoCE: a second gVNIC network, and
one network of a zonal profile with a subnet for each RDMA interface, without firewall rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stacks.gcp.network import inside, pair, subnet, zone
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from stacks.site import Site


def resources(site: Site) -> list[Resource]:
    """Networks beside the host network."""
    if not site.fabric:
        return []
    kind = site.instance.fabric
    count = site.instance.fabric_interfaces
    if kind in ("tcpx", "tcpxo"):
        found: list[Resource] = []
        for index in range(count):
            block = f"10.{64 + index}.0.0/20"
            found += pair(site, f"gpu-{index}", block)
            found.append(inside(site, f"gpu-{index}", block))
        return found
    if kind == "roce":
        return [
            *pair(site, "net-1", "10.43.0.0/20"),
            inside(site, "net-1", "10.43.0.0/20"),
            *_roce(site, count),
        ]
    return []


def _roce(site: Site, count: int) -> list[Resource]:
    """The RDMA network. Its profile binds it to the zone, so another zone is another network."""
    profile = (
        f"projects/${{project}}/global/networkProfiles/{zone(site)}-vpc-roce"
    )
    network = Resource(
        type="gcp:compute/network:Network",
        name="rdma",
        inputs={
            "name": f"{site.name}-rdma",
            "autoCreateSubnetworks": False,
            "mtu": 8896,
            "routingMode": "REGIONAL",
            "networkProfile": profile,
        },
    )
    rails = [
        subnet(site, "rdma", f"rdma-{index}", f"10.44.{16 * index}.0/20")
        for index in range(count)
    ]
    return [network, *rails]


def interfaces(site: Site) -> list[dict[str, Any]]:
    """The interfaces of a node: host first, then the fabric in the order of its networks."""
    found = [_interface("net", "net", "GVNIC")]
    if not site.fabric:
        return found
    count = site.instance.fabric_interfaces
    if site.instance.fabric in ("tcpx", "tcpxo"):
        return found + [
            _interface(f"gpu-{i}", f"gpu-{i}", "GVNIC") for i in range(count)
        ]
    if site.instance.fabric == "roce":
        found.append(_interface("net-1", "net-1", "GVNIC"))
        found += [
            _interface("rdma", f"rdma-{i}", "MRDMA") for i in range(count)
        ]
    return found


def _interface(network: str, part: str, kind: str) -> dict[str, Any]:
    return {
        "network": ref(network),
        "subnetwork": ref(f"{part}-subnet"),
        "nicType": kind,
    }
