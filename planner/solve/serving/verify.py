"""Judges fleets by simulating their requests at the peak."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec.structs import replace

from planner.perf.serving.monte_carlo import (
    RequestStream,
    measured_batches,
    open_batches,
)
from planner.perf.serving.replica_table import table_inputs, tabulate
from planner.perf.serving.steady_state import context_load, steady_state
from planner.perf.serving.trial import LOOKS, Trial, TrialLimit
from planner.solve.serving.peak_run import TraceRun, batch_size, peak_run
from planner.solve.serving.sizing import (
    SCREEN_FACTOR,
    LayoutRejection,
    predict_service,
    violated_limit,
)
from planner.solve.solution import SimulationCheck
from planner.units import MS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.perf.serving.load import ServingLoad
    from planner.perf.serving.replica import Replica
    from planner.perf.serving.replica_table import ReplicaTable, TableInputs
    from planner.perf.serving.service import Service
    from planner.perf.serving.steady_state import ContextLoad, SteadyState
    from planner.perf.serving.trial import SimulatedPercentile
    from planner.solve.serving.peak_run import PeakRun
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing
    from planner.spec.model import LatencyLimit

METRICS: Final = ("ttft", "tpot", "e2e")
PERCENTILES: Final = (50, 90, 95, 99)
MOST_KEPT_REQUESTS: Final = 250_000  # of all runs, about 100 bytes each
IDLE_RPS: Final = 1e-6  # a rate at which no request meets another
SEED: Final = 1
# Streams of requests that are kept; a stream that is asked for again is drawn again.
MOST_STREAMS: Final = 10
# Requests of a stream whose mean lengths stand for all of them, and of those whose prompts do.
MEANT_REQUESTS: Final = 8192
MEANT_PROMPTS: Final = 2048
# By how much less work those that are simulated may be: more than a standard error of the mean of
# so many answers that differ by as much as they are long.
MEAN_ERROR: Final = 0.015
# A percentile from which on a time per token is above its mean.
ABOVE_MEAN: Final = 90
# Tables that are kept, each with the times of some thousand lengths of prompts.
MOST_TABLES: Final = 128

# The run of a fleet, or of requests that are alone on a replica: its table, their lengths and how
# many make a batch.
_TrialKey: TypeAlias = (
    "PeakRun | TraceRun | tuple[ReplicaTable, ServingLoad, int]"
)
# What a run is asked about limits; it plays as far as the answer takes.
_Question: TypeAlias = "Callable[[Trial, Sequence[TrialLimit]], object]"


class FleetJudge:
    """Simulates fleets, and keeps the runs: another limit is judged by the same requests.

    All fleets of one load meet the same requests, which `seed` names.
    """

    def __init__(self, seed: int = SEED) -> None:
        self._seed = seed
        self._streams: dict[ServingLoad, RequestStream] = {}
        self._tables: dict[TableInputs, ReplicaTable] = {}
        self._trials: dict[_TrialKey, Trial] = {}
        # Runs that differ in the room of a replica alone, by the first of their tables.
        self._alike: dict[PeakRun, list[PeakRun]] = {}
        self._first_tables: dict[TableInputs, ReplicaTable] = {}
        self._context_loads: dict[ServingLoad, ContextLoad] = {}
        self._steady_states: dict[
            tuple[ReplicaTable, ServingLoad], SteadyState
        ] = {}

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
            self._trial(requirement, sizing, Trial.decide),
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
        return self._misses_by_far(requirement, sizing) or self._trial(
            requirement, sizing, Trial.misses
        ).misses(trial_limits(requirement))

    def _misses_by_far(
        self, requirement: ServingRequirement, sizing: FleetSizing
    ) -> bool:
        """Return whether `_far_limit` names a limit, without asking how far it is missed."""
        service = _service(requirement, sizing)
        return (
            service is None
            or violated_limit(service, requirement.limits, SCREEN_FACTOR)
            is not None
            # The bound comes last: it needs times of each length, which the formula does without.
            or self._is_overtaxed(requirement, sizing)
        )

    def _is_overtaxed(
        self, requirement: ServingRequirement, sizing: FleetSizing
    ) -> bool:
        """Return whether the mean time per token is above a limit, or more comes than leaves."""
        least_tpot_s = self._least_tpot(requirement, sizing)
        return (
            least_tpot_s == math.inf
            or _limit_below(requirement, least_tpot_s) is not None
        )

    def _far_limit(
        self, requirement: ServingRequirement, sizing: FleetSizing
    ) -> LayoutRejection | None:
        """Return what a fleet misses so surely that it is not simulated."""
        service = _service(requirement, sizing)
        least_tpot_s = self._least_tpot(requirement, sizing)
        if service is None or least_tpot_s == math.inf:
            return LayoutRejection(
                layout=sizing.layout,
                constraint="rate",
                reached=math.inf,
                limit=requirement.load.rate_per_s,
                groups=sizing.peak_groups,
            )
        far_limit = violated_limit(
            service, requirement.limits, SCREEN_FACTOR
        ) or _limit_below(requirement, least_tpot_s)
        if far_limit is None:
            return None
        reached_s = service.quantile(far_limit.metric, far_limit.percentile)
        return LayoutRejection(
            layout=sizing.layout,
            constraint=far_limit.key,
            reached=max(reached_s, least_tpot_s)
            if far_limit.metric == "tpot"
            else reached_s,
            limit=float(far_limit.seconds),
            groups=sizing.peak_groups,
        )

    def _least_tpot(
        self, requirement: ServingRequirement, sizing: FleetSizing
    ) -> float:
        """Return a lower bound of the mean time per token at the peak, in seconds.

        It is infinite where more requests arrive at a replica than it ever completes. A recording
        ends, and users of a closed loop wait: there is no bound of theirs.
        """
        if requirement.mode != "open" or requirement.trace is not None:
            return 0.0
        replicas = sizing.peak_groups * sizing.replicas_per_group
        load = requirement.load
        return self._steady_state(load, sizing.replica).least_tpot(
            load.rate_per_s / replicas * (1 - MEAN_ERROR),
            load.replica_variation(replicas / requirement.traffic_share),
        )

    def _steady_state(self, load: ServingLoad, replica: Replica) -> SteadyState:
        """Return what a replica reaches at best with requests of the lengths of a load."""
        table = self._table(replica)
        key = table, load.lengths
        if key not in self._steady_states:
            # Each keeps its table in memory.
            if len(self._steady_states) >= MOST_TABLES:
                self._steady_states.clear()
            lengths = self._stream(load).lengths(MEANT_REQUESTS)
            if load.lengths not in self._context_loads:
                self._context_loads[load.lengths] = context_load(lengths)
            self._steady_states[key] = steady_state(
                table,
                self._context_loads[load.lengths],
                [prompt for prompt, _ in lengths[:MEANT_PROMPTS]],
            )
        return self._steady_states[key]

    def idle_rejection(
        self, requirement: ServingRequirement, replica: Replica
    ) -> LayoutRejection | None:
        """Return the limit that a replica misses even when each request is alone on it.

        More machines do not help then.
        """
        batch_requests = batch_size(requirement, 0.0)
        replica_table = self._table(replica)
        trial_key = (replica_table, requirement.load.lengths, batch_requests)
        if trial_key not in self._trials:
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
                        batch_requests,
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
        trial = self._trial(requirement, sizing, Trial.decide)
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
        trial = self._trial(requirement, sizing, Trial.decide)
        decision = trial.decide(trial_limits(requirement))
        return SimulationCheck(
            request_count=trial.requests_in(decision.batch_count),
            batch_count=decision.batch_count,
            decode_factor=sizing.replica.margins.decode,
            prefill_factor=sizing.replica.margins.prefill,
            added_groups=added_groups,
            percentile_bands=percentile_bands(trial, decision.batch_count),
            verdict="holds" if decision.verdict == "holds" else "undecided",
            request_source="trace" if requirement.trace else "drawn",
            routing=requirement.load.routing,
        )

    def _trial(
        self,
        requirement: ServingRequirement,
        sizing: FleetSizing,
        question: _Question,
    ) -> Trial:
        """Return the run of a fleet, which is asked this question of its limits."""
        run = peak_run(requirement, sizing, self._table(sizing.replica))
        if run in self._trials:
            return self._trials[run]
        if isinstance(run, TraceRun):
            batches = run.batches(self._seed)
        else:
            shared = self._shared_trial(requirement, sizing, run, question)
            if shared is not None:
                return shared
            batches = run.batches(self._stream(requirement.load))
        self._forget_oldest()
        self._trials[run] = Trial(batches)
        return self._trials[run]

    def _shared_trial(
        self,
        requirement: ServingRequirement,
        sizing: FleetSizing,
        run: PeakRun,
        question: _Question,
    ) -> Trial | None:
        """Return the run of a replica with other room, which decides what this one would.

        That is so where nobody waits for room before the question is answered: a cache of 8 bits
        has twice the room of one of 16, and often neither is full.
        """
        inputs = replace(
            table_inputs(sizing.replica), slot_count=0, pool_tokens=0.0
        )
        first_table = self._first_tables.setdefault(inputs, run.table)
        alike = self._alike.setdefault(replace(run, table=first_table), [])
        for other in alike:
            trial = self._trials.get(other)
            if trial is None:
                continue
            question(trial, trial_limits(requirement))
            if trial.is_that_of(run.table.slot_count, run.table.pool_tokens):
                return trial
        alike.append(run)
        return None

    def _table(self, replica: Replica) -> ReplicaTable:
        """Return the table of a replica; equal replicas of several machine types share one."""
        inputs = table_inputs(replica)
        if inputs not in self._tables:
            if len(self._tables) >= MOST_TABLES:
                del self._tables[next(iter(self._tables))]
            self._tables[inputs] = tabulate(inputs)
        return self._tables[inputs]

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
        """Return the requests of a load, whose lengths do not depend on when they arrive."""
        if load.lengths not in self._streams:
            if len(self._streams) >= MOST_STREAMS:
                self._streams.clear()
            self._streams[load.lengths] = RequestStream(load, self._seed)
        return self._streams[load.lengths]


def percentile_bands(
    trial: Trial, batch_count: int
) -> dict[str, tuple[float, float, float]]:
    """Return each percentile that a plan tells with its interval, as batches measured it, ms."""
    bands = {}
    for metric, percentile in itertools.product(METRICS, PERCENTILES):
        measured = trial.percentile(metric, percentile, batch_count)
        bands[f"{metric}_p{percentile}_ms"] = (
            measured.estimate_s * MS_PER_S,
            measured.low_s * MS_PER_S,
            measured.high_s * MS_PER_S,
        )
    return bands


def trial_limits(requirement: ServingRequirement) -> list[TrialLimit]:
    """Return the latency limits of a requirement in seconds."""
    return [
        TrialLimit(
            sla_limit.metric, sla_limit.percentile, float(sla_limit.seconds)
        )
        for sla_limit in requirement.limits
    ]


def _service(
    requirement: ServingRequirement, sizing: FleetSizing
) -> Service | None:
    """Return the service of a replica by formula, with all peak groups up."""
    return predict_service(
        requirement,
        sizing.replica,
        sizing.peak_groups * sizing.replicas_per_group,
    )


def _limit_below(
    requirement: ServingRequirement, least_tpot_s: float
) -> LatencyLimit | None:
    """Return the first limit of the time per token that is below a mean of at least so much."""
    for limit in requirement.limits:
        if (
            limit.metric == "tpot"
            and limit.percentile >= ABOVE_MEAN
            and least_tpot_s > limit.seconds
        ):
            return limit
    return None


def _missed_in(
    trial: Trial,
    requirement: ServingRequirement,
    replica: Replica,
    groups: int | None,
) -> LayoutRejection | None:
    """Return the limit that a trial finds missed, or else the one that it cannot decide."""
    decision = trial.decide(trial_limits(requirement))
    limit = decision.limit
    if limit is None:
        return None
    reached = trial.percentile(
        limit.metric, limit.percentile, decision.batch_count
    )
    return LayoutRejection(
        layout=replica.layout,
        constraint=f"{limit.metric}_p{limit.percentile}",
        reached=reached.estimate_s,
        limit=limit.limit_s,
        groups=groups,
        is_undecided=decision.verdict == "undecided",
    )
