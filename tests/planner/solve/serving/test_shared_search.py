"""Several services on one accelerator: what is found, against every division of the memory."""

from __future__ import annotations

import itertools
from decimal import Decimal
from functools import cache

import pytest
from msgspec.structs import replace

from planner.facts.mig import chip_profiles, placed
from planner.perf.common.constant import constant
from planner.perf.common.device_part import slice_part, time_part
from planner.solve.serving.neighbor import (
    alone_requirements,
    machine_requirement,
    with_confidence,
)
from planner.solve.serving.requirement import ServingRequirement
from planner.solve.serving.search import ServingSearch
from planner.solve.serving.shared_answer import told_share
from planner.solve.serving.shared_search import MEMORY_STEPS, SharedSearch
from planner.solve.serving.sizing import ONE_NODE, FleetSizing, size_fleet
from planner.solve.settings import (
    DEFAULT_CONFIDENCE,
    SolveSettings,
)
from planner.solve.solution import Solution
from planner.workload.solver import find as find_fleet
from providers.catalog.load import load_catalog
from stacks.spec.table import unsupported_reason
from tests.conftest import chat, only, present, spec_of

CATALOG = load_catalog(None)
LIMITS = "ttft_p95: 2s, tpot_p95: 100ms"


def service(name: str, model: str, rps: float, extra: str = "") -> str:
    return chat(
        model, sla=LIMITS, traffic=f"peak_rps: {rps}", extra=extra
    ).replace("name: chat", f"name: {name}")


def folder(rps: float, sla: str = LIMITS) -> dict[str, bytes]:
    return {
        "rerank.yaml": service("rerank", "llama-3.2-1b", rps)
        .replace(LIMITS, sla)
        .encode()
    }


def needed(
    rps: float = 0.2, beside_rps: float = 0.2, sla: str = LIMITS
) -> ServingRequirement:
    spec = spec_of(
        service(
            "small", "llama-3.2-3b", rps, "serving: {beside: [rerank.yaml]}"
        )
    )
    files = folder(beside_rps, sla)
    requirement = machine_requirement(spec, files.__getitem__)  # type: ignore[arg-type]
    return with_confidence(requirement, DEFAULT_CONFIDENCE)


@cache
def offers(*machine_types: str):
    return [
        offer
        for offer in CATALOG.offers
        if offer.instance.instance_type in machine_types
        and offer.purchase == "on_demand"
        and offer.region in ("us-east-1", "us-central1")
    ]


def cheapest(requirement: ServingRequirement, *machine_types: str):
    found = ServingSearch(CATALOG.price_book).solve(
        requirement, offers(*machine_types)
    )
    return found.best


def least_by_hand(requirement: ServingRequirement, machine_type: str) -> float:
    """The fewest machines over every division of the memory, by formulas alone."""
    [offer] = offers(machine_type)
    search = ServingSearch(CATALOG.price_book)
    services = [
        replace(requirement, beside=()),
        *(each.requirement for each in requirement.beside),
    ]
    node = offer.instance.node

    @cache
    def groups(number: int, steps: int) -> float:
        part = time_part(node, len(services), steps / MEMORY_STEPS)
        sizes = [
            fleet.peak_groups
            for replica, group, _ in search.node_options(
                services[number], part.node(node), 1, ONE_NODE
            )
            if replica.layout.accelerators == 1
            and isinstance(
                fleet := size_fleet(services[number], replica, group),
                FleetSizing,
            )
        ]
        return min(sizes, default=float("inf"))

    return min(
        max(groups(number, own) for number, own in enumerate(steps))
        for steps in itertools.product(
            range(1, MEMORY_STEPS), repeat=len(services)
        )
        if sum(steps) <= MEMORY_STEPS
    )


def unsimulated(requirement: ServingRequirement) -> ServingRequirement:
    return replace(
        requirement,
        limits=(),
        beside=tuple(
            replace(each, requirement=replace(each.requirement, limits=()))
            for each in requirement.beside
        ),
    )


@pytest.mark.parametrize("machine_type", ["g4dn.xlarge", "g6.xlarge"])
@pytest.mark.parametrize(("rps", "beside_rps"), [(0.2, 0.2), (6, 3), (1, 12)])
def test_no_division_of_the_memory_takes_fewer_machines(
    machine_type: str, rps: float, beside_rps: float
) -> None:
    requirement = unsimulated(needed(rps, beside_rps))
    found = cheapest(requirement, machine_type)
    by_hand = least_by_hand(requirement, machine_type)
    if by_hand == float("inf"):
        assert found is None
    else:
        assert present(found).sizing.peak_groups == by_hand


def test_all_engines_fit_into_the_memory_beside_each_other() -> None:
    best = present(cheapest(needed(), "g6.xlarge"))
    parts = [
        best.sizing.part,
        *(each.sizing.part for each in best.sizing.beside),
    ]
    memory_gib = best.offer.instance.node.memory_gib
    filled_gib = memory_gib * sum(
        told_share(sizing)
        for sizing in (
            best.sizing,
            *(each.sizing for each in best.sizing.beside),
        )
    )
    # Each process takes some for the driver beside what its engine counts.
    assert filled_gib + 2 * constant("engine_context_gib") <= memory_gib
    assert {present(part).speed_share for part in parts} == {0.5}
    [beside] = best.sizing.beside
    assert beside.sizing.peak_groups == best.sizing.peak_groups


def test_more_kinds_of_machines_never_cost_more() -> None:
    requirement = needed()
    few = present(cheapest(requirement, "g6.xlarge"))
    more = present(cheapest(requirement, "g6.xlarge", "g4dn.xlarge"))
    assert more.bill.total <= few.bill.total


def test_more_traffic_of_any_service_never_takes_fewer_machines() -> None:
    base = present(cheapest(needed(1, 1), "g6.xlarge")).sizing.peak_groups
    for busier in (needed(8, 1), needed(1, 30)):
        fleet = present(cheapest(busier, "g6.xlarge"))
        assert fleet.sizing.peak_groups >= base


def test_a_service_with_an_impossible_limit_stops_all() -> None:
    assert cheapest(needed(sla="tpot_p95: 1ms"), "g6.xlarge") is None


def test_a_machine_of_few_threads_has_no_room_for_many_engines() -> None:
    requirement = needed()
    # Four engines and the rest want five threads, and the machine has four.
    [neighbor] = requirement.beside
    crowded = replace(
        requirement,
        beside=tuple(replace(neighbor, name=f"n{n}") for n in range(3)),
    )
    assert cheapest(crowded, "g6.xlarge") is None
    assert cheapest(crowded, "g6.2xlarge") is not None


def test_slices_are_chosen_where_they_fit_together() -> None:
    """Of equal numbers of machines those come first whose engines are kept apart."""
    requirement = needed()
    offer = next(
        offer
        for offer in CATALOG.offers
        if offer.instance.instance_type == "a2-highgpu-1g"
        and offer.purchase == "on_demand"
    )
    search = ServingSearch(CATALOG.price_book)
    [best] = SharedSearch(requirement, search).cheapest([offer], 1)
    parts = [
        present(best.sizing.part),
        *(present(each.sizing.part) for each in best.sizing.beside),
    ]
    known = {
        profile.profile: profile
        for profile in chip_profiles(offer.instance.accelerator)
    }
    profiles = [known[part.profile] for part in parts]
    assert placed(profiles) is not None
    assert parts == [
        slice_part(offer.instance.node, profile) for profile in profiles
    ]


def solution() -> Solution:
    catalog = only(
        CATALOG,
        lambda o: (
            o.instance.instance_type in ("g6.xlarge", "g4dn.xlarge")
            and o.region == "us-east-1"
        ),
    )
    spec = spec_of(
        service(
            "small",
            "llama-3.2-3b",
            0.2,
            "serving: {beside: [rerank.yaml]}\nbuy: {spot: never}",
        )
    )
    return find_fleet(
        spec,
        SolveSettings(
            catalog=catalog,
            unbuilt_reason=unsupported_reason,
            read_file=folder(0.2).__getitem__,
            alternative_count=0,
        ),
    ).explained()


def test_an_answer_says_what_each_service_has_and_costs_alone() -> None:
    found = solution()
    [pool] = found.pools
    assert [each.path for each in pool.services] == ["/v1/", "/rerank/v1/"]
    for each in pool.services:
        check = present(each.simulation_check)
        assert check.verdict == "holds"
        assert each.predictions["requests_per_s"].value == pytest.approx(0.2)
    told = {warning.reason.code for warning in found.warnings}
    assert {"time-shares", "apart", "apart-one"} <= told
    [apart] = [
        warning.reason.values["apart_usd"]
        for warning in found.warnings
        if warning.reason.code == "apart"
    ]
    # Two machines, networks and balancers cost more than one.
    assert Decimal(str(apart)) > present(found.bill).total
    volume = present(found.token_volume)
    # Twice 0.2 requests a second, over 730 hours.
    assert float(volume.requests) == pytest.approx(0.4 * 730 * 3600)


def test_hours_are_those_of_the_busier_service() -> None:
    spec = spec_of(
        service("small", "llama-3.2-3b", 1, "serving: {beside: [rerank.yaml]}")
    )
    night = service("rerank", "llama-3.2-1b", 1).replace(
        "peak_rps: 1", "peak_rps: 1\n  profile: business-hours"
    )
    requirement = machine_requirement(spec, lambda _: night.encode())  # type: ignore[arg-type]
    [neighbor] = requirement.beside
    own = neighbor.requirement.traffic_week.relative_load
    joint = requirement.week.relative_load
    assert neighbor.requirement.week == requirement.week
    assert all(
        at == max(pair)
        for at, *pair in zip(
            joint, own, requirement.traffic_week.relative_load, strict=True
        )
    )
    # Alone each follows its own hours again.
    _, (_, alone) = alone_requirements(requirement)
    assert alone.week.relative_load == own
    assert not alone.beside
