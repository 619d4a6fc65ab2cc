"""Hours of less load: told where clumps of requests are too much for their machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from planner.solve.serving.quiet_hours import quiet_hour_warnings
from planner.solve.serving.requirement import serving_requirement
from planner.solve.serving.search import ServingSearch
from planner.solve.serving.sizing import sized_fleet
from planner.solve.settings import DEFAULT_CONFIDENCE
from planner.spec.model import Inference
from tests.conftest import chat, find, only, present, spec_of

if TYPE_CHECKING:
    from planner.market.offer import Catalog
    from planner.solve.solution import Solution

QUIET = 0.2


def service(burstiness: str, routing: str = "random") -> str:
    return chat(
        precision="fp8",
        sla="ttft_p95: 1s",
        traffic=f"peak_rps: 15\n  burstiness: {burstiness}\n"
        f"  routing: {routing}\n"
        f"  profile: [{', '.join([str(QUIET)] * 12 + ['1'] * 12)}]",
        extra="buy: {spot: never}",
    )


def weak(catalog: Catalog) -> Catalog:
    """One machine type that carries little, so that there are several of it at the peak."""
    return only(
        catalog,
        lambda offer: (
            offer.instance.instance_type == "g6.xlarge"
            and offer.purchase == "on_demand"
        ),
    )


def told(solution: Solution) -> list[str]:
    return [
        warning.reason.key
        for warning in solution.warnings
        if warning.code == "quiet-hours"
    ]


def test_by_chance_alone_no_hour_is_worse_than_the_peak(
    catalog: Catalog,
) -> None:
    solution = find(weak(catalog), service("1"))
    assert present(solution.pools[0]).peak_groups > 1
    assert told(solution) == []


@pytest.mark.parametrize("burstiness", ["1", "1.5", "2", "3"])
def test_each_hour_has_the_fewest_machines_that_keep_the_limits(
    catalog: Catalog, burstiness: str
) -> None:
    """Judged hour by hour: those that are planned pass, and one fewer does not."""
    few = weak(catalog)
    spec = spec_of(service(burstiness))
    assert isinstance(spec, Inference)
    requirement = replace(
        serving_requirement(spec, lambda _: b""), confidence=DEFAULT_CONFIDENCE
    )
    search = ServingSearch(few.price_book)
    sizing = present(search.solve(requirement, [*few.offers]).best).sizing
    solution = find(few, service(burstiness))
    assert told(solution) == []
    [pool] = solution.pools
    hourly = (pool.week or solution.week).hourly_nodes(pool.peak_groups, 1)
    for load in (QUIET, 1.0):
        hour = requirement.with_scaled_load(load)
        planned = max(
            nodes
            for nodes, each in zip(
                hourly, solution.week.relative_load, strict=True
            )
            if each == load
        )
        for groups in (planned, planned - 1):
            fleet = sized_fleet(hour, sizing.replica, sizing.group, groups)
            missed = groups == 0 or search.judge.misses(hour, fleet)
            assert missed == (groups < planned)


@pytest.mark.parametrize("burstiness", ["1.5", "2", "3"])
@pytest.mark.parametrize("routing", ["random", "least-loaded"])
def test_what_is_told_is_what_the_hour_alone_misses(
    catalog: Catalog, burstiness: str, routing: str
) -> None:
    """A service of the quiet hours alone, on the machines that run in them."""
    few = weak(catalog)
    spec = spec_of(service(burstiness, routing))
    assert isinstance(spec, Inference)
    requirement = serving_requirement(spec, lambda _: b"")
    search = ServingSearch(few.price_book)
    best = present(search.solve(requirement, [*few.offers]).best)
    sizing = best.sizing
    groups = -int(-sizing.peak_groups * QUIET // 1)
    assert 0 < groups < sizing.peak_groups
    alone = replace(
        requirement,
        load=replace(
            requirement.load, rate_per_s=QUIET * requirement.load.rate_per_s
        ),
    )
    fleet = sized_fleet(alone, sizing.replica, sizing.group, groups)
    warnings = [*quiet_hour_warnings(requirement, sizing, search.judge)]
    assert bool(warnings) == search.judge.misses(alone, fleet)
