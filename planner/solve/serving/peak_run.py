"""The run of a fleet at the peak that is simulated: what it depends on, and its batches."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.perf.serving.monte_carlo import (
    OpenRun,
    closed_batches,
    measured_batches,
    open_steps,
    route_requests,
    trace_requests,
)
from planner.perf.serving.simulation import NEVER, request_times
from planner.perf.serving.trace import busiest_span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.perf.serving.load import Routing, ServingLoad
    from planner.perf.serving.monte_carlo import RequestStream
    from planner.perf.serving.replica_table import ReplicaTable
    from planner.perf.serving.simulation import RequestTimes
    from planner.perf.serving.trace import Trace
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing

# Requests of a batch for each one beyond the highest percentile: so many tail values of a batch
# decide its percentile.
TAIL_REQUESTS: Final = 3
MIN_REQUESTS: Final = 120  # of a batch, in any case
# Mean numbers in flight that a batch is long, so that batches are almost independent.
BATCH_TURNS: Final = 2
# Mean numbers in flight that arrive before the first batch that counts, and so many requests in
# any case: after as many arrivals as are in flight one mean answer has passed (Little's law).
WARM_UP_TURNS: Final = 3
WARM_UP_REQUESTS: Final = 20
# Requests of one replay of a trace by a replica.
TRACE_REQUESTS: Final = 600
# Replicas that are played together when a router chooses the least loaded.
ROUTED_REPLICAS: Final = 4


class PeakRun(Struct, frozen=True, kw_only=True):
    """All that decides the times of a run at the peak: equal runs have the same times.

    table            of a replica, one object for equal replicas
    lengths          the load as far as the lengths of its requests depend on it
    simulated_count  replicas that are played together, and represent the others
    routing          who of several replicas a request goes to
    users            of one replica in a closed loop; 0 for an open load
    rate_per_s       requests that arrive at the simulated replicas
    variation        squared coefficient of variation of their interarrival times
    in_flight        mean requests in the simulated replicas, by formula
    batch_requests   requests of a batch
    """

    table: ReplicaTable
    lengths: ServingLoad
    simulated_count: int
    routing: Routing
    users: int
    rate_per_s: float
    variation: float
    in_flight: float
    batch_requests: int

    def batches(self, stream: RequestStream) -> Iterator[RequestTimes]:
        """Yield the times of the requests of an endless run, batch by batch.

        `stream` has the requests of `lengths`.
        """
        warm_up = warm_up_requests(self.in_flight)
        if self.users:
            batches = closed_batches(
                self.table,
                # An infinite rate: users find the next request at once.
                stream.requests(1.0, NEVER),
                self.users,
                self.batch_requests,
            )
            return measured_batches(batches, warm_up, self.table)
        steps = open_steps(
            self.table,
            stream.requests(self.variation, self.rate_per_s),
            self.simulated_count,
            self.routing,
            self.batch_requests,
        )
        return OpenRun(steps, warm_up, self.table)


class TraceRun(Struct, frozen=True, kw_only=True):
    """All that decides the times of the replays of a trace: equal ones have the same times.

    replica_count  replicas that the trace is divided among; the others are as in `PeakRun`
    load           lengths of the context, routing and the prefix cache
    """

    table: ReplicaTable
    load: ServingLoad
    trace: Trace
    replica_count: int
    simulated_count: int
    in_flight: float
    batch_requests: int

    def batches(self, seed: int) -> Iterator[RequestTimes]:
        """Yield the times of a replay of the busiest part, routed anew each time."""
        warm_up = warm_up_requests(self.in_flight)
        # Requests that empty the replica: no arrivals follow them.
        drain = math.ceil(self.in_flight)
        counted = max(
            TRACE_REQUESTS * self.simulated_count, self.batch_requests
        )
        replayed = warm_up + counted + drain
        span = busiest_span(
            self.trace, replayed * self.replica_count // self.simulated_count
        )
        for replay_seed in itertools.count(seed):
            requests = route_requests(
                self.table,
                trace_requests(
                    span,
                    self.load,
                    self.replica_count,
                    self.simulated_count,
                    replay_seed,
                ),
                self.simulated_count,
                self.load.routing,
            )
            # A short trace has fewer requests: each part is shorter in proportion.
            played_share = len(requests) / replayed
            yield request_times(
                self.table,
                requests[
                    int(warm_up * played_share) : len(requests)
                    - int(drain * played_share)
                ],
            )


def peak_run(
    requirement: ServingRequirement, sizing: FleetSizing, table: ReplicaTable
) -> PeakRun | TraceRun:
    """Return the run of a fleet at the peak with all peak groups up.

    Least-loaded routing couples replicas. Otherwise one replica represents all.
    """
    load = requirement.load
    replica_count = sizing.peak_groups * sizing.replicas_per_group
    is_coupled = load.routing == "least-loaded" and requirement.mode == "open"
    simulated_count = min(ROUTED_REPLICAS, replica_count) if is_coupled else 1
    in_flight = sizing.service.in_flight * simulated_count
    batch_requests = batch_size(requirement, in_flight)
    if requirement.trace is not None:
        return TraceRun(
            table=table,
            load=load.shape,
            trace=requirement.trace,
            replica_count=replica_count,
            simulated_count=simulated_count,
            in_flight=in_flight,
            batch_requests=batch_requests,
        )
    is_closed = requirement.mode == "closed"
    traffic_share = simulated_count / replica_count
    return PeakRun(
        table=table,
        lengths=load.lengths,
        simulated_count=simulated_count,
        # One replica gets all that comes, whoever sends it.
        routing=load.routing if simulated_count > 1 else "random",
        users=max(1, round(load.concurrency / replica_count))
        if is_closed
        else 0,
        rate_per_s=load.rate_per_s * traffic_share,
        # One of n: 1 + (ca^2 - 1) / n at random, ca^2 / n in turn.
        variation=load.replica_variation(
            replica_count / requirement.traffic_share
        )
        if simulated_count == 1
        # A random share s of the arrivals: 1 + s * (ca^2 - 1).
        else load.thinned_variation(traffic_share),
        in_flight=in_flight,
        batch_requests=batch_requests,
    )


def batch_size(requirement: ServingRequirement, in_flight: float) -> int:
    """Return the requests of a batch, with a mean number of requests in flight."""
    highest_percentile = max(
        (sla_limit.percentile for sla_limit in requirement.limits), default=0
    )
    tail_share = 1 - highest_percentile / 100
    return max(
        MIN_REQUESTS,
        round(TAIL_REQUESTS / tail_share),
        math.ceil(BATCH_TURNS * in_flight),
    )


def warm_up_requests(in_flight: float) -> int:
    """Return the requests that fill a replica before its times count."""
    return WARM_UP_REQUESTS + math.ceil(WARM_UP_TURNS * in_flight)
