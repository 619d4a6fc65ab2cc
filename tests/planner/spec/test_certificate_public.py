"""An endpoint for the internet is asked for by name, and nothing else of a stack is reached."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.errors import SpecError
from planner.facts.cloud import clouds
from planner.plan.security import security_findings
from providers.catalog.load import load_catalog
from providers.simulated import world
from stacks.engine.protocol import RunControl
from stacks.engine.simulated import SimulatedEngine
from stacks.runtime.vm.serving import serving_work
from stacks.spec.stack import ROUTED_PORT, derive_stack
from tests.conftest import chat, find, present, spec_of
from tests.planner.cli.conftest import Command
from tests.planner.spec.test_certificate import ARN, graph_of
from tests.stacks.engine.test_simulated import objects, plan_of, quiet
from tests.stacks.test_build import check
from tests.stacks.told import inputs_of

CATALOG = load_catalog(None)
EVERYTHING = RunControl(allow=frozenset({"delete-data"}))
EVERYBODY = ("0.0.0.0/0", "Internet", "*")


def spec(cloud: str, public: str = "public: true, ", more: str = "") -> str:
    vault = "vault/" if cloud == "azure" else ""
    return chat(
        extra=f"where: {{clouds: [{cloud}]}}\n"
        f"endpoint: {{{public}host: chat.example.com, "
        f"certificate: secret://{vault}chat-tls, "
        f'api_key: "secret://{vault}chat-key"}}\n{more}'
    )


def open_ports(graph: Any) -> set[str]:
    """The ports that everybody reaches, by the rules of the network of a graph."""
    ports = set()
    for rule in inputs_of(graph, "SecurityGroupIngressRule").values():
        if rule.get("cidrIpv4") in EVERYBODY:
            assert rule["fromPort"] == rule["toPort"]
            ports.add(str(rule["toPort"]))
    for rule in inputs_of(graph, "Firewall").values():
        if set(rule["sourceRanges"]) & set(EVERYBODY):
            for allowed in rule["allows"]:
                ports |= set(allowed["ports"])
    for group in inputs_of(graph, "NetworkSecurityGroup").values():
        ports |= {
            rule["destinationPortRange"]
            for rule in group["securityRules"]
            if rule["sourceAddressPrefix"] in EVERYBODY
            and rule["access"] == "Allow"
        }
    return ports


def public_addresses(graph: Any) -> set[str]:
    """What has an address of the internet, by its name."""
    return {
        *inputs_of(graph, "Eip"),
        *inputs_of(graph, "PublicIPAddress"),
        *inputs_of(graph, "Address"),
        *(
            name
            for name, balancer in inputs_of(graph, "LoadBalancer").items()
            if balancer.get("internal") is False
        ),
    }


@pytest.mark.parametrize("cloud", clouds())
def test_the_internet_reaches_port_443_of_the_balancer_and_nothing_else(
    cloud: str,
) -> None:
    graph = graph_of(CATALOG, spec(cloud))
    check(graph)
    assert open_ports(graph) == {"443"}
    assert any("balancer" in name for name in public_addresses(graph))
    private = graph_of(CATALOG, spec(cloud, public=""))
    assert open_ports(private) == set()
    assert not any("balancer" in name for name in public_addresses(private))


def test_a_public_balancer_of_google_is_probed_from_other_addresses() -> None:
    def probes(text: str) -> set[str]:
        rules = inputs_of(graph_of(CATALOG, text), "Firewall")
        return set(rules["net-probes"]["sourceRanges"])

    assert probes(spec("gcp")) - probes(spec("gcp", public="")) == {
        "209.85.152.0/22",
        "209.85.204.0/22",
    }


def test_a_balancer_of_aws_stands_in_each_zone_of_its_machines() -> None:
    graph = graph_of(CATALOG, spec("aws"))
    subnets = inputs_of(graph, "Subnet")
    [balancer] = inputs_of(graph, "LoadBalancer").values()
    [group] = inputs_of(graph, "Group").values()
    zones = [
        {subnets[place["$ref"]]["availabilityZone"] for place in places}
        for places in (balancer["subnets"], group["vpcZoneIdentifiers"])
    ]
    assert zones[0] == zones[1]
    ways = {
        association["subnetId"]["$ref"]: association["routeTableId"]["$ref"]
        for association in inputs_of(graph, "RouteTableAssociation").values()
    }
    assert {ways[place["$ref"]] for place in balancer["subnets"]} == {
        "public-routes"
    }
    # Health and requests pass, and nothing else of the balancer.
    doors = inputs_of(graph, "SecurityGroupIngressRule")
    assert {
        rule["fromPort"]
        for rule in doors.values()
        if rule.get("referencedSecurityGroupId", {}).get("$ref")
        == "balancer-group"
    } == {443, 8000}


@pytest.mark.parametrize("certificate", [ARN, "secret://chat-tls"])
def test_the_internet_speaks_to_proxies_and_to_no_engine(
    certificate: str,
) -> None:
    text = spec("aws").replace("secret://chat-tls", certificate)
    made = spec_of(text)
    stack = derive_stack(made, find(CATALOG, text, keep=0), made.name)
    [(fleet, group)] = stack.scaling_groups
    work = serving_work(stack, fleet, group, present(fleet.layout))
    assert work["router"]["is_public"]
    assert work["port"] == work["router"]["engine_port"] == ROUTED_PORT
    assert stack.machine_port != ROUTED_PORT


@pytest.mark.parametrize("cloud", clouds())
def test_it_is_applied_and_goes_again(cloud: str, here: Path) -> None:
    plan = plan_of(CATALOG, spec(cloud))
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    outcome = engine.apply(plan, quiet)
    assert outcome.outputs["endpoint"]
    assert not str(outcome.outputs["endpoint"]).startswith("10.")
    engine.destroy(plan.stack.name, quiet, EVERYTHING)
    assert objects(engine) == {}


@pytest.mark.parametrize("cloud", clouds())
def test_the_bill_holds_the_way_of_the_answers(cloud: str) -> None:
    private, public = (
        {
            line.name: line
            for line in api.plan(
                spec(cloud, words).encode(), catalog=CATALOG, alternatives=0
            ).cost.lines
        }
        for words in ("", "public: true, ")
    )
    assert not any(name.startswith("egress") for name in private)
    egress = [
        line for name, line in public.items() if name.startswith("egress")
    ]
    # 2 requests/s of 200 tokens, 200 bytes each, for 730 hours; the free tier is no line.
    sent_gb = Decimal(2 * 200 * 200 * 730 * 3600) / 10**9
    free_gb = Decimal(0) if cloud == "gcp" else Decimal(100)
    assert sum(line.quantity for line in egress) == pytest.approx(
        sent_gb - free_gb
    )
    address = "public address"
    assert public[address].quantity > private[address].quantity


@pytest.mark.parametrize("cloud", clouds())
def test_the_security_check_tells_it_and_lets_it_pass(cloud: str) -> None:
    plan = api.plan(spec(cloud).encode(), catalog=CATALOG, alternatives=0)
    found = {f.rule.id: f.rule.severity for f in security_findings(plan)}
    assert found[f"sec-{cloud}-balancer-public"] == "low"
    assert set(found.values()) == {"low"}


@pytest.mark.parametrize(
    ("endpoint", "told"),
    [
        ("public: true", "needs a host"),
        (
            f"public: true, host: chat.example.com, certificate: {ARN}",
            "and an api_key",
        ),
        ('public: true, api_key: "secret://key"', "needs a host"),
    ],
)
def test_the_internet_needs_a_name_a_certificate_and_a_key(
    endpoint: str, told: str
) -> None:
    with pytest.raises(SpecError, match=told) as refused:
        spec_of(
            chat(extra=f"where: {{clouds: [aws]}}\nendpoint: {{{endpoint}}}")
        )
    assert present(refused.value.problems[0].place).line > 1


def test_a_network_of_others_has_its_own_ways_in() -> None:
    network = (
        "network: {id: vpc-0a1b2c3d4e5f60718, range: 10.20.0.0/20, "
        "subnets: [subnet-0a1b2c3d4e5f60711@us-east-1a]}"
    )
    with pytest.raises(SpecError, match="exclude each other"):
        spec_of(spec("aws", more=network))


def test_apply_says_where_the_name_points(tonnage: Command, here: Path) -> None:
    (here / "s.yaml").write_text(spec("gcp"))
    code, out, err = tonnage("apply", "s.yaml", "--simulate", "--yes")
    assert code == 0, err
    assert "curl https://chat.example.com/v1/completions" in out
    assert "203.0.113.5" in out
