"""Reservations that a stack makes: paid for in every hour, and machines come from them alone."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from planner.errors import CapacityError, SpecError
from planner.facts.cloud import clouds
from planner.facts.rule import rules, rules_of
from planner.plan.status import StackFacts
from planner.plan.types import Plan
from planner.units import HOURS_PER_MONTH, SECONDS_PER_DAY
from providers.simulated.bill import metered_lines, usd_hour_now
from providers.simulated.clock import advance
from stacks.build import build_stack
from stacks.engine.simulated import SimulatedEngine
from stacks.spec.table import unsupported_reason
from tests.conftest import chat, find, only, present, spec_of
from tests.stacks.engine.test_simulated import (
    EVERYTHING,
    objects,
    plan_of,
    quiet,
    world_of,
)
from tests.stacks.test_build import check
from tests.stacks.told import inputs_of

TYPES = {
    "aws": "CapacityReservation",
    "gcp": "Reservation",
    "azure": "CapacityReservation",
}


def reserved(cloud: str, extra: str = "") -> str:
    return chat(
        traffic="peak_rps: 20\n  profile: business-hours",
        extra="update: recreate\nbuy: {reserve: true}\n"
        f"where: {{clouds: [{cloud}]{extra}}}",
    )


def reservation_of(plan: Plan, cloud: str) -> tuple[str, Any]:
    [(name, inputs)] = inputs_of(plan.graph, TYPES[cloud]).items()
    return name, inputs


def reserved_nodes(cloud: str, inputs: Any) -> int:
    if cloud == "aws":
        return int(inputs["instanceCount"])
    size = inputs["specificReservation"] if cloud == "gcp" else inputs["sku"]
    return int(size["count" if cloud == "gcp" else "capacity"])


@pytest.mark.parametrize("cloud", clouds())
def test_every_hour_is_paid_for_at_the_price_on_demand(
    catalog, cloud: str
) -> None:
    """Also the hours in which the traffic would need fewer machines."""
    solution = find(catalog, reserved(cloud), keep=0)
    [pool] = solution.pools
    [part] = pool.purchases
    assert part.purchase == "capacity_reservation"
    key = (cloud, pool.instance.instance_type, pool.region, "on_demand")
    assert {part.usd_hour} == {
        offer.usd_hour for offer in catalog.offers if offer.key == key
    }
    [line] = [
        line
        for line in present(solution.bill).lines
        if line.kind == "accelerators"
    ]
    assert line.quantity == pool.nodes * HOURS_PER_MONTH


@pytest.mark.parametrize("cloud", clouds())
def test_machines_come_from_what_is_reserved_in_one_zone(
    catalog, cloud: str
) -> None:
    plan = plan_of(catalog, reserved(cloud))
    spec = spec_of(reserved(cloud))
    check(build_stack(spec, find(catalog, reserved(cloud), 0), spec.name).graph)
    name, inputs = reservation_of(plan, cloud)
    [pool] = plan.solution.pools
    assert reserved_nodes(cloud, inputs) == pool.nodes
    if cloud == "aws":
        [template] = inputs_of(plan.graph, "LaunchTemplate").values()
        target = template["capacityReservationSpecification"][
            "capacityReservationTarget"
        ]
        assert target == {
            "capacityReservationId": {"$ref": name, "output": "id"}
        }
        zones = {inputs["availabilityZone"]}
        subnets = inputs_of(plan.graph, "Subnet")
        [group] = inputs_of(plan.graph, "Group").values()
        used = {
            subnets[subnet["$ref"]]["availabilityZone"]
            for subnet in group["vpcZoneIdentifiers"]
        }
    elif cloud == "gcp":
        [template] = inputs_of(plan.graph, "InstanceTemplate").values()
        affinity = template["reservationAffinity"]["specificReservation"]
        assert affinity["values"] == [{"$ref": name, "output": "name"}]
        zones = {inputs["zone"]}
        [group] = inputs_of(plan.graph, "InstanceGroupManager").values()
        used = {group["zone"]}
    else:
        [group] = inputs_of(plan.graph, "VirtualMachineScaleSet").values()
        profile = group["virtualMachineProfile"]["capacityReservation"]
        [parent] = inputs_of(plan.graph, "CapacityReservationGroup")
        assert profile["capacityReservationGroup"]["id"]["$ref"] == parent
        assert inputs["capacityReservationGroupName"]["$ref"] == parent
        zones, used = set(inputs["zones"]), set(group["zones"])
        [machines] = [
            r
            for r in plan.graph.resources
            if "virtualMachineProfile" in r.inputs
        ]
        # They name only its group, so nothing else would let them wait for it.
        assert name in machines.depends_on
    assert zones == used
    assert len(zones) == 1


@pytest.mark.parametrize("cloud", clouds())
def test_the_simulated_cloud_bills_machines_once(
    catalog, here: Path, cloud: str
) -> None:
    """What is reserved counts against capacity, and its machines do not once more."""
    plan = plan_of(catalog, reserved(cloud))
    [pool] = plan.solution.pools
    world = world_of(f"capacity: [{{nodes: {pool.nodes}}}]\nproject: mine")
    engine = SimulatedEngine(world, here / "clouds")
    engine.apply(plan, quiet)
    shared = engine.shared_world
    memory = shared.view().memory
    assert sum(h.nodes for h in memory.history.values()) == pool.nodes
    begin = memory.seconds
    advance(shared, 7 * SECONDS_PER_DAY)
    memory = shared.view().memory
    [machines] = [
        line
        for line in metered_lines(memory, catalog, begin, memory.seconds)
        if line.kind == "accelerators"
    ]
    assert machines.usd == pytest.approx(
        7 * 24 * pool.nodes * pool.usd_per_hour, rel=Decimal("0.0001")
    )
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}
    assert usd_hour_now(shared.view().memory, catalog) == 0


@pytest.mark.parametrize("cloud", clouds())
def test_what_a_cloud_does_not_have_is_refused_before_there_are_machines(
    catalog, here: Path, cloud: str
) -> None:
    plan = plan_of(catalog, reserved(cloud))
    [pool] = plan.solution.pools
    world = world_of(f"capacity: [{{nodes: {pool.nodes - 1}}}]\nproject: mine")
    engine = SimulatedEngine(world, here / "clouds")
    with pytest.raises(CapacityError):
        engine.apply(plan, quiet)
    name, _ = reservation_of(plan, cloud)
    names = {made["name"] for made in objects(engine).values()}
    assert name not in names
    assert not any(made.endswith("-nodes") for made in names)


@pytest.mark.parametrize("cloud", clouds())
def test_other_machines_are_reserved_before_the_old_ones_are_given_back(
    catalog, here: Path, cloud: str
) -> None:
    plan = plan_of(catalog, reserved(cloud))
    [pool] = plan.solution.pools
    others = only(
        catalog,
        lambda offer: offer.instance.instance_type != pool.instance_type,
    )
    moved = plan_of(others, reserved(cloud, f", regions: [{pool.region}]"))
    engine = SimulatedEngine(world_of("project: mine"), here / "clouds")
    engine.apply(plan, quiet)
    engine.apply(moved, quiet)
    assert len(objects(engine)) == len(moved.graph.resources)
    name, inputs = reservation_of(moved, cloud)
    histories = [
        history
        for history in engine.shared_world.view().memory.history.values()
        if history.name == name
    ]
    old, new = sorted(histories, key=lambda history: history.second)
    assert new.second <= present(old.until)
    assert reserved_nodes(cloud, new.inputs) == reserved_nodes(cloud, inputs)


def test_what_is_reserved_costs_also_while_nothing_runs(catalog) -> None:
    """So to stop the machines of a stack saves nothing of it."""
    plan = plan_of(catalog, reserved("aws"))
    machines_usd = sum(
        (
            present(line.usd)
            for line in plan.cost.lines
            if line.kind == "accelerators"
        ),
        Decimal(0),
    )
    facts = StackFacts.of(plan)
    assert present(facts.standing_usd_month) >= machines_usd
    [pool] = facts.pools
    assert [part.running_usd_hour for part in pool.purchases] == [0]


def test_what_a_cloud_does_not_reserve_is_not_planned(catalog) -> None:
    machine = "Standard_NC40ads_H100_v5"
    few = only(catalog, lambda offer: offer.instance.instance_type == machine)
    assert not find(few, reserved("azure"), keep=0).pools
    free = reserved("azure").replace("buy: {reserve: true}", "")
    assert find(few, free, keep=0).pools


LARGE = """
apiVersion: tonnage/v1
kind: Inference
name: large
model: {name: llama-3.1-405b, precision: bf16}
sla: {ttft_p95: 20s}
traffic: {peak_rps: 1, input_tokens: {mean: 900}, output_tokens: {mean: 200}}
update: recreate
buy: {reserve: true}
where: {clouds: [CLOUD], accelerators: {allow: [h100-sxm]}}
"""


def test_machines_that_work_together_are_reserved_close_to_each_other(
    catalog, here: Path
) -> None:
    plan = plan_of(catalog, LARGE.replace("CLOUD", "aws"))
    [pool] = plan.solution.pools
    assert pool.nodes > pool.replicas
    _, inputs = reservation_of(plan, "aws")
    [together] = inputs_of(plan.graph, "PlacementGroup")
    [group] = inputs_of(plan.graph, "Group").values()
    assert inputs["placementGroupArn"]["$ref"] == together
    assert group["placementGroup"]["$ref"] == together
    engine = SimulatedEngine(world_of("project: mine"), here / "clouds")
    engine.apply(plan, quiet)
    engine.destroy("large", quiet, EVERYTHING)
    assert objects(engine) == {}


def test_what_does_not_keep_them_close_is_not_planned(catalog) -> None:
    text = LARGE.replace("CLOUD", "gcp")
    assert not find(catalog, text, keep=0).pools
    free = text.replace("buy: {reserve: true}", "")
    [pool] = find(catalog, free, keep=0).pools
    assert pool.nodes > pool.replicas


def test_a_rule_on_reservations_refuses_what_may_be_bought_otherwise(
    catalog,
) -> None:
    known = {r.id for r in rules().values() if r.phase == "reservation"}
    broken = {
        rule.id
        for offer in catalog.offers
        if unsupported_reason(offer.instance) is None
        for rule in rules_of("reservation", offer.provider)
        if rule.is_broken(asdict(offer.instance))
    }
    assert broken == known


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ("shutdown: {ttl: 2d}", "shutdown.ttl"),
        ("shutdown: {idle: 1h}", "shutdown.idle"),
        ("elastic: {least: 0.5}", "elastic"),
    ],
)
def test_what_ends_machines_excludes_a_reservation(
    extra: str, told: str
) -> None:
    with pytest.raises(SpecError, match=told):
        spec_of(reserved("aws") + extra + "\n")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("update: recreate", "update: rolling", "wants update: recreate"),
        ("update: recreate\n", "", "wants update: recreate"),
        ("reserve: true", "reserve: true, commit: 1y", "excludes"),
        ("reserve: true", "reserve: true, spot: only", "excludes"),
        (
            "ttft_p95: 2s",
            "survives: zone, ttft_p95: 2s",
            "survives: zone exclude",
        ),
    ],
)
def test_a_reservation_holds_no_more_than_its_machines(
    old: str, new: str, told: str
) -> None:
    with pytest.raises(SpecError, match=told):
        spec_of(reserved("aws").replace(old, new))


def test_a_job_reserves_nothing() -> None:
    text = """
apiVersion: tonnage/v1
kind: Training
name: tune
model: {name: llama-3.1-8b}
data: {location: s3://sets/chat, tokens: 20B, storage: object}
train: {method: finetune}
buy: {reserve: true}
"""
    with pytest.raises(SpecError, match="for a service"):
        spec_of(text)
