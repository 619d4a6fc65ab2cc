"""What a process was asked before changes how long an answer takes, and no byte of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.cost.service_price import PriceBook
from planner.perf.common.layout import ReplicaLayout
from planner.plan.canonical import dump_plan
from planner.plan.document import PlannedStack, SpecSource, assemble
from planner.solve.serving.requirement import serving_requirement
from planner.solve.serving.search import ServingSearch
from planner.solve.settings import Memory, SolveSettings
from planner.spec.model import Inference
from planner.workload.solver import solve
from stacks.build import planned_stack
from stacks.spec.table import unsupported_reason
from tests.conftest import chat, spec_of
from tests.planner.perf.test_serving import node

if TYPE_CHECKING:
    from planner.market.offer import Catalog


def large_chat(extra: str = "", profile: str = "business-hours") -> str:
    """Machines that are a little too slow for it cost less than those that are chosen."""
    return chat(
        "llama-3.3-70b",
        "[fp8, bf16]",
        sla="ttft_p95: 2s, tpot_p95: 60ms",
        traffic=f"peak_rps: 4\n  profile: {profile}",
        extra=extra,
    )


# Of one load and the same limits, so that replicas are judged by the same simulated runs.
SPECS = (
    large_chat(),
    large_chat("buy: {commit: [none, 1y, 3y]}"),
    large_chat("buy: {on_demand_base: 50%}"),
    large_chat("where: {clouds: [azure]}"),
    large_chat(profile="flat"),
)


def document(catalog: Catalog, text: str, memory: Memory) -> str:
    """The plan of a spec as it is written, with all that it names beside its fleet."""
    spec = spec_of(text)
    solution = solve(
        spec,
        SolveSettings(
            catalog=catalog,
            unbuilt_reason=unsupported_reason,
            read_file=lambda _: b"",
            memory=memory,
        ),
    )
    return dump_plan(
        assemble(
            spec,
            solution,
            catalog,
            source=SpecSource("spec.yaml", "0" * 64),
            stack=planned_stack(spec, solution, PlannedStack(name=spec.name)),
        )
    )


def test_a_plan_does_not_hang_on_what_was_planned_before(
    catalog: Catalog,
) -> None:
    """Of any two of the specs each comes first once."""
    forth, back = Memory(), Memory()
    plans = [document(catalog, text, forth) for text in SPECS]
    for text, plan in zip(SPECS[::-1], plans[::-1], strict=True):
        assert document(catalog, text, back) == plan


def test_a_replica_over_machines_knows_how_many_share_their_network() -> None:
    """Eight and four accelerators a machine, behind as much network."""
    spec = spec_of(large_chat())
    assert isinstance(spec, Inference)
    requirement = serving_requirement(spec, lambda _: b"")
    layout = ReplicaLayout(precision="fp8", kv_precision="bf16", tp=16)
    asked_before = ServingSearch(PriceBook({}))
    for accelerators_each in (8, 4):
        machine = node("h100-sxm", accelerators_each)
        fresh = ServingSearch(PriceBook({}))
        assert (
            asked_before.shared_replica(requirement, layout, machine).step_times
            == fresh.shared_replica(requirement, layout, machine).step_times
        )
