"""Networks of other accounts reach a service by a private link, when its spec names them."""

from __future__ import annotations

import json
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from planner.errors import SpecError
from planner.facts.cloud import clouds
from providers.catalog.load import load_catalog
from providers.simulated import world
from stacks.engine.protocol import RunControl
from stacks.engine.simulated import SimulatedEngine
from tests.conftest import chat, spec_of
from tests.planner.spec.test_certificate import graph_of
from tests.stacks.engine.test_simulated import objects, plan_of, quiet
from tests.stacks.test_build import check
from tests.stacks.test_build_combinations import GIVEN
from tests.stacks.told import inputs_of

CATALOG = load_catalog(None)
EVERYTHING = RunControl(allow=frozenset({"delete-data"}))
ACCOUNTS = {
    "aws": ("123456789012", "210987654321"),
    "gcp": ("chat-clients", "shop-clients"),
    "azure": (
        "0a1b2c3d-0000-4000-8000-000000000001",
        "0a1b2c3d-0000-4000-8000-000000000002",
    ),
}
SERVICES = {
    "aws": "VpcEndpointService",
    "gcp": "ServiceAttachment",
    "azure": "PrivateLinkService",
}


def spec(cloud: str, more: str = "") -> str:
    accounts = json.dumps(ACCOUNTS[cloud])
    return chat(
        extra=f"where: {{clouds: [{cloud}]}}\nendpoint: {{share: {accounts}}}\n"
        f"{more}"
    )


def named_accounts(service: dict[str, Any]) -> set[str]:
    return {
        account
        for accounts in ACCOUNTS.values()
        for account in accounts
        if account in json.dumps(service)
    }


@pytest.mark.parametrize("cloud", clouds())
def test_the_accounts_that_are_named_connect_and_no_others(cloud: str) -> None:
    graph = graph_of(CATALOG, spec(cloud))
    check(graph)
    [service] = inputs_of(graph, SERVICES[cloud]).values()
    assert named_accounts(service) == set(ACCOUNTS[cloud])
    assert "*" not in json.dumps(service)
    without = graph_of(CATALOG, chat(extra=f"where: {{clouds: [{cloud}]}}"))
    assert inputs_of(without, SERVICES[cloud]) == {}


@pytest.mark.parametrize("cloud", ["gcp", "azure"])
def test_what_translates_their_addresses_is_apart_from_the_nodes(
    cloud: str,
) -> None:
    graph = graph_of(CATALOG, spec(cloud))
    ranges = [
        IPv4Network(subnet.get("ipCidrRange") or subnet["addressPrefix"])
        for subnet in inputs_of(
            graph, "Subnetwork" if cloud == "gcp" else "Subnet"
        ).values()
    ]
    assert len(ranges) == 2
    assert not ranges[0].overlaps(ranges[1])


@pytest.mark.parametrize("cloud", clouds())
def test_it_is_applied_told_and_goes_again(cloud: str, here: Path) -> None:
    plan = plan_of(CATALOG, spec(cloud))
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    outcome = engine.apply(plan, quiet)
    assert outcome.outputs["private_link"]
    engine.destroy(plan.stack.name, quiet, EVERYTHING)
    assert objects(engine) == {}


@pytest.mark.parametrize("cloud", clouds())
def test_in_a_network_of_others_only_aws_needs_no_subnet_of_its_own(
    cloud: str,
) -> None:
    network_id, subnet = GIVEN[cloud]
    place = {"aws": "us-east-1a", "gcp": "us-east4", "azure": "eastus"}[cloud]
    text = spec(
        cloud,
        f"network: {{id: {network_id}, subnets: [{subnet}@{place}], "
        "range: 10.20.0.0/20}\n",
    )
    if cloud == "aws":
        check(graph_of(CATALOG, text))
        return
    with pytest.raises(SpecError, match="subnet of its own"):
        spec_of(text)


@pytest.mark.parametrize(
    ("cloud", "account"),
    [("aws", "12345"), ("gcp", "123456789012"), ("azure", "chat-clients")],
)
def test_accounts_are_those_of_the_cloud(cloud: str, account: str) -> None:
    with pytest.raises(SpecError):
        spec_of(
            chat(
                extra=f"where: {{clouds: [{cloud}]}}\n"
                f'endpoint: {{share: ["{account}"]}}'
            )
        )
