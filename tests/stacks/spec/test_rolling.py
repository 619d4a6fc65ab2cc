"""How clouds bring a new template to running machines."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from planner.facts.cloud import clouds
from stacks.build import build_stack
from stacks.engine.rolling import is_machine_group
from stacks.graph import ref
from stacks.spec.rolling import Work, rolling_rule, work_of
from tests.conftest import chat, find, present, spec_of

RULES = [
    (cloud, work)
    for cloud in clouds()
    for work in get_args(Work)
    # Azure makes the group anew, where it does not roll.
    if cloud != "azure" or work == "service"
]


@pytest.mark.parametrize(("cloud", "work"), RULES)
@pytest.mark.parametrize("nodes", [1, 2, 3, 7, 100])
def test_no_more_machines_are_away_than_there_are(cloud, work, nodes) -> None:
    rule = present(rolling_rule(cloud, work))
    assert 0 <= rule.nodes_away(nodes) <= nodes
    everything = replace(rule, nodes_at_once=1000)
    assert everything.nodes_away(nodes) == nodes


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_a_service_loses_none_and_a_gang_begins_as_one(cloud) -> None:
    service = present(rolling_rule(cloud, "service"))
    assert (service.nodes_away(5), service.surge_nodes) == (0, 1)
    together = present(rolling_rule(cloud, "together"))
    assert (together.nodes_away(5), together.surge_nodes) == (5, 0)


@pytest.mark.parametrize(
    ("role", "spans_nodes", "recreates", "work"),
    [
        ("serve", False, False, "service"),
        ("serve", True, False, "together"),
        ("serve", False, True, "together"),
        ("train", False, False, "together"),
        ("batch", False, False, "other"),
        ("workspace", False, False, "other"),
    ],
)
def test_what_a_roll_minds(role, spans_nodes, recreates, work) -> None:
    found = work_of(role, spans_nodes=spans_nodes, recreates=recreates)
    assert found == work


def group_of(catalog: Any, cloud: str, rps: int, update: str = "") -> Any:
    text = chat(
        traffic=f"peak_rps: {rps}",
        extra=f"where: {{clouds: [{cloud}]}}\n{update}",
    )
    spec = spec_of(text)
    solution = find(catalog, text, keep=0)
    graph = build_stack(spec, solution, spec.name).graph
    [group] = [
        resource.inputs
        for resource in graph.resources
        if is_machine_group(resource.name)
    ]
    return group, solution.pools[0]


@pytest.mark.parametrize("rps", [1, 40])
def test_aws_launches_one_machine_before_it_ends_one(catalog, rps) -> None:
    group, pool = group_of(catalog, "aws", rps)
    found = group["instanceRefresh"]["preferences"]
    assert found["minHealthyPercentage"] == 100
    beyond = found["maxHealthyPercentage"] - 100
    # AWS takes at most twice as many, and rounds machines up from the percentage.
    assert 0 < beyond <= 100
    assert math.floor(pool.nodes * beyond / 100 + 1e-9) >= 1
    assert float(found["instanceWarmup"]) >= pool.startup_s > 0
    # A refresh that fails ends. It may not go back to an image that is a parameter.
    [alarm] = found["alarmSpecification"]["alarms"]
    assert alarm
    assert "autoRollback" not in found


@pytest.mark.parametrize("rps", [1, 40])
def test_google_waits_until_a_new_machine_answers(catalog, rps) -> None:
    group, pool = group_of(catalog, "gcp", rps)
    policy = group["updatePolicy"]
    assert (policy["maxSurgeFixed"], policy["maxUnavailableFixed"]) == (1, 0)
    # It is ready when it answers, and made anew when it never does.
    healing = group["autoHealingPolicies"]
    assert healing["healthCheck"] == ref("repair-health")
    assert pool.startup_s <= healing["initialDelaySec"] <= 3600
    assert "minReadySec" not in policy
    # Google Cloud keeps names of machines only where none comes before another goes.
    assert policy["replacementMethod"] == "SUBSTITUTE"


@pytest.mark.parametrize("rps", [1, 40])
def test_azure_waits_until_the_agent_of_a_new_machine_says_that_it_is_well(
    catalog, rps
) -> None:
    group, pool = group_of(catalog, "azure", rps)
    policy = group["upgradePolicy"]["rollingUpgradePolicy"]
    assert (group["upgradePolicy"]["mode"], policy["maxSurge"]) == (
        "Rolling",
        True,
    )
    # Bounds of the API.
    assert 5 <= policy["maxBatchInstancePercent"] <= 100
    assert (
        policy["maxBatchInstancePercent"]
        <= policy["maxUnhealthyInstancePercent"]
        <= 100
    )
    assert policy["maxUnhealthyUpgradedInstancePercent"] == 0
    profile = group["virtualMachineProfile"]
    [extension] = profile["extensionProfile"]["extensions"]
    # The version that knows machines which are still starting.
    assert extension["typeHandlerVersion"] == "2.0"
    settings = extension["settings"]
    assert pool.startup_s <= settings["gracePeriod"] <= 14_400


def test_azure_asks_no_machine_that_it_does_not_roll(catalog) -> None:
    group, _ = group_of(catalog, "azure", 300, "update: recreate\n")
    assert group["upgradePolicy"] == {"mode": "Manual"}
    assert "extensionProfile" not in group["virtualMachineProfile"]


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_recreate_takes_all_at_once(catalog, cloud) -> None:
    group, pool = group_of(catalog, cloud, 300, "update: recreate\n")
    if cloud == "aws":
        found = group["instanceRefresh"]["preferences"]
        assert found["minHealthyPercentage"] == 0
        assert "maxHealthyPercentage" not in found
    else:
        policy = group["updatePolicy"]
        assert policy["maxUnavailableFixed"] == pool.nodes > 1
        assert policy["maxSurgeFixed"] == 0
