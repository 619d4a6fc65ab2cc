"""The whole stack on Azure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.azure import (
    fabric,
    fleet,
    identity,
    network,
    observe,
    placement,
    shutdown,
    storage,
)
from stacks.graph import Graph, ref

if TYPE_CHECKING:
    from stacks.site import Site


def build(site: Site) -> Graph:
    """Build the graph of a site."""
    parts = (identity, network, fabric, placement, storage, fleet, shutdown, observe)
    outputs = {"group": ref("nodes", "name"), "resource_group": ref("group", "name")}
    if site.served:
        outputs["endpoint"] = ref("balancer", "frontendIPConfigurations[0].privateIPAddress")
    if site.layout is not None:
        outputs["models"] = ref("store", "name")
    return Graph(
        provider="azure",
        region=site.region,
        resources=tuple(resource for part in parts for resource in part.resources(site)),
        outputs=outputs,
    )
