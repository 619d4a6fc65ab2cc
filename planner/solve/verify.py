"""Plays the finalists of a search request by request, and replaces those that miss a limit."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from planner.perf import simulate
from planner.perf.play import (
    arrivals,
    busiest,
    deliver,
    loop,
    recorded,
    summary,
    times,
)
from planner.solve.search import Found
from planner.solve.size import serve, spared
from planner.solve.solution import Verified

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.perf.play import Run
    from planner.perf.simulate import Machine, Request
    from planner.solve.bill import Bill
    from planner.solve.need import Need
    from planner.solve.offer import Offer
    from planner.solve.size import Fit

SEEDS: Final = (1, 2, 3)
REQUESTS: Final = 900  # of one replica, for each seed
MOST: Final = (
    6  # fleets that are played before the last is taken with a warning
)
LANES: Final = 4  # replicas that are played together when a router chooses the least loaded
METRICS: Final = ("ttft", "tpot", "e2e")
PERCENTILES: Final = (50, 90, 95, 99)
GROWTH: Final = 8  # a fleet that fails grows by one group in so many
MS: Final = 1000.0


def verified(
    requirement: Need,
    finalists: Sequence[Found],
    bill_fleet: Callable[[Need, Fit, Offer], Bill],
) -> tuple[Found, Verified | None]:
    """Return the cheapest finalist that passes, grown where it has to be, and how it passed.

    Replicas are played at their share of the peak. Fleets are tried in the order of their cost.
    Without latency limits there is nothing to verify.
    """
    if not requirement.limits or requirement.mode == "batch":
        return finalists[0], None
    candidate_queue = [
        (candidate.rank, finalist_index, candidate, 0)
        for finalist_index, candidate in enumerate(finalists)
    ]
    heapq.heapify(candidate_queue)
    for attempt_index in range(MOST):
        _, finalist_index, candidate, added_groups = heapq.heappop(
            candidate_queue
        )
        simulation = play(requirement, candidate.sizing)
        if attempt_index == MOST - 1 or passes(requirement, simulation):
            break
        extra_groups = max(1, candidate.sizing.peak_groups // GROWTH)
        larger_candidate = _grown(
            requirement, candidate, extra_groups, bill_fleet
        )
        heapq.heappush(
            candidate_queue,
            (
                larger_candidate.rank,
                finalist_index,
                larger_candidate,
                added_groups + extra_groups,
            ),
        )
    passed = passes(requirement, simulation)
    percentile_bands = {
        f"{metric}_p{percentile}_ms": (
            measurement.estimate_s * MS,
            measurement.low_s * MS,
            measurement.high_s * MS,
        )
        for (metric, percentile), measurement in simulation.percentiles.items()
    }
    return candidate, Verified(
        request_count=simulation.request_count,
        seed_count=simulation.seed_count,
        added_groups=added_groups,
        percentile_bands=percentile_bands,
        passed=passed,
        request_source="trace" if requirement.trace else "drawn",
        routing=requirement.load.routing,
    )


def passes(requirement: Need, simulation: Run) -> bool:
    """Whether every limit is met over all simulated requests."""
    return all(
        simulation.percentiles[sla_limit.metric, sla_limit.percentile].estimate_s
        <= float(sla_limit.seconds)
        for sla_limit in requirement.limits
    )


def play(requirement: Need, sizing: Fit) -> Run:
    """Play a fit at the peak with several seeds."""
    replica_table = simulate.of_replica(sizing.replica)
    simulated_times = [
        times(replica_table, _played(requirement, sizing, replica_table, seed))
        for seed in SEEDS
    ]
    return summary(simulated_times, itertools.product(METRICS, PERCENTILES))


def _played(
    requirement: Need, sizing: Fit, replica_table: Machine, seed: int
) -> list[Request]:
    """What one replica gets, or several when their router looks at how busy they are."""
    load, replica_count = requirement.load, sizing.peak_groups * sizing.replicas_per_group
    if requirement.mode == "closed":
        requests = arrivals(load, REQUESTS, seed, 1.0, simulate.NEVER)
        return loop(
            replica_table,
            requests,
            max(1, round(load.concurrency / replica_count)),
        )
    simulated_replicas = (
        min(LANES, replica_count) if load.routing == "least-loaded" else 1
    )
    if requirement.trace:
        requests = recorded(
            busiest(requirement.trace, REQUESTS * replica_count),
            load,
            replica_count,
            simulated_replicas,
            seed,
        )
    else:
        traffic_share = simulated_replicas / replica_count
        gap_variation = (
            load.replica_variation(replica_count)
            if simulated_replicas == 1
            else load.thinned_variation(traffic_share)
        )
        requests = arrivals(
            load,
            REQUESTS * simulated_replicas,
            seed,
            gap_variation,
            load.rate_per_s * traffic_share,
        )
    return deliver(replica_table, requests, simulated_replicas, load.routing)


def _grown(
    requirement: Need,
    candidate: Found,
    extra_groups: int,
    bill_fleet: Callable[[Need, Fit, Offer], Bill],
) -> Found:
    sizing = candidate.sizing
    peak_groups = sizing.peak_groups + extra_groups
    service = (
        serve(requirement, sizing.replica, peak_groups * sizing.replicas_per_group)
        or sizing.service
    )
    total_groups = spared(peak_groups, sizing.nodes_per_group, requirement.availability)
    larger_sizing = replace(
        sizing, peak_groups=peak_groups, total_groups=total_groups, service=service
    )
    return Found(
        offer=candidate.offer,
        sizing=larger_sizing,
        bill=bill_fleet(requirement, larger_sizing, candidate.offer),
    )
