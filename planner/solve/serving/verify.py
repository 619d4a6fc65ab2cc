"""Simulates the cheapest fleets by request, and enlarges those that miss a limit."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.perf.serving import simulation as simulate
from planner.perf.serving.monte_carlo import (
    busiest_span,
    closed_loop,
    draw_requests,
    request_times,
    route_requests,
    summarize,
    trace_requests,
)
from planner.solve.serving.search import ServingCandidate
from planner.solve.serving.sizing import groups_with_spares, predict_service
from planner.solve.solution import SimulationCheck
from planner.units import MS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.cost.bill import Bill
    from planner.market.offer import Offer
    from planner.perf.serving.monte_carlo import SimulationSummary
    from planner.perf.serving.simulation import ReplicaTable, Request
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing

SEEDS: Final = (1, 2, 3)
REPLICA_REQUESTS: Final = 900  # of one replica, for each seed
# Fleets that are played before the last is taken with a warning.
MAX_ATTEMPTS: Final = 6
# Replicas that are played together when a router chooses the least loaded.
ROUTED_REPLICAS: Final = 4
METRICS: Final = ("ttft", "tpot", "e2e")
PERCENTILES: Final = (50, 90, 95, 99)
GROWTH_DIVISOR: Final = 8  # a fleet that fails grows by one group in so many


def verify_finalists(
    requirement: ServingRequirement,
    finalists: Sequence[ServingCandidate],
    bill_fleet: Callable[[ServingRequirement, FleetSizing, Offer], Bill],
) -> tuple[ServingCandidate, SimulationCheck | None]:
    """Return the cheapest fleet that passes simulation, and how it was checked.

    Fleets are simulated in the order of cost. A fleet that misses a limit returns to the queue
    with max(1, peak_groups // 8) more groups. The sixth fleet is returned even when it fails.
    Batch runs and fleets without latency limits are not simulated.
    """
    if not requirement.limits or requirement.mode == "batch":
        return finalists[0], None
    candidate_queue = [
        (candidate.rank, finalist_index, candidate, 0)
        for finalist_index, candidate in enumerate(finalists)
    ]
    heapq.heapify(candidate_queue)
    for attempt_index in range(MAX_ATTEMPTS):
        _, finalist_index, candidate, added_groups = heapq.heappop(
            candidate_queue
        )
        simulation = simulate_fleet(requirement, candidate.sizing)
        # The last attempt ends the search; the plan warns when it failed.
        if attempt_index == MAX_ATTEMPTS - 1 or meets_limits(
            requirement, simulation
        ):
            break
        # Steps of an eighth: large fleets pass within few simulations.
        extra_groups = max(1, candidate.sizing.peak_groups // GROWTH_DIVISOR)
        larger_candidate = _grow_fleet(
            requirement, candidate, extra_groups, bill_fleet
        )
        # The larger fleet competes by cost with the other finalists.
        heapq.heappush(
            candidate_queue,
            (
                larger_candidate.rank,
                finalist_index,
                larger_candidate,
                added_groups + extra_groups,
            ),
        )
    passed = meets_limits(requirement, simulation)
    percentile_bands = {
        f"{metric}_p{percentile}_ms": (
            # Estimate, low and high end of the Monte Carlo band, ms.
            measurement.estimate_s * MS_PER_S,
            measurement.low_s * MS_PER_S,
            measurement.high_s * MS_PER_S,
        )
        for (metric, percentile), measurement in simulation.percentiles.items()
    }
    return candidate, SimulationCheck(
        request_count=simulation.request_count,
        seed_count=simulation.seed_count,
        added_groups=added_groups,
        percentile_bands=percentile_bands,
        passed=passed,
        request_source="trace" if requirement.trace else "drawn",
        routing=requirement.load.routing,
    )


def meets_limits(
    requirement: ServingRequirement, simulation: SimulationSummary
) -> bool:
    """Return whether every limit holds for the percentiles over all seeds.

    The limits apply without the margin of the confidence.
    """
    return all(
        simulation.percentiles[
            sla_limit.metric, sla_limit.percentile
        ].estimate_s
        # The limit itself, without the margin of the confidence.
        <= float(sla_limit.seconds)
        for sla_limit in requirement.limits
    )


def simulate_fleet(
    requirement: ServingRequirement, sizing: FleetSizing
) -> SimulationSummary:
    """Return the percentiles of a fleet at peak, simulated with several seeds."""
    replica_table = simulate.tabulate_replica(sizing.replica)
    simulated_times = [
        request_times(
            replica_table,
            _simulate_replicas(requirement, sizing, replica_table, seed),
        )
        for seed in SEEDS
    ]
    return summarize(simulated_times, itertools.product(METRICS, PERCENTILES))


def _simulate_replicas(
    requirement: ServingRequirement,
    sizing: FleetSizing,
    replica_table: ReplicaTable,
    seed: int,
) -> list[Request]:
    """Return the simulated requests of one replica, or of several if coupled.

    Least-loaded routing couples replicas. Otherwise one replica represents all.
    """
    load = requirement.load
    replica_count = sizing.peak_groups * sizing.replicas_per_group
    if requirement.mode == "closed":
        # An infinite rate: users find the next request at once.
        requests = draw_requests(
            load, REPLICA_REQUESTS, seed, 1.0, simulate.NEVER
        )
        return closed_loop(
            replica_table,
            requests,
            # Users of one replica.
            max(1, round(load.concurrency / replica_count)),
        )
    simulated_replicas = (
        # Least-loaded routing couples the queues of replicas.
        min(ROUTED_REPLICAS, replica_count)
        if load.routing == "least-loaded"
        else 1
    )
    if requirement.trace:
        requests = trace_requests(
            busiest_span(requirement.trace, REPLICA_REQUESTS * replica_count),
            load,
            replica_count,
            simulated_replicas,
            seed,
        )
    else:
        traffic_share = simulated_replicas / replica_count
        gap_variation = (
            # One of n: 1 + (ca^2 - 1) / n at random, ca^2 / n in turn.
            load.replica_variation(replica_count)
            if simulated_replicas == 1
            # A random share s of the arrivals: 1 + s * (ca^2 - 1).
            else load.thinned_variation(traffic_share)
        )
        requests = draw_requests(
            load,
            REPLICA_REQUESTS * simulated_replicas,
            seed,
            gap_variation,
            load.rate_per_s * traffic_share,
        )
    return route_requests(
        replica_table, requests, simulated_replicas, load.routing
    )


def _grow_fleet(
    requirement: ServingRequirement,
    candidate: ServingCandidate,
    extra_groups: int,
    bill_fleet: Callable[[ServingRequirement, FleetSizing, Offer], Bill],
) -> ServingCandidate:
    sizing = candidate.sizing
    peak_groups = sizing.peak_groups + extra_groups
    service = (
        predict_service(
            requirement, sizing.replica, peak_groups * sizing.replicas_per_group
        )
        or sizing.service
    )
    # Spares are computed again: they depend on the peak groups.
    total_groups = groups_with_spares(
        peak_groups, sizing.nodes_per_group, requirement.availability
    )
    larger_sizing = replace(
        sizing,
        peak_groups=peak_groups,
        total_groups=total_groups,
        service=service,
    )
    return ServingCandidate(
        offer=candidate.offer,
        sizing=larger_sizing,
        bill=bill_fleet(requirement, larger_sizing, candidate.offer),
    )
