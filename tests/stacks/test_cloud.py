"""Clouds, runtimes and engines keep their protocols; a fourth cloud takes two rooms and a row."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

import providers
import stacks
from planner.facts.cloud import CloudFacts, clouds
from planner.plan.graph import referenced_names
from planner.spec.stack_name import STACK_NAME
from providers import registry as provider_registry
from providers.resource_type import name_rules
from providers.simulated import world
from stacks import registry
from stacks.build import build_stack
from stacks.cloud import group_outputs
from stacks.engine.protocol import StackEngine
from stacks.engine.pulumi.engine import PulumiEngine
from stacks.engine.simulated import SimulatedEngine
from stacks.spec.stack import derive_stack
from stacks.user_data import NodeBoot
from tests.conftest import BLUEPRINTS, ROOT, find, spec_of
from tests.oracles import schema
from tests.stacks.engine.test_simulated import objects, plan_of, quiet
from tests.stacks.test_build_cases import CASES, case_name

FOURTH = ROOT / "tests" / "stacks" / "fourth_cloud"
SPEC = """apiVersion: tonnage/v1
kind: Inference
name: chat
model: {name: llama-3.1-8b, precision: fp8, context: 8k}
sla: {ttft_p95: 2s, tpot_p95: 80ms}
traffic:
  peak_rps: 1
  input_tokens: {mean: 800}
  output_tokens: {mean: 200}
where: {clouds: [CLOUD]}
shutdown: {idle: 30m, ttl: 72h}
"""
TAGGED = ("tags", "labels", "userLabels")
# Rules are found, and paid for, with the group that they belong to.
UNTAGGED = {
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
}


@pytest.mark.parametrize("name", sorted(clouds()))
@pytest.mark.parametrize("kind", ["inference", "training"])
def test_every_cloud_keeps_its_protocol(catalog, name: str, kind: str) -> None:
    text = SPEC.replace("CLOUD", name)
    if kind == "training":
        blueprint = next(b for b in BLUEPRINTS if b.stem == "pretrain-7b")
        text = blueprint.read_text() + f"where: {{clouds: [{name}]}}\n"
    spec = spec_of(text)
    stack = derive_stack(spec, find(catalog, text, keep=0), spec.name)
    cloud = registry.cloud(name)
    assert cloud.name == name
    boots = {
        group.name: NodeBoot("#!/bin/bash\n")
        for _, group in stack.scaling_groups
    }
    found = cloud.resources(stack, boots)
    names = [resource.name for resource in found]
    assert len(names) == len(set(names))
    for resource in found:
        assert set(referenced_names(resource.inputs)) <= set(names)
        assert set(resource.depends_on) <= set(names)
        assert resource.type.startswith(f"{clouds()[name].package}:")
        for key in TAGGED:
            # Of a metric they are the names of its dimensions.
            if resource.type.endswith(":MetricDescriptor"):
                continue
            shown = json.dumps(resource.inputs.get(key, stack.name))
            assert stack.name in shown, resource.name
    untagged = {
        resource.type
        for resource in found
        if set(TAGGED) & schema.outputs(resource.type)
        and not set(TAGGED) & set(resource.inputs)
    }
    assert untagged <= UNTAGGED
    outputs = cloud.outputs(stack)
    assert group_outputs(stack).items() <= outputs.items()
    assert {output["$ref"] for output in outputs.values()} <= set(names)
    if stack.ttl_s or stack.changes_capacity:
        assert cloud.backstop(stack)
    for fleet, group in stack.scaling_groups:
        assert f"{group.name}-nodes" in names
        # What a node knows is written to a file.
        node_cloud = cloud.node_cloud(stack, fleet)
        assert json.dumps(node_cloud.settings)
        assert node_cloud.max_bytes > 10_000
        assert f"stacks.{name}.node" in node_cloud.modules
    assert provider_registry.provider(name).name == name


@pytest.mark.parametrize("path", CASES, ids=case_name)
def test_the_longest_names_are_allowed_and_their_own(
    path: Path, catalog
) -> None:
    """Two stacks whose names differ in the last of 40 letters share no name in an account."""
    text = path.read_text()
    spec = spec_of(text)
    solution = find(catalog, text, keep=0)
    names = []
    for last_letter in "ab":
        stack_name = (
            f"{'service-of-a-team-with-a-very-long-name-'[:39]}{last_letter}"
        )
        assert STACK_NAME.fullmatch(stack_name)
        found = set()
        for resource in build_stack(spec, solution, stack_name).graph.resources:
            for rule in name_rules().get(resource.type, ()):
                name = resource.inputs.get(rule.property)
                # What is filled at apply is not known here.
                if not isinstance(name, str) or "${" in name:
                    continue
                assert rule.refusal(name) is None, resource.name
                if rule.scope != "parent":
                    found.add((resource.type, name))
        names.append(found)
    assert names[0]
    assert names[0].isdisjoint(names[1])


@pytest.mark.parametrize("path", CASES, ids=case_name)
def test_nothing_has_one_name_in_two_regions(path: Path, catalog) -> None:
    """So a stack that moves stands in both of them for a while."""
    text = path.read_text()
    spec = spec_of(text)
    stack = derive_stack(spec, find(catalog, text, keep=0), spec.name)
    boots = {
        group.name: NodeBoot("#!/bin/bash\n")
        for _, group in stack.scaling_groups
    }
    here, there = (
        {
            (resource.type, rule.property, resource.inputs[rule.property])
            for resource in registry.cloud(stack.provider).resources(
                replace(stack, region=region), boots
            )
            for rule in name_rules().get(resource.type, ())
            if rule.scope in ("account", "global")
            and isinstance(resource.inputs.get(rule.property), str)
        }
        for region in (stack.region, "elsewhere-1")
    )
    assert here
    assert here.isdisjoint(there)


@pytest.mark.parametrize("name", registry.RUNTIMES)
@pytest.mark.parametrize("cloud_name", sorted(clouds()))
def test_every_runtime_keeps_its_protocol(
    catalog, name: str, cloud_name: str
) -> None:
    text = SPEC.replace("CLOUD", cloud_name)
    stack = derive_stack(spec_of(text), find(catalog, text, keep=0), "chat")
    runtime = registry.runtime(name)
    assert runtime.name == name
    cloud = registry.cloud(cloud_name)
    for fleet, group in stack.scaling_groups:
        node_cloud = cloud.node_cloud(stack, fleet)
        boots = [
            runtime.node_boot(
                stack,
                fleet,
                group,
                node_cloud._replace(max_bytes=max_bytes),
            )
            for max_bytes in (node_cloud.max_bytes, 16_384, 1_000_000)
        ]
        for boot in boots:
            assert boot.script.startswith("#!/bin/bash\n")
            assert bool(boot.program_key) == bool(boot.program_text)
        assert len(boots[0].script.encode()) <= node_cloud.max_bytes
        assert len(boots[1].script.encode()) <= 16_384
        assert not boots[2].program_key
    assert runtime.launch(stack) is None


ENGINES: tuple[type[StackEngine], ...] = (SimulatedEngine, PulumiEngine)
ENGINE_METHODS = {
    "apply",
    "destroy",
    "drift",
    "object_ids",
    "preflight",
    "preview",
    "stack_names",
    "recover",
    "rename",
    "simulated_world",
    "stack_status",
    "take_over",
    "unlock",
}


@pytest.mark.parametrize("engine_type", ENGINES)
@pytest.mark.parametrize("method", sorted(ENGINE_METHODS))
def test_engines_keep_the_protocol(
    engine_type: type[StackEngine], method: str
) -> None:
    """Also without the pulumi extra: what it needs is imported when it runs."""
    promised = inspect.signature(getattr(StackEngine, method))
    assert inspect.signature(getattr(engine_type, method)) == promised


def test_the_protocol_of_engines_has_no_other_methods() -> None:
    methods = {name for name in vars(StackEngine) if name[0] != "_"}
    assert methods == ENGINE_METHODS


@pytest.fixture
def nimbus(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Register a fourth cloud: a row of the table, and its two rooms."""
    row = CloudFacts(
        cloud="nimbus",
        title="Nimbus",
        package="nimbus",
        region_property="region",
        url_schemes=("shelf",),
        mixes_on_fabric=True,
        spread_zones=1,
        zones_together=False,
        state_scheme="nim",
        secret_form="NAME",
        door="loopback",
        network_form="nest-[0-9]+",
        subnet_place="region",
        certificate_form="(?!)",
        account_form="[0-9]+",
        key_form="(?!)",
        vault_key_form="(?!)",
        block_form="(?!)",
        dashboard_page="https://nimbus.example.com/{name}",
        way_out="region",
        reservation_form="nests-[0-9]+",
        capacity_code="NO_BIRDS",
        quota_code="TOO_MANY_BIRDS",
        source="this test",
        as_of="2026-11",
    )
    monkeypatch.setitem(clouds(), "nimbus", row)
    for package in (providers, stacks):
        room = str(FOURTH / package.__name__)
        monkeypatch.setattr(package, "__path__", [*package.__path__, room])
    yield "nimbus"
    registry.cloud.cache_clear()
    provider_registry.provider.cache_clear()
    for module in [m for m in sys.modules if ".nimbus" in m]:
        monkeypatch.delitem(sys.modules, module)


def test_a_fourth_cloud_is_planned_applied_and_destroyed(
    catalog, here, nimbus
) -> None:
    """Its machines are those of another cloud under its own name; no product file knows it."""
    text = SPEC.replace("where: {clouds: [CLOUD]}\n", "")
    rented = tuple(
        replace(
            offer,
            region="cumulus-1",
            zones=("cumulus-1a",),
            instance=replace(offer.instance, provider=nimbus),
        )
        for offer in catalog.offers
        if offer.instance.instance_type == "g2-standard-4"
        and offer.purchase == "on_demand"
    )[:1]
    sky = replace(catalog, offers=rented, unlisted=(), unpriced=())
    plan = plan_of(sky, text)
    assert plan.solution.pools[0].provider == nimbus
    assert plan.cost.is_partial  # nobody sells disks or networks there yet
    assert plan.shutdown.backstop == "the flock ends at its deadline"
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    engine.apply(plan, quiet)
    assert len(objects(engine)) == 3
    flock = next(
        o for o in objects(engine).values() if o["type"].endswith("Flock")
    )
    assert "$" not in flock["inputs"]["deadline"]
    assert engine.apply(plan, quiet).steps == ()
    engine.destroy("chat", quiet)
    assert objects(engine) == {}


def test_no_file_but_the_table_and_its_rooms_names_a_cloud() -> None:
    """The names as values: sentences and addresses may contain them."""
    strays = []
    for package in ("planner", "providers", "stacks"):
        for path in (ROOT / package).rglob("*.py"):
            if set(clouds()) & set(path.parts):
                continue
            strays += [
                f"{path.relative_to(ROOT)}:{node.lineno}"
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Constant) and node.value in clouds()
            ]
    assert strays == []


def test_the_graph_of_a_stack_is_that_of_its_cloud_and_runtime(catalog) -> None:
    text = SPEC.replace("CLOUD", "aws")
    spec = spec_of(text)
    solution = find(catalog, text, keep=0)
    built = build_stack(spec, solution, "chat")
    stack = derive_stack(spec, solution, "chat")
    cloud = registry.cloud("aws")
    runtime = registry.runtime("vm")
    boots = {
        group.name: runtime.node_boot(
            stack, fleet, group, cloud.node_cloud(stack, fleet)
        )
        for fleet, group in stack.scaling_groups
    }
    names = {resource.name for resource in cloud.resources(stack, boots)}
    assert {resource.name for resource in built.graph.resources} == names
