"""The way out of the nodes: one for all, or one in each zone where a zone may fail."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from providers.catalog.metering import object_rates
from providers.simulated import world
from stacks.build import build_stack
from stacks.engine.simulated import SimulatedEngine
from stacks.graph import ref
from tests.conftest import ROOT, chat, find, present, spec_of
from tests.stacks.engine.test_simulated import objects, plan_of, quiet
from tests.stacks.told import inputs_of

WHERE = "where: {clouds: [aws], regions: [us-east-1]}"


def text(survives: str) -> str:
    sla = f"ttft_p95: 2s, tpot_p95: 80ms{survives}"
    return chat(sla=sla, traffic="peak_rps: 20", extra=WHERE)


def built(catalog: Any, survives: str) -> tuple[Any, Any]:
    spec = spec_of(text(survives))
    solution = find(catalog, text(survives), keep=0)
    return build_stack(spec, solution, spec.name).graph, solution


def nat_zones(graph: Any) -> dict[str, str]:
    """The zone of the NAT through which the nodes of each zone go out."""
    subnets = inputs_of(graph, "Subnet")
    gateways = inputs_of(graph, "NatGateway")
    gateway_of = {
        route["routeTableId"]["$ref"]: route["natGatewayId"]["$ref"]
        for route in inputs_of(graph, "Route").values()
        if "natGatewayId" in route
    }
    return {
        subnets[joined["subnetId"]["$ref"]]["availabilityZone"]: subnets[
            gateways[gateway_of[joined["routeTableId"]["$ref"]]]["subnetId"][
                "$ref"
            ]
        ]["availabilityZone"]
        for joined in inputs_of(graph, "RouteTableAssociation").values()
        if joined["routeTableId"]["$ref"] in gateway_of
    }


def test_one_way_out_serves_all_zones(catalog) -> None:
    graph, _ = built(catalog, "")
    zones = nat_zones(graph)
    assert len(zones) > 1
    assert set(zones.values()) == {min(zones)}


def test_a_zone_that_fails_takes_no_other_with_it(catalog) -> None:
    graph, solution = built(catalog, ", survives: zone")
    zones = nat_zones(graph)
    assert len(zones) > 1
    assert all(zone == out for zone, out in zones.items())
    # All of them reach objects past their NAT.
    [endpoint] = inputs_of(graph, "VpcEndpoint").values()
    assert len(endpoint["routeTableIds"]) == len(zones)
    lines = {line.name: line for line in present(solution.bill).lines}
    for name in ("NAT gateway", "public address"):
        assert lines[name].quantity == len(zones) * Decimal(730)


@pytest.mark.parametrize("survives", ["", ", survives: zone"])
def test_both_stand_in_the_simulated_cloud(
    catalog, here: Path, survives: str
) -> None:
    """Which checks that ranges do not overlap, and what routes to what."""
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    plan = plan_of(catalog, text(survives))
    engine.apply(plan, quiet)
    assert len(objects(engine)) == len(plan.graph.resources)
    assert engine.apply(plan, quiet).steps == ()


ENDPOINTS = "network: {private_endpoints: true}\n"
SECRET = 'endpoint: {api_key: "secret://chat-key"}\n'
GIVEN = (
    "network: {private_endpoints: true, id: vpc-0a1b2c3d4e5f60718, "
    "subnets: [subnet-0a1b2c3d4e5f60711@us-east-1a, "
    "subnet-0a1b2c3d4e5f60712@us-east-1b], range: 10.20.0.0/20}\n"
)
DESK = """\
apiVersion: tonnage/v1
kind: Workspace
name: desk
fits: {model: llama-3.1-8b, for: inference}
network: {private_endpoints: true}
"""
# Of Session Manager, whose agent no program of tonnage is.
SESSIONS = {"ssm", "ssmmessages"}


def endpoints(graph: Any) -> dict[str, Any]:
    """The endpoints with interfaces, by what they lead to."""
    return {
        inputs["serviceName"].rpartition(".")[2]: inputs
        for inputs in inputs_of(graph, "VpcEndpoint").values()
        if inputs["vpcEndpointType"] == "Interface"
    }


def graph_of(catalog: Any, text: str) -> Any:
    spec = spec_of(text)
    return build_stack(spec, find(catalog, text, keep=0), spec.name).graph


def called_services() -> set[str]:
    """The services that the program of the machines calls, as it stands."""
    source = (ROOT / "stacks/aws/node.py").read_text()
    return set(re.findall(r'_(?:query|signed)\(\s*"([a-z0-9]+)"', source))


def test_nobody_asks_for_endpoints_who_has_not_said_so(catalog) -> None:
    assert not endpoints(graph_of(catalog, chat(extra=WHERE)))


def test_every_service_that_machines_call_has_an_endpoint(catalog) -> None:
    """Over all kinds of stacks; the bucket has a gateway, which costs nothing."""
    parallel = (ROOT / "tests/cases/aws/training/spec.yaml").read_text()
    made: set[str] = set()
    for text in (
        chat(extra=f"{WHERE}\n{ENDPOINTS}{SECRET}"),
        f"{DESK}{WHERE}\n",
        f"{parallel}\n{ENDPOINTS}",
    ):
        made |= endpoints(graph_of(catalog, text)).keys()
    assert "fsx" in called_services()
    assert made - SESSIONS == called_services() - {"s3"}


@pytest.mark.parametrize("network", [ENDPOINTS, GIVEN])
def test_an_endpoint_is_in_each_zone_of_its_machines(
    catalog, network: str
) -> None:
    """And the bill has an hour of each of them in each zone."""
    text = chat(extra=f"{WHERE}\n{network}{SECRET}")
    graph = graph_of(catalog, text)
    [group] = inputs_of(graph, "Group").values()
    found = endpoints(graph)
    assert "secretsmanager" in found
    assert all(
        one["subnetIds"] == group["vpcZoneIdentifiers"]
        and one["securityGroupIds"] == [ref("endpoints-group")]
        and one["privateDnsEnabled"]
        for one in found.values()
    )
    # Its names are those of the whole network, so its machines are let in too.
    admitted = {
        rule["cidrIpv4"]
        for rule in inputs_of(graph, "SecurityGroupIngressRule").values()
        if rule["securityGroupId"] == ref("endpoints-group")
        and (rule["fromPort"], rule["toPort"]) == (443, 443)
    }
    is_given = network == GIVEN
    assert ("172.16.0.0/12" in admitted) is is_given
    assert len(admitted) == (4 if is_given else 1)
    lines = present(find(catalog, text, keep=0).bill).lines
    [line] = [line for line in lines if line.kind == "private_endpoint"]
    zones = len(group["vpcZoneIdentifiers"])
    assert zones > 1
    assert line.quantity == len(found) * zones * Decimal(730)
    # What is there without the stack is metered by the same price.
    rates = [
        rate.usd_hour
        for resource in graph.resources
        if resource.type == "aws:ec2/vpcEndpoint:VpcEndpoint"
        for rate in object_rates(resource.type, resource.inputs, catalog)
    ]
    assert sum(rates) * 730 == line.usd


def test_machines_of_a_given_network_wait_for_their_endpoints(catalog) -> None:
    """They may have no other way to these services."""
    graph = graph_of(catalog, chat(extra=f"{WHERE}\n{GIVEN}"))
    [nodes] = [one for one in graph.resources if one.name == "serve-nodes"]
    assert {f"{name}-endpoint" for name in endpoints(graph)} <= set(
        nodes.depends_on
    )


def test_endpoints_come_and_go_in_the_simulated_cloud(
    catalog, here: Path
) -> None:
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    without = plan_of(catalog, chat(extra=WHERE))
    engine.apply(without, quiet)
    before = len(objects(engine))
    asked = plan_of(catalog, chat(extra=f"{WHERE}\n{ENDPOINTS}"))
    changed = engine.apply(asked, quiet).steps
    assert len(objects(engine)) == before + len(changed)
    assert all("endpoint" in step.name for step in changed)
    engine.apply(without, quiet)
    assert len(objects(engine)) == before


def test_logs_of_many_machines_have_an_endpoint_unasked(catalog) -> None:
    """It costs less than the NAT takes for them; of a few machines it costs more."""
    for rps, is_cheaper in ((2, False), (2500, True)):
        text = chat(traffic=f"peak_rps: {rps}", extra=WHERE)
        bill = present(find(catalog, text, keep=0).bill)
        graph = graph_of(catalog, text)
        assert set(endpoints(graph)) == ({"logs"} if is_cheaper else set())
        lines = {line.kind: line for line in bill.lines}
        [zones] = {
            len(one["vpcZoneIdentifiers"])
            for one in inputs_of(graph, "Group").values()
        }
        logged_gb = lines["logs"].quantity
        # A NAT takes 4.5 cents for each gigabyte, an endpoint one, and one for each hour.
        saved = logged_gb * Decimal("0.035") - zones * Decimal("7.3")
        assert (saved > 0) is is_cheaper
