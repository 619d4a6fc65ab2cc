"""A replica under load: its completion rate and its latency percentiles.

Continuous batching is a birth-death process with the completion rate

    mu(n) = n / (prompt + answer * (decode(n) + k * n * prompt / answer))

with n requests in flight. k is the share of prompt time that decoding requests wait for. Waits
of non-Poisson arrivals are scaled by (ca^2 + cs^2) / 2 (Allen and Cunneen).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.numeric import last_true
from planner.perf.common import memory
from planner.perf.serving.coefficients import SERVING
from planner.perf.serving.correction import REFERENCE_BATCH
from planner.perf.serving.drafting import beside_draft, engine_with
from planner.perf.serving.engine import coefficient_keys, find_engine
from planner.perf.serving.error_band import (
    Band,
    assess_novelty,
    error_band,
    extrapolation,
    load_of_accelerator,
    with_draft,
)
from planner.perf.serving.fitted_memory import engine_memory
from planner.perf.serving.load import bin_mean, percentile_bin
from planner.perf.serving.margin import (
    NO_MARGINS,
    benchmark_margins,
    has_own_errors,
    rate_errors,
    rate_margins,
)
from planner.perf.serving.prompt import busy_timer, latency_timer
from planner.perf.serving.service import Service, Wait
from planner.perf.serving.step import (
    NO_DRAFT,
    StepTimes,
    attention_time,
    decode_timer,
    step_times,
)
from planner.perf.serving.work import profile_replica
from planner.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.common.layout import Node, ReplicaLayout
    from planner.perf.serving.correction import Correction
    from planner.perf.serving.load import ServingLoad
    from planner.perf.serving.margin import LimitedMetric, RateMargins
    from planner.perf.serving.step import DecodeTimer


class Confidence(Struct, frozen=True):
    """The required confidence of predictions.

    level       probability that all limits hold together; None takes the predictions
                as they are
    correction  correction from a benchmark, if there is one
    """

    level: float | None = None
    correction: Correction | None = None


class Replica:
    """One replica of a model on a node under a given load, as slow as the confidence asks for.

    metrics         metrics that have a limit, or throughput; they decide the margins
    max_batch       most requests in flight; 0 when the longest context does not fit
    startup_memory  memory of one accelerator after start-up
    open_services   computed services by rate and number of replicas
    """

    def __init__(
        self,
        llm: Llm,
        layout: ReplicaLayout,
        node: Node,
        load: ServingLoad,
        confidence: Confidence | None = None,
        *,
        metrics: tuple[LimitedMetric, ...] = (),
    ) -> None:
        self.llm = llm
        self.layout = layout
        self.node = node
        self.load = load
        self.confidence = confidence or Confidence()
        self.metrics = metrics
        self.engine = engine_with(find_engine(load.engine), load.drafting)
        self.stored_llm = self.engine.stored(llm)
        self.coefficients = SERVING.select(
            coefficient_keys(layout.as_it_is_read, node, self.engine),
            self.engine.software_year,
        )
        self.startup_memory = beside_draft(
            engine_memory(
                llm,
                layout,
                node,
                self.engine,
                self.coefficients,
                token_budget=load.token_budget,
            ),
            llm,
            layout,
            load.drafting,
        )
        # The engine admits a request with its prompt and part of its answer.
        reserved_tokens = (
            load.prompt_lengths.mean_tokens
            + self.coefficients.answer_share * load.answer_lengths.mean_tokens
        )
        self.max_batch = min(
            self.startup_memory.max_sequences,
            self._fitting_batch(reserved_tokens),
        )
        # A replica that cannot hold one longest context is not feasible.
        if self.max_batch and not self._fitting_batch(
            max(load.max_context_tokens, reserved_tokens)
        ):
            self.max_batch = 0
        self._rate_bounds: dict[float, float] = {}
        self._tpot_by_batch: dict[int, float] = {}
        self._rate_by_batch: dict[int, float] = {}
        self.open_services: dict[tuple[float, float], Service | None] = {}

    def _fitting_batch(self, context_tokens: float) -> int:
        """Return how many sequences of `context_tokens` fit in the KV pool."""
        pool_bytes = max(0.0, self.startup_memory.kv_gib) * BYTES_PER_GIB
        return int(
            pool_bytes
            / memory.kv_bytes(self.stored_llm, self.layout, context_tokens)
        )

    @cached_property
    def predicted(self) -> Replica:
        """The same replica without margins: what is expected of it."""
        if self.margins == NO_MARGINS:
            return self
        return Replica(
            self.llm,
            self.layout,
            self.node,
            self.load,
            Confidence(correction=self.confidence.correction),
        )

    @cached_property
    def margins(self) -> RateMargins:
        """Factors on decode steps and on prompts that the confidence asks for."""
        level = self.confidence.level
        if level is None or not self.metrics:
            return NO_MARGINS
        if self.correction:
            return benchmark_margins(
                level,
                self.band("tpot"),
                self.band("ttft"),
                self.metrics,
                rate_errors(
                    self.llm,
                    self.layout,
                    self.node.accelerator,
                    self.load,
                    engine_kind=self.engine.kind,
                    is_borrowed=not has_own_errors(self.engine.kind),
                )
                if self.correction.measured(self.layout)
                else None,
            )
        return rate_margins(
            level,
            self.llm,
            self.layout,
            self.node.accelerator,
            self.load,
            engine_kind=self.engine.kind,
            metrics=self.metrics,
            is_borrowed=not has_own_errors(self.engine.kind),
        )

    @cached_property
    def correction(self) -> Correction | None:
        """Correction from a benchmark of this deployment, or None."""
        correction = self.confidence.correction
        deployment_names = (
            self.llm.model,
            self.node.accelerator.accelerator,
            self.layout.precision,
            self.engine.kind,
        )
        return (
            correction
            if correction is not None and correction.applies(*deployment_names)
            else None
        )

    def band(self, metric: str) -> Band:
        """Return the error band of ttft or tpot.

        A benchmark of this deployment gives its band; otherwise it is the band of all
        measurements. A draft widens both.
        """
        if self.correction:
            # The load is not known here: half the largest batch stands for it.
            half_batch = max(1.0, self.max_batch / 2)
            corrected_band = self.correction.band(
                metric,
                half_batch,
                self.load.decode_context_tokens,
                self.layout,
            )
            # A benchmark runs without guesses: its prompts are random words.
            return (
                corrected_band
                if self.load.drafting is None
                else with_draft(corrected_band)
            )
        novelties, basis = assess_novelty(
            self.llm,
            self.layout,
            self.node.accelerator,
            self.engine.kind,
            # How often guesses are right is assumed.
            unstated_settings=self.load.drafting is not None,
        )
        doublings, _ = extrapolation(
            prompt=self.load.prompt_lengths.mean_tokens,
            answer=self.load.answer_lengths.mean_tokens,
            active=self.llm.active_params,
            accelerators=self.layout.accelerators,
        )
        load_kind, novelties = load_of_accelerator(
            metric,
            "closed",
            self.engine.kind,
            self.node.accelerator,
            novelties,
        )
        return error_band(metric, load_kind, novelties, basis, doublings)

    def bias_factor(self, metric: str, batch_size: float) -> float:
        """Return the factor on ttft or tpot that a benchmark taught, else 1."""
        return (
            self.correction.factor(
                metric, batch_size, self.load.decode_context_tokens
            )
            if self.correction
            else 1.0
        )

    @cached_property
    def step_times(self) -> StepTimes:
        """Times of the terms of a step, in seconds."""
        drafting = self.load.drafting
        return step_times(
            profile_replica(self.llm, self.layout.as_it_is_read, self.node),
            self.coefficients,
            drafting.draft if drafting else NO_DRAFT,
        )

    @cached_property
    def _uncached_tokens(self) -> tuple[float, ...]:
        """Prompt tokens of each length bin outside the prefix cache."""
        return tuple(
            prompt_tokens * (1 - self.load.prefix_hit)
            for prompt_tokens in self.load.prompt_lengths.bin_lengths()
        )

    @cached_property
    def prompt_times_s(self) -> tuple[float, ...]:
        """Seconds that the prompt of each length bin occupies the replica."""
        busy_time = busy_timer(self.step_times)
        return tuple(
            self.margins.prefill * busy_time(prompt_tokens)
            for prompt_tokens in self._uncached_tokens
        )

    @cached_property
    def idle_prompts_s(self) -> tuple[float, ...]:
        """Seconds to the end of the prompt of each length bin when idle."""
        # Share of prompt time before the first token, with the correction.
        prompt_share = (
            self.coefficients.prompt_share
            * self.bias_factor("ttft", REFERENCE_BATCH)
            * self.margins.prefill
        )
        latency = latency_timer(self.step_times)
        return tuple(
            prompt_share * latency(prompt_tokens)
            for prompt_tokens in self._uncached_tokens
        )

    @cached_property
    def mean_prompt_s(self) -> float:
        """Mean seconds that a prompt occupies the replica."""
        return self.prompt_moments[0]

    @cached_property
    def _attention_s(self) -> float:
        return attention_time(self.step_times, self.load.decode_context_tokens)

    @cached_property
    def _decode_time(self) -> DecodeTimer:
        return decode_timer(self.step_times)

    @cached_property
    def _interference_s(self) -> float:
        return (
            # Per token and per request in flight: k * prompt / answer.
            self.coefficients.interference
            * self.mean_prompt_s
            / self.load.answer_lengths.mean_tokens
        )

    @cached_property
    def prompt_moments(self) -> tuple[float, float, float]:
        """First three moments of the occupied time of a prompt: s, s^2, s^3."""
        power_means = (
            bin_mean([busy_s**exponent for busy_s in self.prompt_times_s])
            for exponent in (1, 2, 3)
        )
        return next(power_means), next(power_means), next(power_means)

    def undisturbed_tpot(self, batch_size: int) -> float:
        """Return seconds per token with `batch_size` requests and no prompts."""
        return self.tpot(
            batch_size
        ) - batch_size * self._interference_s * self.bias_factor(
            "tpot", batch_size
        )

    def tpot(self, batch_size: int) -> float:
        """Return the mean seconds per output token.

        n is `batch_size`, the requests in flight, m the margin on decode steps:
            tpot(n) = bias * (m * decode(n) + k * n * prompt / answer)
        """
        tpot_s = self._tpot_by_batch.get(batch_size)
        if tpot_s is None:
            predicted_s = (
                self.margins.decode
                * self._decode_time(batch_size, self._attention_s)
                + batch_size * self._interference_s
            )
            tpot_s = self._tpot_by_batch[batch_size] = (
                predicted_s * self.bias_factor("tpot", batch_size)
            )
        return tpot_s

    def start_delay(self, batch_size: int) -> float:
        """Return the seconds from arrival until a prompt starts, without queueing.

        m * first_token + step_wait * tpot(n): the fixed part and the running decode step. With
        n = 0 nobody decodes, and there is no step to wait for.
        """
        coefficients = self.coefficients
        step_s = self.tpot(batch_size) if batch_size else 0.0
        return self.bias_factor("ttft", batch_size) * (
            self.margins.prefill * coefficients.first_token
            + coefficients.step_wait * step_s
        )

    def completion_rate(self, batch_size: int) -> float:
        """Return the requests completed per second with n = `batch_size` in flight.

        mu(n) = n / (prompt + answer * tpot(n))
        """
        rate_per_s = self._rate_by_batch.get(batch_size)
        if rate_per_s is None:
            # Time of one request in the replica: prompt and all tokens.
            cycle_s = (
                self.mean_prompt_s
                + self.load.answer_lengths.mean_tokens * self.tpot(batch_size)
            )
            rate_per_s = self._rate_by_batch[batch_size] = batch_size / cycle_s
        return rate_per_s

    def rate_bound(self, tpot_limit_s: float) -> float:
        """Return an upper bound of the rate within a limit on time per token.

            rate <= mu(n*) with n* = max { n <= max_batch : tpot(n) <= tpot_limit_s }

        It assumes that mu(n) and tpot(n) both grow with n.
        """
        if tpot_limit_s not in self._rate_bounds:
            self._rate_bounds[tpot_limit_s] = self._find_rate_bound(
                tpot_limit_s
            )
        return self._rate_bounds[tpot_limit_s]

    def _find_rate_bound(self, tpot_limit_s: float) -> float:
        if self.tpot(self.max_batch) <= tpot_limit_s:
            return self.completion_rate(self.max_batch)
        # tpot grows with the batch; a batch of 0 stands for none.
        last_batch = last_true(
            lambda batch_size: self.tpot(batch_size) <= tpot_limit_s,
            0,
            self.max_batch - 1,
        )
        return self.completion_rate(last_batch) if last_batch else 0.0

    def idle_quantile(self, metric: str, percentile: int) -> float:
        """Return a lower bound of a quantile of ttft, tpot or e2e, in s.

        It is that of a request alone on the replica. Times grow with the number of requests in
        flight, so idle quantile <= quantile at any rate.
        """
        bin_index = percentile_bin(percentile)
        if metric == "tpot":
            return self.tpot(1)
        if metric == "ttft":
            return self.start_delay(0) + self.idle_prompts_s[bin_index]
        return (
            self.start_delay(0)
            # The answer length decides the percentile; the prompt is the mean.
            + bin_mean(self.idle_prompts_s)
            + self.tpot(1) * self.load.answer_lengths.bin_lengths()[bin_index]
        )

    def open_service(
        self, rate_per_s: float, replica_count: float = 1
    ) -> Service | None:
        """Return the service of one of `replica_count` replicas at its rate, or None.

        It is computed once: requirements that differ in a limit size the same fleets.
        """
        service_key = (rate_per_s, replica_count)
        if service_key not in self.open_services:
            self.open_services[service_key] = self._predict_open(
                rate_per_s, replica_count
            )
        return self.open_services[service_key]

    def _predict_open(
        self, rate_per_s: float, replica_count: float
    ) -> Service | None:
        """Return the service of a stable queue.

            p(n) ~ product of rate / mu(i) for i = 1..n   up to max_batch
            p(n) ~ p(max_batch) * (rate / mu)^(n - max_batch)   beyond it

        Returns None when the rate reaches the capacity mu = mu(max_batch).
        """
        full_rate_per_s = self.completion_rate(self.max_batch)
        # At capacity the queue grows without limit.
        if rate_per_s >= full_rate_per_s * 0.999:
            return None
        state_weights = [1.0]
        state_weight = 1.0
        total_weight = 1.0
        for batch_size in range(1, self.max_batch + 1):
            # Balance of flow between n - 1 and n: p(n) mu(n) = p(n - 1) rate.
            state_weight *= rate_per_s / self.completion_rate(batch_size)
            state_weights.append(state_weight)
            total_weight += state_weight
            # Further states have no measurable probability.
            if state_weight < 1e-12 * total_weight and batch_size > 8:
                break
        # Beyond max_batch requests queue, and the chances fall geometrically.
        queue_weight = (
            # Sum of the geometric series of the queueing states.
            state_weight * rate_per_s / (full_rate_per_s - rate_per_s)
            if len(state_weights) > self.max_batch
            else 0.0
        )
        total_weight += queue_weight
        probabilities = tuple(
            raw_weight / total_weight for raw_weight in state_weights
        )
        # A request waits for a slot when it meets a full batch.
        wait_probability = (
            (probabilities[-1] + queue_weight / total_weight)
            if queue_weight
            else 0.0
        )
        arrival_variation = self.load.replica_variation(replica_count)
        # Allen and Cunneen: (ca^2 + cs^2) / 2, cs^2 that of answer lengths.
        burst_factor = (
            arrival_variation + self.load.answer_lengths.variation
        ) / 2
        return Service(
            replica=self,
            rate_per_s=rate_per_s,
            probabilities=probabilities,
            slot_wait=Wait(
                # Mean wait of those who wait, as in M/M/c: 1 / (mu - rate).
                wait_probability,
                burst_factor / (full_rate_per_s - rate_per_s),
            ),
            prompt_wait=self._prompt_wait(rate_per_s, arrival_variation),
            arriving_count=1,
            arrival_variation=arrival_variation,
        )

    def closed_service(self, in_flight: float) -> Service:
        """Return the service with a constant number of requests in flight."""
        batch_size = max(1, min(self.max_batch, round(in_flight)))
        rate_per_s = self.completion_rate(batch_size)
        probabilities = (0.0,) * batch_size + (1.0,)
        return Service(
            replica=self,
            rate_per_s=rate_per_s,
            probabilities=probabilities,
            slot_wait=Wait(0.0, 0.0),
            prompt_wait=self._prompt_wait(
                rate_per_s, self.load.arrival_variation
            ),
        )

    def _prompt_wait(self, rate_per_s: float, arrival_variation: float) -> Wait:
        """Return the wait for earlier prompts: M/G/1, scaled for non-Poisson arrivals.

            E[W | W > 0]  = E[S^2] / (2 E[S] (1 - rho)) * (ca^2 + cs^2) / (1 + cs^2)
            E[W^2]        = 2 E[W]^2 + rate * E[S^3] / (3 (1 - rho))   (Takacs)

        S is the occupied time of a prompt, rho = rate * E[S] the probability of a wait.
        """
        first_moment, second_moment, third_moment = self.prompt_moments
        # The limit avoids the pole at 1.
        utilization = min(0.98, rate_per_s * self.mean_prompt_s)
        # Below 0 only by rounding, where all prompts take the same time.
        busy_variation = max(0.0, second_moment / first_moment**2 - 1)
        # Ratio of Allen and Cunneen to Poisson arrivals; 1 for ca^2 = 1.
        burst_factor = (arrival_variation + busy_variation) / (
            1 + busy_variation
        )
        # Equal prompts at equal intervals never wait for each other.
        if burst_factor == 0:
            return Wait(0.0, 0.0)
        mean_wait_s = (
            second_moment
            / (2 * first_moment)
            * burst_factor
            / (1 - utilization)
        )
        # E[W^2] / rho over the squared conditional mean, less 1.
        wait_variation = (
            2 * utilization
            - 1
            + third_moment
            / (3 * first_moment * (1 - utilization) * mean_wait_s**2)
        )
        return Wait(utilization, mean_wait_s, wait_variation)
