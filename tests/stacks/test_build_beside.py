"""Machines of several services, as three clouds build them from a plan."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from planner.errors import UsageError
from planner.plan.canonical import dump_plan, parse_plan
from planner.plan.document import PlannedStack, SpecSource, assemble
from planner.plan.status import StackFacts, StackStatus
from planner.plan.types import Plan
from planner.solve.settings import SolveSettings
from planner.solve.solution import Solution
from planner.workload.solver import find as find_fleet
from providers.catalog.load import load_catalog
from stacks import registry
from stacks.build import build_stack, planned_stack
from stacks.graph import Graph
from stacks.operate.standing import upload_of
from stacks.runtime.vm.boot import node_settings
from stacks.spec.stack import derive_stack
from stacks.spec.table import unsupported_reason
from tests.conftest import chat, only, present, spec_of
from tests.stacks.test_build import check

MACHINES = {
    "aws": "g6.xlarge",
    "gcp": "g2-standard-4",
    "azure": "Standard_NC24ads_A100_v4",
}
NEIGHBORS = {
    "rerank.yaml": chat("llama-3.2-1b", traffic="peak_rps: 0.2").replace(
        "name: chat", "name: rerank"
    ),
    "embed.yaml": chat("qwen2.5-3b", traffic="peak_rps: 0.2", extra="")
    .replace("name: chat", "name: embed")
    .replace("name: qwen2.5-3b", "name: Qwen/Qwen2.5-3B, weights: hf"),
}
KEY = {
    "aws": "secret://key",
    "gcp": "secret://key",
    "azure": "secret://vault/key",
}


def text_of(cloud: str) -> str:
    return chat(
        "llama-3.2-3b",
        traffic="peak_rps: 0.2",
        extra="serving: {beside: [rerank.yaml, embed.yaml]}\n"
        f"where: {{clouds: [{cloud}]}}\nbuy: {{spot: never}}\n"
        f"endpoint: {{api_key: '{KEY[cloud]}'}}",
    )


@cache
def solution_of(cloud: str) -> Solution:
    catalog = only(
        load_catalog(None),
        lambda o: o.instance.instance_type == MACHINES[cloud],
    )
    return find_fleet(
        spec_of(text_of(cloud)),
        SolveSettings(
            catalog=catalog,
            unbuilt_reason=unsupported_reason,
            read_file=lambda name: NEIGHBORS[name].encode(),
            alternative_count=0,
        ),
    )


def graph_of(cloud: str) -> Graph:
    return build_stack(
        spec_of(text_of(cloud)), solution_of(cloud), "chat"
    ).graph


def work_of(cloud: str) -> dict[str, Any]:
    stack = derive_stack(spec_of(text_of(cloud)), solution_of(cloud), "chat")
    [(fleet, group)] = stack.scaling_groups
    node_cloud = registry.cloud(cloud).node_cloud(stack, fleet)
    work: dict[str, Any] = node_settings(
        stack, fleet, group, node_cloud.settings
    )["work"]
    return work


def word(words: list[str], name: str) -> str:
    [found] = [each for each in words if each.startswith(f"{name}=")]
    return found.partition("=")[2]


@pytest.mark.parametrize("cloud", MACHINES)
def test_each_cloud_builds_one_group_for_all_services(cloud: str) -> None:
    graph = graph_of(cloud)
    check(graph)
    alone = build_stack(
        spec_of(text_of(cloud).replace("serving: {beside", "# {beside")),
        solution_of(cloud),
        "chat",
    ).graph
    kinds = sorted(resource.type for resource in graph.resources)
    assert kinds == sorted(resource.type for resource in alone.resources)


@pytest.mark.parametrize("cloud", MACHINES)
def test_each_engine_has_a_port_a_model_and_its_share(cloud: str) -> None:
    work = work_of(cloud)
    engines = [work, *work["beside"]]
    ports = [engine["port"] for engine in engines]
    assert ports == [8001, 8002, 8003]
    assert [word(e["words"], "--port") for e in engines] == list(
        map(str, ports)
    )
    names = [word(e["words"], "--served-model-name") for e in engines]
    assert names == ["llama-3.2-3b", "llama-3.2-1b", "qwen2.5-3b"]
    assert work["router"]["beside"] == {"rerank": 8002, "embed": 8003}
    shares = [
        float(word(e["words"], "--gpu-memory-utilization")) for e in engines
    ]
    if "slices" in work:
        assert [each["start"] for each in work["slices"]]
        assert set(shares) == {shares[0]}
    else:
        assert sum(shares) < 0.92
    # Each has the weights of its own model.
    assert "upload" in engines[0]
    assert engines[1]["upload"]["prefix"] == "models/llama-3.2-1b/"
    assert engines[2]["hub"]["repository"] == "Qwen/Qwen2.5-3B"
    # Every engine asks for the key of clients.
    assert work["api_key"]
    keyed = [str(each["container"]["lead"]) for each in engines]
    assert len({"VLLM_API_KEY" in lead for lead in keyed}) == 1


def plan_of_all(cloud: str) -> Plan:
    """The plan of a service with its neighbors, written and read back."""
    spec, solution = spec_of(text_of(cloud)), solution_of(cloud)
    plan = assemble(
        spec,
        solution,
        load_catalog(None),
        source=SpecSource("spec.yaml", "0" * 64),
        stack=planned_stack(spec, solution, PlannedStack(name="chat")),
    )
    return parse_plan(dump_plan(plan).encode(), "p.json")


def status_of(cloud: str) -> StackStatus:
    plan = plan_of_all(cloud)
    return StackStatus(
        stack="chat",
        plan=plan.digest,
        state_sha256="",
        complete=True,
        operation="applied",
        resources=(),
        outputs={},
        facts=StackFacts.of(plan),
    )


def test_weights_of_each_service_go_to_a_folder_of_its_own() -> None:
    status = status_of("aws")
    assert upload_of(status).prefix == "models/llama-3.2-3b/"
    assert upload_of(status, "rerank").prefix == "models/llama-3.2-1b/"
    with pytest.raises(UsageError, match="no upload of embed"):
        upload_of(status, "embed")
    with pytest.raises(UsageError, match="no service rerun"):
        upload_of(status, "rerun")


def test_the_document_names_the_services_and_their_parts() -> None:
    facts = present(status_of("aws").facts)
    [pool] = facts.pools
    assert [each.path for each in pool.shared_services] == [
        "/v1/",
        "/rerank/v1/",
        "/embed/v1/",
    ]
    assert {each.device_layout for each in pool.shared_services} == {"time"}
    assert {each.speed_share for each in pool.shared_services} == {0.333333}
    assert all(each.verified for each in pool.shared_services)
