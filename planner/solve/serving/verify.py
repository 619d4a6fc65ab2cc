"""Judges fleets by simulating their requests at the peak."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final, TypeAlias

from planner.perf.serving import simulation as simulate
from planner.perf.serving.monte_carlo import (
    OpenRun,
    RequestStream,
    closed_batches,
    measured_batches,
    open_batches,
    open_steps,
    request_times,
    route_requests,
    trace_requests,
)
from planner.perf.serving.trace import busiest_span
from planner.perf.serving.trial import LOOKS, Trial, TrialLimit
from planner.solve.serving.sizing import (
    SCREEN_FACTOR,
    LayoutRejection,
    predict_service,
    violated_limit,
)
from planner.solve.solution import SimulationCheck
from planner.units import MS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.perf.serving.load import ServingLoad
    from planner.perf.serving.monte_carlo import RequestTimes
    from planner.perf.serving.replica import Replica
    from planner.perf.serving.trace import Trace
    from planner.perf.serving.trial import SimulatedPercentile
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing
    from planner.spec.model import LatencyLimit

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
METRICS: Final = ("ttft", "tpot", "e2e")
PERCENTILES: Final = (50, 90, 95, 99)
MOST_KEPT_REQUESTS: Final = 1_000_000  # of all runs, about 100 bytes each
IDLE_RPS: Final = 1e-6  # a rate at which no request meets another
SEED: Final = 1
# Streams of requests that are kept; a stream that is asked for again is drawn again.
MOST_STREAMS: Final = 10

# Replica, how many of them, rate in requests/s, users of a closed loop, requests of a batch,
# recording, share of all arrivals.
_TrialKey: TypeAlias = (
    "tuple[Replica, int, float, int, int, Trace | None, float]"
)


class FleetJudge:
    """Simulates fleets, and keeps the runs: another limit is judged by the same requests.

    All fleets of one load meet the same requests, which `seed` names.
    """

    def __init__(self, seed: int = SEED) -> None:
        self._seed = seed
        self._streams: dict[ServingLoad, RequestStream] = {}
        self._trials: dict[_TrialKey, Trial] = {}

    def missed_limit(
        self, requirement: ServingRequirement, sizing: FleetSizing
    ) -> LayoutRejection | None:
        """Return the limit that a fleet misses at the peak with all peak groups up.

        None when all limits hold. The replica is as slow as the confidence asks for. What the
        formulas put far beyond a limit is not simulated. What the simulation cannot
        decide is judged as it was measured.
        """
        if not requirement.is_simulated:
            return None
        return self._far_limit(requirement, sizing) or _missed_in(
            self._trial(requirement, sizing),
            requirement,
            sizing.replica,
            sizing.peak_groups,
        )

    def misses(
        self, requirement: ServingRequirement, sizing: FleetSizing
    ) -> bool:
        """Return whether `missed_limit` names one, without measuring how far it is missed."""
        if not requirement.is_simulated:
            return False
        return self._far_limit(requirement, sizing) is not None or self._trial(
            requirement, sizing
        ).misses(trial_limits(requirement))

    def _far_limit(
        self, requirement: ServingRequirement, sizing: FleetSizing
    ) -> LayoutRejection | None:
        """Return what a fleet misses so far that it is not simulated."""
        replica, groups = sizing.replica, sizing.peak_groups
        service = predict_service(
            requirement, replica, groups * sizing.replicas_per_group
        )
        if service is None:
            return LayoutRejection(
                layout=sizing.layout,
                constraint="rate",
                reached=math.inf,
                limit=requirement.load.rate_per_s,
                groups=groups,
            )
        far_limit = violated_limit(service, requirement.limits, SCREEN_FACTOR)
        if far_limit is None:
            return None
        return LayoutRejection(
            layout=sizing.layout,
            constraint=far_limit.key,
            reached=service.quantile(far_limit.metric, far_limit.percentile),
            limit=float(far_limit.seconds),
            groups=groups,
        )

    def idle_rejection(
        self, requirement: ServingRequirement, replica: Replica
    ) -> LayoutRejection | None:
        """Return the limit that a replica misses even when each request is alone on it.

        More machines do not help then.
        """
        trial_key = (
            replica,
            0,
            0.0,
            0,
            batch_size(requirement, 0.0),
            None,
            1.0,
        )
        if trial_key not in self._trials:
            replica_table = simulate.tabulate_replica(replica)
            lone_requests = self._stream(requirement.load).requests(
                1.0, IDLE_RPS
            )
            self._trials[trial_key] = Trial(
                measured_batches(
                    open_batches(
                        replica_table,
                        lone_requests,
                        1,
                        "random",
                        batch_size(requirement, 0.0),
                    ),
                    0,
                    replica_table,
                ),
                # Requests that are alone fill no pool: their batches do not grow worse.
                first_confirmation=LOOKS[0],
            )
        return _missed_in(self._trials[trial_key], requirement, replica, None)

    def reached(
        self,
        requirement: ServingRequirement,
        sizing: FleetSizing,
        limit: LatencyLimit,
    ) -> SimulatedPercentile:
        """Return the percentile that a limit is about, as a fleet reaches it at the peak."""
        trial = self._trial(requirement, sizing)
        return trial.percentile(
            limit.metric,
            limit.percentile,
            # What other questions have played says nothing here: answers stay the same.
            trial.decide(trial_limits(requirement)).batch_count,
        )

    def check(
        self,
        requirement: ServingRequirement,
        sizing: FleetSizing,
        added_groups: int,
    ) -> SimulationCheck | None:
        """Return how a fleet was judged, None when nothing was simulated.

        `added_groups` are those that the formulas did not ask for.
        """
        if not requirement.is_simulated:
            return None
        trial = self._trial(requirement, sizing)
        decision = trial.decide(trial_limits(requirement))
        percentile_bands = {}
        for metric, percentile in itertools.product(METRICS, PERCENTILES):
            measured = trial.percentile(
                metric, percentile, decision.batch_count
            )
            percentile_bands[f"{metric}_p{percentile}_ms"] = (
                measured.estimate_s * MS_PER_S,
                measured.low_s * MS_PER_S,
                measured.high_s * MS_PER_S,
            )
        return SimulationCheck(
            request_count=trial.requests_in(decision.batch_count),
            batch_count=decision.batch_count,
            decode_factor=sizing.replica.margins.decode,
            prefill_factor=sizing.replica.margins.prefill,
            added_groups=added_groups,
            percentile_bands=percentile_bands,
            verdict="holds" if decision.verdict == "holds" else "undecided",
            request_source="trace" if requirement.trace else "drawn",
            routing=requirement.load.routing,
        )

    def _trial(
        self, requirement: ServingRequirement, sizing: FleetSizing
    ) -> Trial:
        load = requirement.load
        replica_count = sizing.peak_groups * sizing.replicas_per_group
        trial_key = (
            sizing.replica,
            replica_count,
            load.rate_per_s,
            load.concurrency,
            batch_size(requirement, sizing.service.in_flight),
            requirement.trace,
            requirement.traffic_share,
        )
        if trial_key not in self._trials:
            self._forget_oldest()
            self._trials[trial_key] = Trial(
                self._peak_batches(requirement, sizing)
            )
        return self._trials[trial_key]

    def _forget_oldest(self) -> None:
        """Drop runs until little memory is taken; asked again, they are simulated again.

        What is under way takes four times as much as what is counted, and nobody asks again how
        an overload goes on.
        """
        self._trials = {
            key: trial
            for key, trial in self._trials.items()
            if not trial.is_overloaded
        }
        kept = sum(trial.request_count for trial in self._trials.values())
        while kept > MOST_KEPT_REQUESTS:
            oldest_key = next(iter(self._trials))
            kept -= self._trials.pop(oldest_key).request_count

    def _stream(self, load: ServingLoad) -> RequestStream:
        """Return the requests of a load, which do not depend on its rate."""
        if load.shape not in self._streams:
            if len(self._streams) >= MOST_STREAMS:
                self._streams.clear()
            self._streams[load.shape] = RequestStream(load, self._seed)
        return self._streams[load.shape]

    def _peak_batches(
        self, requirement: ServingRequirement, sizing: FleetSizing
    ) -> Iterator[RequestTimes]:
        """Yield the times of the requests of an endless run at the peak, batch by batch.

        Least-loaded routing couples replicas. Otherwise one replica represents all.
        """
        load = requirement.load
        replica_count = sizing.peak_groups * sizing.replicas_per_group
        simulated_count = (
            min(ROUTED_REPLICAS, replica_count)
            if load.routing == "least-loaded" and requirement.mode == "open"
            else 1
        )
        if requirement.trace is not None:
            return _trace_replays(
                requirement.trace,
                requirement,
                sizing,
                simulated_count,
                self._seed,
            )
        replica_table = simulate.tabulate_replica(sizing.replica)
        in_flight = sizing.service.in_flight * simulated_count
        requests_of_batch = batch_size(requirement, in_flight)
        stream = self._stream(load)
        if requirement.mode == "closed":
            batches = closed_batches(
                replica_table,
                # An infinite rate: users find the next request at once.
                stream.requests(1.0, simulate.NEVER),
                # Users of one replica.
                max(1, round(load.concurrency / replica_count)),
                requests_of_batch,
            )
            return measured_batches(
                batches, warm_up_requests(in_flight), replica_table
            )
        traffic_share = simulated_count / replica_count
        steps = open_steps(
            replica_table,
            stream.requests(
                # One of n: 1 + (ca^2 - 1) / n at random, ca^2 / n in turn.
                load.replica_variation(
                    replica_count / requirement.traffic_share
                )
                if simulated_count == 1
                # A random share s of the arrivals: 1 + s * (ca^2 - 1).
                else load.thinned_variation(traffic_share),
                load.rate_per_s * traffic_share,
            ),
            simulated_count,
            load.routing,
            requests_of_batch,
        )
        return OpenRun(steps, warm_up_requests(in_flight), replica_table)


def trial_limits(requirement: ServingRequirement) -> list[TrialLimit]:
    """Return the latency limits of a requirement in seconds."""
    return [
        TrialLimit(
            sla_limit.metric, sla_limit.percentile, float(sla_limit.seconds)
        )
        for sla_limit in requirement.limits
    ]


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


def _missed_in(
    trial: Trial,
    requirement: ServingRequirement,
    replica: Replica,
    groups: int | None,
) -> LayoutRejection | None:
    """Return the limit that a trial finds missed, or else the one that it cannot decide."""
    decision = trial.decide(trial_limits(requirement))
    if decision.limit is None:
        return None
    return LayoutRejection(
        layout=replica.layout,
        constraint=f"{decision.limit.metric}_p{decision.limit.percentile}",
        reached=decision.reached_s,
        limit=decision.limit.limit_s,
        groups=groups,
        is_undecided=decision.verdict == "undecided",
    )


def _trace_replays(
    trace: Trace,
    requirement: ServingRequirement,
    sizing: FleetSizing,
    simulated_count: int,
    seed: int,
) -> Iterator[RequestTimes]:
    """Yield the times of a replay of the busiest part of a trace, routed anew each time."""
    load = requirement.load
    replica_count = sizing.peak_groups * sizing.replicas_per_group
    replica_table = simulate.tabulate_replica(sizing.replica)
    in_flight = sizing.service.in_flight * simulated_count
    warm_up = warm_up_requests(in_flight)
    # Requests that empty the replica: no arrivals follow them.
    drain = math.ceil(in_flight)
    counted = max(
        TRACE_REQUESTS * simulated_count, batch_size(requirement, in_flight)
    )
    replayed = warm_up + counted + drain
    span = busiest_span(trace, replayed * replica_count // simulated_count)
    for replay_seed in itertools.count(seed):
        requests = route_requests(
            replica_table,
            trace_requests(
                span, load, replica_count, simulated_count, replay_seed
            ),
            simulated_count,
            load.routing,
        )
        # A short trace has fewer requests: each part is shorter in proportion.
        played_share = len(requests) / replayed
        yield request_times(
            replica_table,
            requests[
                int(warm_up * played_share) : len(requests)
                - int(drain * played_share)
            ],
        )
