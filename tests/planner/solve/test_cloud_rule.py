"""What a cloud refuses is a rule of the search: the next fleet is taken, and it can be built."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from planner.errors import SpecError
from planner.facts import cloud_limit
from planner.sentence import describe
from planner.solve.cloud_rule import max_group_nodes, profile_count
from planner.solve.settings import SolveSettings
from planner.workload.solver import why_not
from stacks.build import build_stack
from stacks.spec.stack import derive_stack
from stacks.spec.table import unsupported_reason
from tests.conftest import chat, find, only, present, solve, spec_of

if TYPE_CHECKING:
    from planner.market.offer import Catalog
    from planner.solve.solution import Solution

# A load that changes in every hour, and differs from day to day.
RESTLESS = ", ".join(
    str(20 + 80 * (hour * 7 % 24) // 24 + hour // 24) for hour in range(168)
)
PROFILES = chat(
    model="llama-3.1-8b",
    traffic=f"peak_rps: 400\n  profile: [{RESTLESS}]",
    extra="shutdown: {idle: 30m}\n"
    "where: {accelerators: {allow: [h100-nvl, l40s, a10g]}}",
)
GROUP = chat(
    model="llama-3.1-70b",
    traffic="peak_rps: 8000",
    extra="where: {accelerators: {allow: [h100]}}",
)
WORKSPACES = """apiVersion: tonnage/v1
kind: Workspace
name: w
accelerator: {memory: 80GB, count: 8}
users: 150
"""
ZONE = """apiVersion: tonnage/v1
kind: Workspace
name: w
accelerator: {memory: 20GiB}
users: 20
shutdown: {schedule: "weekdays 08:00-18:00 Asia/Kathmandu"}
"""
TRAINING = """apiVersion: tonnage/v1
kind: Training
name: t
model: {name: llama-3.1-405b}
data: {tokens: 1T, location: "s3://bucket/data"}
train: {method: pretrain, deadline: 90d, sequence: 8k, global_batch: 16M}
where: {accelerators: {allow: [h100]}}
buy: {spot: never}
"""


def cheap_azure(catalog: Catalog, machines: str = "") -> Catalog:
    """The catalog in which nothing is as cheap as the machines of Azure."""
    kept = only(
        catalog,
        lambda o: (
            o.provider != "azure" or o.instance.fabric == machines
            if machines
            else True
        ),
    )
    return replace(
        kept,
        offers=tuple(
            replace(o, usd_hour=o.usd_hour / 20) if o.provider == "azure" else o
            for o in kept.offers
        ),
    )


def without_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_limit, "_limits", dict)
    monkeypatch.setattr(cloud_limit, "_timezones", dict)


def chosen_cloud(solution: Solution) -> str:
    return solution.pools[0].instance.provider


@pytest.mark.parametrize(
    ("text", "machines"),
    [
        (PROFILES, ""),
        (GROUP, "infiniband"),
        (WORKSPACES, "infiniband"),
        (ZONE, ""),
        (TRAINING, "infiniband"),
    ],
    ids=["profiles", "group", "workspaces", "time zone", "training"],
)
def test_the_next_fleet_is_taken_where_a_cloud_refuses_the_cheapest(
    catalog, monkeypatch, text: str, machines: str
) -> None:
    cheap = cheap_azure(catalog, machines)
    solution = find(cheap, text)
    assert solution.status != "infeasible"
    build_stack(spec_of(text), solution, "stack")
    with monkeypatch.context() as patch:
        without_limits(patch)
        # Another catalog: a module is answered once for each.
        refused = find(cheap_azure(catalog, machines), text)
    assert chosen_cloud(refused) == "azure"
    assert (refused.pools[0].instance, refused.pools[0].nodes) != (
        solution.pools[0].instance,
        solution.pools[0].nodes,
    )
    assert present(refused.bill).total < present(solution.bill).total
    # The stack reads the same rows: it would have refused what the search left out.
    with pytest.raises(SpecError, match=r"Azure|InfiniBand"):
        build_stack(spec_of(text), refused, "stack")


@pytest.mark.parametrize(
    ("text", "machine", "why"),
    [
        (GROUP, "Standard_ND96isr_H100_v5", "the fabric joins"),
        (WORKSPACES, "Standard_ND96isr_H100_v5", "150 machines of 100"),
        (ZONE, "Standard_NC24ads_A100_v4", "excluded by shutdown.schedule"),
    ],
    ids=["group", "workspaces", "time zone"],
)
def test_a_refused_machine_says_what_its_cloud_refuses(
    catalog, text: str, machine: str, why: str
) -> None:
    settings = SolveSettings(
        catalog=cheap_azure(catalog),
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
    )
    [answer] = why_not(spec_of(text), settings, machine)
    assert why in describe(present(answer.reason))


@pytest.mark.parametrize(
    "shutdown", ["", "idle: 30m", "ttl: 9d", "idle: 30m, ttl: 9d"]
)
@pytest.mark.parametrize("profile", ["flat", "business-hours"])
def test_profiles_are_counted_as_they_are_built(
    catalog, shutdown: str, profile: str
) -> None:
    text = chat(
        model="llama-3.1-8b",
        traffic=f"peak_rps: 300\n  profile: {profile}",
        extra=f"where: {{clouds: [azure]}}\nshutdown: {{{shutdown}}}",
    )
    solution = solve(catalog, text)
    spec = spec_of(text)
    [(_, group)] = derive_stack(spec, solution, "stack").scaling_groups
    built = [
        len(resource.inputs["profiles"])
        for resource in build_stack(spec, solution, "stack").graph.resources
        if resource.type.endswith(":AutoscaleSetting")
    ]
    changes = group.capacity_changes
    assert bool(changes) == (profile == "business-hours")
    # Without a change and a deadline there is no setting, and nothing to count.
    assert (built or [1]) == [profile_count("azure", changes, spec.shutdown)]


def test_fabrics_that_join_no_more_machines_are_known(catalog) -> None:
    limits = {("azure", "infiniband"): 100, ("gcp", "tcpx"): 1}
    for offer in catalog.offers:
        fabric = offer.provider, offer.instance.fabric
        joined = max_group_nodes(offer.instance, spans_nodes=True)
        assert joined == limits.get(fabric)


def test_machines_whose_fabric_joins_none_work_each_for_itself(
    catalog,
) -> None:
    """No public image has the fabric of these machines, so that nothing spans two of them."""
    own = only(catalog, lambda o: o.instance.instance_type == "a3-highgpu-8g")
    job = TRAINING.replace("deadline: 90d", "deadline: 9d")
    refused = find(own, job)
    assert refused.status == "infeasible"
    [pool] = find(own, chat(model="llama-3.1-8b")).pools
    assert pool.nodes_per_group == 1
    settings = SolveSettings(
        catalog=own,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
    )
    [answer] = why_not(spec_of(job), settings, "a3-highgpu-8g")
    assert "machines of 1 that the fabric joins" in describe(
        present(answer.reason)
    )
    too_large = chat(model="llama-3.1-405b", precision="bf16")
    assert find(own, too_large).status == "infeasible"


def test_training_stands_by_within_the_group(catalog) -> None:
    """Machines that work and machines that stand by are joined by the same fabric."""
    solution = find(cheap_azure(catalog, "infiniband"), TRAINING)
    [pool] = solution.pools
    limit = max_group_nodes(pool.instance, spans_nodes=True)
    assert limit is None or pool.nodes <= limit
