"""The whole stack on AWS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.aws import fleet, identity, network, observe, placement, shutdown, storage
from stacks.graph import Graph, ref

if TYPE_CHECKING:
    from stacks.site import Site


def build(site: Site) -> Graph:
    """Build the graph of a site."""
    parts = (network, placement, storage, identity, fleet, shutdown, observe)
    outputs = {"group": ref("nodes", "name")}
    if site.served:
        outputs["endpoint"] = ref("balancer", "dnsName")
    if site.layout is not None:
        outputs["models"] = ref("models", "bucket")
    return Graph(
        provider="aws",
        region=site.region,
        resources=tuple(resource for part in parts for resource in part.resources(site)),
        outputs=outputs,
    )
