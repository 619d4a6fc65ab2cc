"""HTTPS at a balancer: the certificate settles the place, and clients call the name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.errors import SpecError
from planner.facts.cloud import clouds
from planner.spec.certificate import certificate_of
from stacks.build import build_stack
from tests.conftest import chat, find, present, spec_of
from tests.planner.cli.conftest import Command
from tests.stacks.test_build import check
from tests.stacks.told import inputs_of

ARN = (
    "arn:aws:acm:us-west-2:123456789012:certificate/"
    "0a1b2c3d-0000-0000-0000-000000000000"
)


def spec(endpoint: str = f"host: chat.example.com, certificate: {ARN}") -> str:
    return chat(extra=f"endpoint: {{{endpoint}}}")


def graph_of(catalog: Any, text: str) -> Any:
    made = spec_of(text)
    solution = find(catalog, text, keep=0)
    return build_stack(made, solution, made.name).graph


def test_a_stack_is_where_its_certificate_is(catalog) -> None:
    assert present(certificate_of(spec_of(spec()))).region == "us-west-2"
    [pool] = find(catalog, spec(), keep=0).pools
    assert (pool.instance.provider, pool.region) == ("aws", "us-west-2")


def test_clients_speak_tls_to_the_balancer_and_to_nothing_else(catalog) -> None:
    graph = graph_of(catalog, spec())
    [listener] = inputs_of(graph, "Listener").values()
    assert (listener["port"], listener["protocol"]) == (443, "TLS")
    assert listener["certificateArn"] == ARN
    assert "TLS13" in listener["sslPolicy"]
    doors = inputs_of(graph, "SecurityGroupIngressRule")
    clients = doors["nodes-from-clients"]
    assert clients["fromPort"] == clients["toPort"] == 443
    # The balancer speaks to the machines as a member of their own group.
    [targets] = inputs_of(graph, "TargetGroup").values()
    assert (targets["port"], targets["protocol"]) == (8000, "TCP")
    assert "referencedSecurityGroupId" in doors["nodes-in"]


def test_without_a_certificate_nothing_is_encrypted(catalog) -> None:
    graph = graph_of(catalog, chat(extra="where: {clouds: [aws]}"))
    [listener] = inputs_of(graph, "Listener").values()
    assert (listener["port"], listener["protocol"]) == (8000, "TCP")


def test_apply_says_how_the_name_is_called(
    tonnage: Command, here: Path
) -> None:
    (here / "s.yaml").write_text(spec())
    code, out, err = tonnage("apply", "s.yaml", "--simulate", "--yes")
    assert code == 0, err
    assert "curl https://chat.example.com/v1/completions" in out
    assert "# a CNAME lets the name point to loadbalancer-" in out
    code, out, _ = tonnage("check", "--security", "s.yaml")
    assert (code, "sec-aws-http" in out) == (0, False)


@pytest.mark.parametrize(
    ("endpoint", "told"),
    [
        ("host: chat.example.com", "go together"),
        (f"certificate: {ARN}", "go together"),
        (f"host: localhost, certificate: {ARN}", "a host name"),
        (
            "host: chat.example.com, certificate: projects/p/certificates/c",
            "secret://NAME",
        ),
    ],
)
def test_a_name_and_its_certificate_go_together(
    endpoint: str, told: str
) -> None:
    with pytest.raises(SpecError) as refused:
        spec_of(spec(endpoint))
    problems = refused.value.problems
    assert any(told in f"{p.message} {p.cause} {p.next_step}" for p in problems)


def secret_spec(cloud: str) -> str:
    name = "vault/chat-tls" if cloud == "azure" else "chat-tls"
    return chat(
        extra=f"where: {{clouds: [{cloud}]}}\n"
        f"network: {{peer_cidrs: [10.99.0.0/16]}}\n"
        f"endpoint: {{host: chat.example.com, certificate: secret://{name}}}"
    )


@pytest.mark.parametrize("cloud", clouds())
def test_https_ends_at_the_machines_with_a_certificate_of_the_store(
    catalog, cloud: str
) -> None:
    """Clients reach port 443, the balancer asks for the health at 8000, and the secret is read."""
    graph = graph_of(catalog, secret_spec(cloud))
    check(graph)
    # A vault of Azure gives rights itself, and its owner gives them.
    text = json.dumps([resource.inputs for resource in graph.resources])
    assert cloud == "azure" or "chat-tls" in text
    if cloud == "aws":
        [listener] = inputs_of(graph, "Listener").values()
        assert (listener["port"], listener["protocol"]) == (443, "TCP")
        [targets] = inputs_of(graph, "TargetGroup").values()
        assert targets["port"] == 443
        assert targets["healthCheck"]["port"] == "8000"
        rules = inputs_of(graph, "SecurityGroupIngressRule")
        ports = {
            rule["fromPort"]
            for name, rule in rules.items()
            if name != "nodes-in"
        }
        assert ports == {443}
    if cloud == "gcp":
        [rule] = inputs_of(graph, "ForwardingRule").values()
        assert rule["ports"] == ["443"]
        assert {
            health["httpHealthCheck"]["port"]
            for health in inputs_of(graph, "RegionHealthCheck").values()
        } == {8000}
        walls = inputs_of(graph, "Firewall")
        assert walls["net-peers"]["allows"][0]["ports"] == ["443"]
        assert walls["net-probes"]["allows"][0]["ports"] == ["8000"]
    if cloud == "azure":
        [balancer] = inputs_of(graph, "LoadBalancer").values()
        [rule] = balancer["loadBalancingRules"]
        assert (rule["frontendPort"], rule["backendPort"]) == (443, 443)
        assert balancer["probes"][0]["port"] == 8000


@pytest.mark.parametrize("cloud", clouds())
def test_a_service_with_its_own_certificate_is_found_encrypted(
    tonnage: Command, here: Path, cloud: str
) -> None:
    (here / "s.yaml").write_text(secret_spec(cloud))
    code, out, _ = tonnage("check", "--security", "s.yaml")
    assert (code, f"sec-{cloud}-http" in out) == (0, False)
    code, out, err = tonnage("apply", "s.yaml", "--simulate", "--yes")
    assert code == 0, err
    record = "a CNAME" if cloud == "aws" else "an A record"
    assert f"# {record} lets the name point to" in out
