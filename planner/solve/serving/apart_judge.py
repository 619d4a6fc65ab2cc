"""Judges pools that compute prompts and pools that answer, each by itself and both in a chain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from planner.numeric import last_true
from planner.perf.serving.hand_over import LinkEnd, hand_over
from planner.perf.serving.load import bin_mean, percentile_bin
from planner.perf.serving.monte_carlo import RequestStream
from planner.perf.serving.pool_chain import (
    PoolChain,
    PoolLoad,
    answer_run,
    prompt_run,
)
from planner.perf.serving.replica_table import table_inputs, tabulate
from planner.perf.serving.trial import Trial
from planner.solve.serving.peak_run import (
    ROUTED_REPLICAS,
    batch_size,
    warm_up_requests,
)
from planner.solve.serving.verify import (
    SEED,
    percentile_bands,
    trial_limits,
)
from planner.solve.solution import SimulationCheck

if TYPE_CHECKING:
    from planner.market.offer import Offer
    from planner.perf.serving.hand_over import HandOver
    from planner.perf.serving.load import ServingLoad
    from planner.perf.serving.replica import Replica
    from planner.perf.serving.replica_table import ReplicaTable, TableInputs
    from planner.perf.serving.trial import SimulatedPercentile
    from planner.solve.serving.requirement import ServingRequirement
    from planner.spec.model import LatencyLimit

Part: TypeAlias = Literal["prompts", "answers"]
PARTS: Final[tuple[Part, Part]] = ("prompts", "answers")
# Prompts that take more of a replica are an overload, which no run ends.
MOST_BUSY: Final = 0.98
# Where nobody waits for others, formulas agree with the simulation but for the lengths that are
# drawn: a percentile of them is within so much of what it is drawn from.
IDLE_FACTOR: Final = 1.05


class ChainEnd(Struct, frozen=True):
    """So many equal replicas of one part, on machines of an offer."""

    offer: Offer
    replica: Replica
    replica_count: int

    @property
    def link_end(self) -> LinkEnd:
        """One of them, with the network of its machine."""
        return LinkEnd(self.replica, self.offer.instance.network_gbps)


class ApartJudge:
    """Simulates pools of one load, and keeps the runs."""

    def __init__(self, load: ServingLoad) -> None:
        self._stream = RequestStream(load, SEED)
        self._tables: dict[TableInputs, ReplicaTable] = {}
        self._trials: dict[object, Trial] = {}

    def misses(
        self,
        requirement: ServingRequirement,
        part: Part,
        replica: Replica,
        replica_count: int,
    ) -> bool:
        """Return whether so many replicas miss a limit with their part of the work alone.

        A whole request takes longer than any part of it, so pools that do not keep the limits by
        themselves are not tried together. One of many equal replicas stands for all of them, a
        few where the router looks for the least loaded.
        """
        limits = trial_limits(part_limits(requirement, part))
        rate_rps = requirement.load.rate_per_s / replica_count
        # An overload has no steady state, and its run would not end.
        if rate_rps >= self.most_rps(part, replica):
            return True
        if not limits:
            return False
        load = requirement.load
        is_coupled = load.routing == "least-loaded"
        played = min(ROUTED_REPLICAS, replica_count) if is_coupled else 1
        trial = self._part_trial(
            requirement,
            part,
            PoolLoad(self._table(replica), played),
            rate_rps=rate_rps * played,
            variation=load.thinned_variation(played / replica_count)
            if is_coupled
            else load.replica_variation(replica_count),
            in_flight=self.in_flight(part, replica, rate_rps) * played,
        )
        return trial.misses(limits)

    def may_start_in_time(
        self,
        requirement: ServingRequirement,
        prompts: ChainEnd | None,
        answers: ChainEnd | None,
    ) -> bool:
        """Return whether first tokens may be in time where requests meet no others, by formula.

        prompt of that percentile + way of its cache + a step <= IDLE_FACTOR * limit

        Without one of both it takes no time there, and its link is like that of the other one: no
        machines are known to hand caches over faster than their own kind.
        """
        ends = [end for end in (prompts, answers) if end is not None]
        link = self.link(ends[0], ends[-1])
        load = requirement.load
        lengths = load.prompt_lengths.bin_lengths()
        for limit in requirement.limits:
            if limit.metric != "ttft":
                continue
            # Without queues the longest prompts have the last first tokens.
            length = lengths[percentile_bin(limit.percentile)]
            first_s = link.seconds(round(length * (1 - load.prefix_hit)))
            if prompts is not None:
                first_s += prompts.replica.idle_quantile(
                    "ttft", limit.percentile
                )
            # The step that computes the last token of the prompt again.
            if answers is not None:
                first_s += answers.replica.tpot(1)
            if first_s > IDLE_FACTOR * float(limit.seconds):
                return False
        return True

    def chain(
        self,
        requirement: ServingRequirement,
        prompts: ChainEnd,
        answers: ChainEnd,
    ) -> Trial:
        """Return the run of both pools together at the peak, every replica simulated."""
        rate_rps = requirement.load.rate_per_s
        prompt_pool, answer_pool = (
            PoolLoad(self._table(end.replica), end.replica_count)
            for end in (prompts, answers)
        )
        link = self.link(prompts, answers)
        key = (prompt_pool, answer_pool, link.layout, link.gb_s, rate_rps)
        if key not in self._trials:
            # Both pools fill up before times are those of a steady state.
            in_flight = sum(
                self.in_flight(part, end.replica, rate_rps / end.replica_count)
                * end.replica_count
                for part, end in zip(PARTS, (prompts, answers), strict=True)
            )
            chain = PoolChain(
                prompt_pool, answer_pool, link, requirement.load.routing
            )
            self._trials[key] = Trial(
                chain.times(
                    self._stream.requests(
                        requirement.load.arrival_variation, rate_rps
                    ),
                    batch_size(requirement, in_flight),
                    warm_up_requests(in_flight),
                )
            )
        return self._trials[key]

    def percentile(
        self,
        requirement: ServingRequirement,
        prompts: ChainEnd,
        answers: ChainEnd,
        limit: LatencyLimit,
    ) -> SimulatedPercentile:
        """Return the percentile that a limit is about, as both pools reach it at the peak."""
        trial = self.chain(requirement, prompts, answers)
        decision = trial.decide(trial_limits(requirement))
        return trial.percentile(
            limit.metric, limit.percentile, decision.batch_count
        )

    def check(
        self,
        requirement: ServingRequirement,
        prompts: ChainEnd,
        answers: ChainEnd,
    ) -> SimulationCheck | None:
        """Return how both pools were judged together, None without a limit."""
        if not requirement.is_simulated:
            return None
        trial = self.chain(requirement, prompts, answers)
        decision = trial.decide(trial_limits(requirement))
        return SimulationCheck(
            request_count=trial.requests_in(decision.batch_count),
            batch_count=decision.batch_count,
            decode_factor=answers.replica.margins.decode,
            prefill_factor=prompts.replica.margins.prefill,
            added_groups=0,
            percentile_bands=percentile_bands(trial, decision.batch_count),
            verdict="holds" if decision.verdict == "holds" else "undecided",
            request_source="drawn",
            routing=requirement.load.routing,
        )

    def link(self, prompts: ChainEnd, answers: ChainEnd) -> HandOver:
        """Return the way of caches between the replicas of two pools."""
        return hand_over(prompts.link_end, answers.link_end)

    def most_rps(self, part: Part, replica: Replica) -> float:
        """Return an upper bound of the requests a second of a replica that has one part.

        prompts: most busy / mean time of a prompt
        answers: n / (answer * tpot(n)), at the largest batch
        """
        if part == "prompts":
            return MOST_BUSY / replica.mean_prompt_s
        return answer_rps(replica, replica.max_batch)

    def most_handed_rps(self, end: ChainEnd) -> float:
        """Return the requests a second whose caches a replica hands over or fetches at most.

        1 / mean time of a cache on the way to a replica of its own kind
        """
        link, load = self.link(end, end), end.replica.load
        return 1 / bin_mean(
            [
                link.seconds(round(tokens * (1 - load.prefix_hit)))
                for tokens in load.prompt_lengths.bin_lengths()
            ]
        )

    def in_flight(self, part: Part, replica: Replica, rate_rps: float) -> float:
        """Return the mean requests in a replica that has one part, by formula."""
        if part == "prompts":
            # M/M/1: the queue with the time in service.
            busy_share = min(MOST_BUSY, rate_rps * replica.mean_prompt_s)
            return busy_share / (1 - busy_share)
        # Little's law: the first batch that completes as much as comes.
        return 1 + last_true(
            lambda batch: answer_rps(replica, batch) <= rate_rps,
            0,
            replica.max_batch - 1,
        )

    def _part_trial(
        self,
        requirement: ServingRequirement,
        part: Part,
        pool: PoolLoad,
        *,
        rate_rps: float,
        variation: float,
        in_flight: float,
    ) -> Trial:
        key = (part, pool, rate_rps, variation)
        if key not in self._trials:
            run = prompt_run if part == "prompts" else answer_run
            self._trials[key] = Trial(
                run(
                    pool,
                    self._stream.requests(variation, rate_rps),
                    requirement.load.routing,
                    batch_size(requirement, in_flight),
                    warm_up_requests(in_flight),
                )
            )
        return self._trials[key]

    def _table(self, replica: Replica) -> ReplicaTable:
        inputs = table_inputs(replica)
        if inputs not in self._tables:
            self._tables[inputs] = tabulate(inputs)
        return self._tables[inputs]


def part_limits(
    requirement: ServingRequirement, part: Part
) -> ServingRequirement:
    """Return the same requirement with the limits that a part of the work alone may miss.

    A pool of prompts has no part in the time per token.
    """
    if part == "answers":
        return requirement
    return replace(
        requirement,
        limits=tuple(
            limit for limit in requirement.limits if limit.metric == "ttft"
        ),
    )


def answer_rps(replica: Replica, batch: int) -> float:
    """Return the requests a second of a replica that answers a batch and computes no prompt.

    n / (answer * tpot(n)), with the time per token without prompts
    """
    if not batch:
        return 0.0
    return batch / (
        replica.load.answer_lengths.mean_tokens
        * replica.undisturbed_tpot(batch)
    )
