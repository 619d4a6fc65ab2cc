"""The way out of the nodes: one for all, or one in each zone where a zone may fail."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from providers.simulated import world
from stacks.build import build_stack
from stacks.engine.simulated import SimulatedEngine
from tests.conftest import chat, present, solve, spec_of
from tests.stacks.engine.test_simulated import objects, plan_of, quiet
from tests.stacks.told import inputs_of

WHERE = "where: {clouds: [aws], regions: [us-east-1]}"


def text(survives: str) -> str:
    sla = f"ttft_p95: 2s, tpot_p95: 80ms{survives}"
    return chat(sla=sla, traffic="peak_rps: 20", extra=WHERE)


def built(catalog: Any, survives: str) -> tuple[Any, Any]:
    spec = spec_of(text(survives))
    solution = solve(catalog, text(survives), keep=0)
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
