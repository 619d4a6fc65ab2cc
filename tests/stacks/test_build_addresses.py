"""Machines with a public address while they run, instead of a NAT: what is built, and what not."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from planner.errors import SpecError
from planner.facts.rule import broken_rules
from planner.market.offer import Catalog
from planner.market.public_address import takes_public_address
from planner.solve.solution import Solution
from providers.catalog.metering import group_rates
from providers.registry import all_providers
from providers.simulated import world
from providers.simulated.bill import usd_hour_now
from stacks.build import build_stack
from stacks.engine.protocol import RunControl
from stacks.engine.simulated import SimulatedEngine
from stacks.graph import Graph
from tests.conftest import chat, find, only, present, solve, spec_of
from tests.oracles import schema
from tests.planner.cli.conftest import Command
from tests.stacks.engine.test_simulated import PLACES, objects, plan_of, quiet

CLOUDS = ("aws", "gcp", "azure")
ADDRESSED = "network: {public_addresses: true}\n"
EVERYTHING = RunControl(allow=frozenset({"delete-data"}))
NIGHTS_OFF = 'shutdown: {schedule: "weekdays 08:00-19:00"}\n'
KINDS = {
    "service": chat(extra=NIGHTS_OFF),
    "batch": """\
apiVersion: tonnage/v1
kind: Batch
name: chat
model: {name: llama-3.1-8b}
traffic: {requests_per_day: 200000, input_tokens: {mean: 1200, p95: 4000},
  output_tokens: {mean: 220, p95: 600}}
""",
    "training": """\
apiVersion: tonnage/v1
kind: Training
name: chat
model: {name: llama-3.1-8b}
data: {tokens: 100M, location: PLACE/tokens, storage: object}
train: {method: lora, sequence: 4k, global_batch: 64, deadline: 7d}
protect: false
""",
    "workspace": """\
apiVersion: tonnage/v1
kind: Workspace
name: chat
users: 2
accelerator: {memory: 20GiB}
disk: 100GiB
""",
}
# What goes out for machines that have no address.
WAY_OUT = ("nat", "router", "eip", "publicipaddress")
# Where somebody is let in.
INBOUND = {
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
    "azure-native:network:NetworkSecurityGroup",
    "gcp:compute/firewall:Firewall",
}
# USD an hour of an address, as each cloud publishes it.
PUBLISHED = {
    ("aws", "never"): "0.005",
    ("aws", "only"): "0.005",
    ("gcp", "never"): "0.005",
    ("gcp", "only"): "0.0025",
    ("azure", "never"): "0.005",
    ("azure", "only"): "0.005",
}


def text_of(kind: str, cloud: str, network: str = ADDRESSED) -> str:
    text = KINDS[kind].replace("PLACE", PLACES[cloud])
    return f"{text}\nwhere: {{clouds: [{cloud}]}}\n{network}"


def built(catalog: Catalog, text: str) -> tuple[Graph, Solution]:
    spec = spec_of(text)
    solution = find(catalog, text, keep=0)
    return build_stack(spec, solution, spec.name).graph, solution


def inbound(graph: Graph) -> dict[str, Any]:
    return {r.name: r.inputs for r in graph.resources if r.type in INBOUND}


def addressed_groups(engine: SimulatedEngine) -> list[bool]:
    """Of each group of machines that stands, whether they have addresses."""
    found = objects(engine)
    groups = (
        provider.node_group(item["type"], item["inputs"], found, "anywhere")
        for provider in all_providers()
        for item in found.values()
    )
    return [group.has_address for group in groups if group is not None]


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_stack_of_addresses_has_no_nat_and_lets_nobody_else_in(
    catalog: Catalog, here: Path, kind: str, cloud: str
) -> None:
    """It stands, is as it was told, and goes again."""
    text = text_of(kind, cloud)
    graph, solution = built(catalog, text)
    private, _ = built(catalog, text_of(kind, cloud, ""))
    for resource in graph.resources:
        assert schema.errors(resource.type, dict(resource.inputs)) == []
    ways = {
        r.name
        for r in graph.resources
        if r.type.rpartition(":")[2].lower().startswith(WAY_OUT)
    }
    # A workspace of Azure has a way in of its own, with an address.
    assert ways <= {"bastion-address"}
    assert present(solution.bill).lines
    assert inbound(graph) == inbound(private)
    parts = [(r.type, r.name, r.inputs) for r in graph.resources]
    assert broken_rules("graph", cloud, parts) == []
    assert f"sec-{cloud}-public-address" in {
        rule.id for rule, _ in broken_rules("security", cloud, parts)
    }

    engine = SimulatedEngine(world.default_world(), here / "clouds")
    plan = plan_of(catalog, text)
    engine.apply(plan, quiet)
    assert len(objects(engine)) == len(plan.graph.resources)
    groups = addressed_groups(engine)
    assert groups
    assert all(groups)
    assert engine.apply(plan, quiet).steps == ()
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


@pytest.mark.parametrize(("cloud", "spot"), PUBLISHED)
def test_an_address_costs_the_hours_of_its_machine(
    catalog: Catalog, cloud: str, spot: str
) -> None:
    text = text_of("service", cloud) + f"buy: {{spot: {spot}}}\n"
    bill = present(find(catalog, text, keep=0).bill)
    [machines] = [line for line in bill.lines if line.kind == "accelerators"]
    [address] = [line for line in bill.lines if line.kind == "machine_address"]
    assert 0 < address.quantity == machines.quantity
    by_hand = machines.quantity * Decimal(PUBLISHED[cloud, spot])
    assert abs(present(address.usd) - by_hand) < Decimal("0.01")
    kinds = {line.kind for line in bill.lines}
    assert not kinds & {"nat", "nat_per_node", "nat_data", "public_ip"}


def test_machines_of_both_kinds_pay_what_each_costs(catalog: Catalog) -> None:
    """Google Cloud takes half for the address of a spot machine."""
    text = text_of("service", "gcp").replace("peak_rps: 2", "peak_rps: 40")
    text += "buy: {on_demand_base: 50%}\n"
    bill = present(find(catalog, text, keep=0).bill)
    machines = {
        line.purchase: line.quantity
        for line in bill.lines
        if line.kind == "accelerators"
    }
    addresses = {
        line.name: line for line in bill.lines if line.kind == "machine_address"
    }
    spot = addresses["spot machine addresses"]
    standard = addresses["machine addresses"]
    assert machines.keys() == {"on_demand", "spot"}
    assert (spot.quantity, spot.unit_price) == (
        machines["spot"],
        Decimal("0.0025"),
    )
    # Quantities are rounded to four decimals.
    assert abs(standard.quantity - machines["on_demand"]) < Decimal("0.001")
    assert standard.unit_price == Decimal("0.005")


@pytest.mark.parametrize(
    ("machine", "model", "asked"),
    [
        ("p5.48xlarge", "llama-3.1-70b", "aws"),
        ("Standard_ND96isr_H100_v5", "llama-3.1-70b", "azure"),
    ],
)
def test_machines_of_a_fabric_are_not_taken(
    catalog: Catalog, machine: str, model: str, asked: str
) -> None:
    """And the plan names the key, not a NAT that nobody asked for."""
    one_type = only(catalog, lambda o: o.instance.instance_type == machine)
    where = f"where: {{clouds: [{asked}]}}\n"
    text = chat(model=model, extra=where)
    assert find(one_type, text, keep=0).pools
    refused = find(one_type, text + ADDRESSED, keep=0)
    assert not refused.pools
    [nearest] = [
        binding
        for binding in refused.bindings
        if binding.constraint == "network.public_addresses"
    ]
    assert present(nearest.fleet).instance_type == machine


def test_machines_that_work_alone_take_addresses_and_joined_ones_do_not(
    catalog: Catalog,
) -> None:
    """A type with EFA has one interface until machines work together."""
    types = {
        offer.instance.instance_type: offer.instance
        for offer in catalog.offers
        if offer.provider in CLOUDS
    }
    alone = types["g6e.12xlarge"]
    assert takes_public_address(alone, spans_nodes=False)
    assert not takes_public_address(alone, spans_nodes=True)
    assert takes_public_address(types["a3-megagpu-8g"], spans_nodes=True)
    for instance in types.values():
        joined = instance.attaches_fabric(spans_nodes=True)
        if instance.provider == "gcp" or not joined:
            assert takes_public_address(instance, spans_nodes=True)
        else:
            assert not takes_public_address(instance, spans_nodes=True)


def test_no_job_spans_machines_with_addresses_on_efa(catalog: Catalog) -> None:
    """It spans several without them."""
    one_type = only(
        catalog, lambda o: o.instance.instance_type == "g6e.48xlarge"
    )
    text = text_of("training", "aws", "").replace("100M", "3B")
    text = text.replace("deadline: 7d", "deadline: 2d")
    free = find(one_type, text, keep=0)
    assert free.pools[0].nodes > 1
    bound = find(one_type, text + ADDRESSED, keep=0)
    assert all(pool.nodes == 1 for pool in bound.pools)


def test_a_file_system_that_goes_out_by_a_nat_is_refused(
    catalog: Catalog,
) -> None:
    text = text_of("training", "azure").replace("object", "parallel")
    text = text.replace("tokens: 100M", "tokens: 100M, size: 1TB")
    with pytest.raises(SpecError) as error:
        built(catalog, text)
    assert "network.public_addresses" in present(
        error.value.problems[0].next_step
    )


@pytest.mark.parametrize("cloud", CLOUDS)
def test_machines_that_are_added_have_addresses_and_pay_for_them(
    catalog: Catalog, here: Path, cloud: str
) -> None:
    """What a world costs now has one address more for each machine more."""
    machine = find(catalog, text_of("service", cloud), keep=0).pools[0].instance
    one_type = only(catalog, lambda offer: offer.instance == machine)
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    small = text_of("service", cloud)
    costs = {}
    for text in (small, small.replace("peak_rps: 2", "peak_rps: 40")):
        plan = plan_of(one_type, text)
        engine.apply(plan, quiet)
        assert all(addressed_groups(engine))
        memory = engine.shared_world.view().memory
        groups = [
            history.sizes[-1]
            for history in memory.history.values()
            if history.sizes and history.until is None
        ]
        nodes = sum(size.nodes for size in groups)
        costs[nodes] = usd_hour_now(memory, catalog)
    (few, few_usd), (many, many_usd) = sorted(costs.items())
    rates = group_rates(groups[0].group, catalog)
    address = Decimal(PUBLISHED[cloud, "never"])
    assert {rate.kind: rate.usd_hour for rate in rates}[
        "machine_address"
    ] == address
    each = sum(rate.usd_hour for rate in rates)
    assert many_usd - few_usd == pytest.approx((many - few) * each)
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


def test_what_excludes_addresses_is_refused_where_they_are_asked_for(
    tonnage: Command, here: Path
) -> None:
    lines = (
        "network:",
        "  id: vpc-0a1b2c3d4e5f60718",
        "  subnets: [subnet-0a1b2c3d4e5f60711@us-east-1a]",
        "  range: 10.20.0.0/20",
        "  public_addresses: true",
    )
    text = chat(extra="where: {clouds: [aws]}\n" + "\n".join(lines))
    (here / "s.yaml").write_text(text)
    line = text.splitlines().index("network:") + 1
    code, _, err = tonnage("check", "s.yaml")
    assert code == 2
    assert f"s.yaml:{line + 1}:3  error[addresses-network]" in err
    assert "next: remove one of both" in err


@pytest.mark.parametrize("survives", ["node", "zone"])
def test_every_zone_goes_out_by_itself(
    catalog: Catalog, here: Path, survives: str
) -> None:
    """On AWS each subnet of machines has a route to the internet gateway, and no NAT."""
    sla = f"ttft_p95: 2s, tpot_p95: 80ms, survives: {survives}"
    where = "where: {clouds: [aws], regions: [us-east-1]}\n"
    text = chat(sla=sla, traffic="peak_rps: 20", extra=where + ADDRESSED)
    graph, _ = built(catalog, text)
    parts = {r.name: (r.type, r.inputs) for r in graph.resources}
    gateways = {
        inputs["routeTableId"]["$ref"]: inputs["gatewayId"]["$ref"]
        for type_, inputs in parts.values()
        if type_ == "aws:ec2/route:Route"
    }
    tables = {
        inputs["subnetId"]["$ref"]: inputs["routeTableId"]["$ref"]
        for type_, inputs in parts.values()
        if type_.endswith(":RouteTableAssociation")
    }
    subnets = {
        name for name, (type_, _) in parts.items() if type_.endswith(":Subnet")
    }
    assert len(subnets) > 1
    assert {gateways[tables[subnet]] for subnet in subnets} == {"gateway"}
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    plan = plan_of(catalog, text)
    engine.apply(plan, quiet)
    assert len(objects(engine)) == len(plan.graph.resources)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_stack_that_stands_changes_from_a_nat_to_addresses(
    catalog: Catalog, here: Path, cloud: str
) -> None:
    """And back. Its network, its subnets and its data stay."""
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    with_nat = plan_of(catalog, text_of("service", cloud, ""))
    addressed = plan_of(catalog, text_of("service", cloud))
    control = RunControl(allow=frozenset({"outage"}))
    engine.apply(with_nat, quiet)
    kept = {
        object_id
        for object_id, item in objects(engine).items()
        if item["type"].rpartition(":")[2]
        in {"Vpc", "Subnet", "Network", "Subnetwork", "VirtualNetwork"}
        and not item["name"].startswith("public")
    }
    assert len(kept) > 1
    for plan, has_address in ((addressed, True), (with_nat, False)):
        engine.apply(plan, quiet, control)
        assert kept <= objects(engine).keys()
        assert set(addressed_groups(engine)) == {has_address}


def test_where_a_nat_is_cheaper_the_plan_says_what_it_would_save(
    catalog: Catalog,
) -> None:
    """Google Cloud takes less an hour for a machine behind a NAT than for an address."""
    one_type = only(
        catalog, lambda o: o.instance.instance_type == "g2-standard-4"
    )
    text = chat(traffic="peak_rps: 40", extra="where: {clouds: [gcp]}\n")
    addressed = solve(one_type, text + ADDRESSED)
    behind_nat = present(find(one_type, text, keep=0).bill)
    assert addressed.pools[0].nodes > 10
    [binding] = [
        binding
        for binding in addressed.bindings
        if binding.constraint == "network.public_addresses"
    ]
    saved_usd = present(addressed.bill).total - behind_nat.total
    assert binding.saves_usd == saved_usd > 0
