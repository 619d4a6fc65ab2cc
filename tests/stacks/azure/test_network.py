"""The rules of a network of Azure, and the way in to machines that people work on."""

from __future__ import annotations

import json
from ipaddress import IPv4Network
from typing import Any

import pytest

from planner.spec.model import OWN_RANGE
from stacks.azure.network import BASTION_END
from stacks.build import build_stack
from stacks.spec.stack import NODE_END, NOTEBOOK_PORT
from tests.conftest import ROOT, chat, find, spec_of
from tests.stacks.test_build import check
from tests.stacks.told import inputs_of

# The first half of the addresses of a network.
START = OWN_RANGE.removesuffix("0.0/16")
BASTION_CIDR, NODE_CIDR = f"{START}{BASTION_END}", f"{START}{NODE_END}"
CASES = sorted((ROOT / "tests" / "cases" / "azure").glob("*/spec.yaml"))


def rules_of(catalog: Any, text: str) -> list[dict[str, Any]]:
    spec = spec_of(text)
    graph = build_stack(spec, find(catalog, text, keep=0), spec.name).graph
    [group] = inputs_of(graph, "NetworkSecurityGroup").values()
    rules: list[dict[str, Any]] = group["securityRules"]
    return rules


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.parent.name)
def test_rules_have_numbers_that_azure_takes(catalog, path) -> None:
    rules = rules_of(catalog, path.read_text())
    numbers = [rule["priority"] for rule in rules]
    assert len(set(numbers)) == len(numbers)
    assert all(100 <= number <= 4096 for number in numbers)


def test_only_the_bastion_comes_to_a_notebook(catalog) -> None:
    [path] = [path for path in CASES if path.parent.name == "workspace"]
    rules = rules_of(catalog, path.read_text())

    def admits(source: str) -> bool:
        """Whether the first rule by number that covers a source lets it in."""
        for rule in sorted(rules, key=lambda rule: rule["priority"]):
            prefix = rule["sourceAddressPrefix"]
            covers = prefix == "*" or (
                prefix[0].isdigit()
                and IPv4Network(source).subnet_of(IPv4Network(prefix))
            )
            if covers and rule["destinationPortRange"] in (
                "*",
                str(NOTEBOOK_PORT),
            ):
                return bool(rule["access"] == "Allow")
        return False

    assert admits(BASTION_CIDR)
    assert not admits(NODE_CIDR)
    assert not admits("10.42.99.0/24")


def test_the_way_in_has_a_place_of_its_own() -> None:
    bastion, nodes = IPv4Network(BASTION_CIDR), IPv4Network(NODE_CIDR)
    assert bastion.subnet_of(IPv4Network(OWN_RANGE))
    assert not bastion.overlaps(nodes)
    # Azure wants a /26 at least.
    assert bastion.prefixlen <= 26


def test_the_way_out_is_what_this_version_of_the_provider_makes(
    catalog,
) -> None:
    """A NAT of all zones is none of it, so no service survives the loss of a zone."""
    text = chat(
        traffic="peak_rps: 20",
        extra="where: {clouds: [azure]}",
    )
    spec = spec_of(text)
    graph = build_stack(spec, find(catalog, text, keep=0), spec.name).graph
    check(graph)
    [way_out] = inputs_of(graph, "NatGateway").values()
    [address] = inputs_of(graph, "PublicIPAddress").values()
    assert way_out["sku"] == address["sku"]
    schema = json.loads((ROOT / "providers/azure/data/schema.json").read_text())
    skus = schema["types"]["azure-native:network:NatGatewaySkuName"]["enum"]
    assert skus == [way_out["sku"]["name"]]
    surviving = text.replace("ttft_p95: 2s", "survives: zone, ttft_p95: 2s")
    nearest = find(catalog, surviving, keep=0)
    assert not nearest.pools
    assert "sla.survives" in {limit.constraint for limit in nearest.bindings}
