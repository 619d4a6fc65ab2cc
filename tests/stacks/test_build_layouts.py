"""Machines that work together have the interfaces and the placement that their cloud documents.

Google Cloud: the table of networks and interfaces of "GPU networking" (2026-06), as its
cluster-toolkit v1.95.0 builds it. Azure: "Set up InfiniBand" (2026-09) and azurehpc.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from planner.plan.graph import referenced_names
from providers.catalog.load import load_catalog
from stacks.build import build_stack
from stacks.graph import Graph
from tests.conftest import find, only, spec_of
from tests.stacks.test_build import check, named
from tests.stacks.test_build_combinations import MACHINES, PURCHASES

TOGETHER = """apiVersion: tonnage/v1
kind: Training
name: together
model: {name: llama-3.1-70b}
data: {tokens: 20B, location: s3://sets/chat, storage: object}
train: {method: pretrain, sequence: 8k, global_batch: 1M tokens}
where: {clouds: [CLOUD], regions: [REGION]}
"""


class Layout(NamedTuple):
    """Networks of their own, interfaces in their order, and their largest packet."""

    networks: int
    interfaces: list[str]
    mtu: int


GPUDIRECT = {
    "a3-megagpu": Layout(9, ["GVNIC"] * 9, 8244),
    "a3-ultragpu": Layout(3, ["GVNIC"] * 2 + ["MRDMA"] * 8, 8896),
    "a4-highgpu": Layout(3, ["GVNIC"] * 2 + ["MRDMA"] * 8, 8896),
}
INFINIBAND = [
    "standard NDAMSv4_A100Family",
    "Standard NDASv4_A100 Family",
    "standardNDSH100v5Family",
    "standardNDISRH200V5Family",
]


def together(family: str) -> Graph:
    """The graph of a training over several machines of a family."""
    offer = MACHINES[family]
    text = TOGETHER.replace("CLOUD", offer.provider).replace(
        "REGION", offer.region
    )
    text += PURCHASES[offer.purchase]
    catalog = only(
        load_catalog(),
        lambda o: o.instance.instance_type == offer.instance.instance_type,
    )
    solution = find(catalog, text, keep=0)
    assert sum(pool.nodes for pool in solution.pools) >= 2, solution.bindings
    graph = build_stack(spec_of(text), solution, "together").graph
    check(graph)
    return graph


@pytest.mark.parametrize("family", GPUDIRECT)
def test_google_cloud_has_a_network_for_each_fast_interface_or_one_of_rdma(
    family: str,
) -> None:
    layout = GPUDIRECT[family]
    graph = together(f"gcp {family}")
    [template] = [r for r in graph.resources if r.name.endswith("-template")]
    interfaces = template.inputs["networkInterfaces"]
    assert [found["nicType"] for found in interfaces] == layout.interfaces
    networks = {
        r.name: r.inputs for r in graph.resources if r.type.endswith(":Network")
    }
    assert len(networks) == layout.networks
    assert {found["mtu"] for found in networks.values()} == {layout.mtu}
    # Those of Ethernet are each in a network of their own, those of RDMA in one.
    homes = [
        next(iter(referenced_names(found["network"]))) for found in interfaces
    ]
    ethernet = layout.interfaces.count("GVNIC")
    assert len(set(homes[:ethernet])) == ethernet
    assert len(set(homes[ethernet:])) == (
        1 if "MRDMA" in layout.interfaces else 0
    )
    # Each has a subnet of its own.
    subnets = [
        next(iter(referenced_names(found["subnetwork"])))
        for found in interfaces
    ]
    assert len(set(subnets)) == len(subnets)


@pytest.mark.parametrize("family", INFINIBAND)
def test_azure_puts_machines_with_infiniband_into_one_placement_group(
    family: str,
) -> None:
    graph = together(f"azure {family}")
    [group] = [r for r in graph.resources if r.name.endswith("-nodes")]
    assert group.inputs["orchestrationMode"] == "Uniform"
    assert group.inputs["singlePlacementGroup"] is True
    assert group.inputs["overprovision"] is False
    assert group.inputs["platformFaultDomainCount"] == 1
    network = named(graph, "network")["addressSpace"]["addressPrefixes"]
    assert not any(prefix.startswith("172.16.") for prefix in network)
