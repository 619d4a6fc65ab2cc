"""The network interfaces of a node: one, or the ENA and EFA layout of its type.

Card 0 device 0 is a plain ENA interface and carries the address. Every card with EFA then gets
one efa-only interface: device 1 on card 0, device 0 on the others. A type with fewer EFA
interfaces than cards has none on card 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stacks.graph import ref

if TYPE_CHECKING:
    from stacks.graph import Resource
    from stacks.site import Site


def resources(site: Site) -> list[Resource]:  # noqa: ARG001 - the same shape in every module
    """Nothing: EFA interfaces are part of the launch template."""
    return []


def interfaces(site: Site) -> list[dict[str, Any]]:
    """The interfaces of the launch template; no public address, which several forbid."""
    primary = _interface(0, 0, "interface")
    if not site.fabric:
        return [primary]
    kind = site.instance
    cards = max(1, kind.network_cards)
    first = 0 if kind.fabric_interfaces >= cards else 1
    used = range(first, first + kind.fabric_interfaces)
    return [
        primary,
        *(_interface(c, 1 if c == 0 else 0, "efa-only") for c in used),
    ]


def _interface(card: int, device: int, kind: str) -> dict[str, Any]:
    return {
        "networkCardIndex": card,
        "deviceIndex": device,
        "interfaceType": kind,
        "deleteOnTermination": "true",
        "securityGroups": [ref("nodes-group")],
    }
