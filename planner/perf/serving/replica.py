"""A replica under load: how much it can take, and how late tokens are, to the percentile.

Continuous batching is a birth-death process: with n requests in flight a replica completes
    mu(n) = n / (prefill + answer * decode(n) + k * n * prefill)
requests a second, k being the share of prompts' time that decoding requests pay. Arrivals that
vary more or less than Poisson scale the waits by Allen and Cunneen's (ca^2 + cs^2) / 2.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from planner.perf.common import memory
from planner.perf.serving import memory as startup
from planner.perf.serving.coefficients import SERVING
from planner.perf.serving.correction import REFERENCE_BATCH
from planner.perf.serving.engine import coefficient_keys, find_engine
from planner.perf.serving.error_band import (
    Band,
    assess_novelty,
    error_band,
    extrapolation,
)
from planner.perf.serving.load import bin_mean, percentile_bin
from planner.perf.serving.service import Service, Wait
from planner.perf.serving.step import (
    StepTimes,
    attention_time,
    decode_time,
    prompt_busy_time,
    prompt_latency,
    step_times,
)
from planner.perf.serving.work import profile_replica

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.common.layout import Node, ReplicaLayout
    from planner.perf.serving.correction import Correction
    from planner.perf.serving.load import ServingLoad

SERVING_ENGINE: Final = find_engine(
    "vllm"
)  # what the boot script of a node starts
BAND_LOAD: Final = "closed vllm"  # the load whose bands apply to it
NO_MARGIN_LEVEL: Final = 0.5  # a confidence that asks for no margin


@dataclass(frozen=True, slots=True)
class Confidence:
    """With which confidence predictions are to hold, and what a benchmark taught about them."""

    level: float = NO_MARGIN_LEVEL
    correction: Correction | None = None


class Replica:
    """One replica of a model in a layout on a node under an engine, for a given load."""

    def __init__(
        self,
        llm: Llm,
        layout: ReplicaLayout,
        node: Node,
        load: ServingLoad,
        confidence: Confidence | None = None,
    ) -> None:
        self.llm = llm
        self.layout = layout
        self.node = node
        self.load = load
        self.confidence = confidence or Confidence()
        self.margins: dict[str, float] = {}
        self.coefficients = SERVING.select(
            coefficient_keys(layout, node, SERVING_ENGINE),
            SERVING_ENGINE.software_year,
        )
        self.startup_memory = startup.replica_memory(
            llm, layout, node, SERVING_ENGINE.software_year
        )
        reserved_tokens = (
            load.prompt_lengths.mean_tokens
            + self.coefficients.answer_share * load.answer_lengths.mean_tokens
        )
        self.max_batch = min(
            self.startup_memory.max_sequences,
            self._fitting_batch(reserved_tokens),
        )
        if self.max_batch and not self._fitting_batch(
            max(load.max_context_tokens, reserved_tokens)
        ):
            self.max_batch = 0
        self._rate_bounds: dict[float, float] = {}
        self._tpot_by_batch: dict[int, float] = {}
        self._rate_by_batch: dict[int, float] = {}

    def _fitting_batch(self, context_tokens: float) -> int:
        """How many sequences of so many tokens the pool holds."""
        pool_bytes = max(0.0, self.startup_memory.kv_gib) * memory.GIB
        return int(
            pool_bytes / memory.kv_bytes(self.llm, self.layout, context_tokens)
        )

    def with_confidence(self, level: float) -> Replica:
        """The same replica for another confidence; what is known of its pace is shared."""
        replica_copy = copy(self)
        replica_copy.confidence = replace(self.confidence, level=level)
        replica_copy.margins = {}
        return replica_copy

    @cached_property
    def correction(self) -> Correction | None:
        """What a benchmark of this model on this accelerator taught."""
        correction = self.confidence.correction
        deployment_names = (
            self.llm.model,
            self.node.accelerator.accelerator,
            self.layout.precision,
        )
        return (
            correction
            if correction is not None and correction.applies(*deployment_names)
            else None
        )

    def band(self, metric: str) -> Band:
        """The band of ttft or tpot: of this deployment when it was measured, else of all."""
        if self.correction:
            half_batch = max(1.0, self.max_batch / 2)
            return self.correction.band(
                metric,
                half_batch,
                self.load.decode_context_tokens,
                self.layout.tp,
            )
        novelties, basis = assess_novelty(self.llm, self.node.accelerator)
        doublings, _ = extrapolation(
            prompt=self.load.prompt_lengths.mean_tokens,
            answer=self.load.answer_lengths.mean_tokens,
            active=self.llm.active_params,
            accelerators=self.layout.accelerators,
        )
        return error_band(metric, BAND_LOAD, novelties, basis, doublings)

    def _bias_factor(self, metric: str, batch_size: float) -> float:
        return (
            self.correction.factor(
                metric, batch_size, self.load.decode_context_tokens
            )
            if self.correction
            else 1.0
        )

    def margin(self, metric: str) -> float:
        """The factor on a predicted time that covers it with the wished confidence, at least 1.

        A whole request takes the larger of the margins of its two parts.
        """
        time_factor = self.margins.get(metric)
        if time_factor is None:
            time_factor = self.margins[metric] = self._compute_margin(metric)
        return time_factor

    def _compute_margin(self, metric: str) -> float:
        if self.confidence.level <= NO_MARGIN_LEVEL:
            return 1.0
        part_metrics = ("ttft", "tpot") if metric == "e2e" else (metric,)
        return max(
            1.0,
            *(
                self.band(part_metric).quantile(self.confidence.level)
                for part_metric in part_metrics
            ),
        )

    @cached_property
    def step_times(self) -> StepTimes:
        """The seconds of the terms of step time."""
        return step_times(
            profile_replica(self.llm, self.layout, self.node), self.coefficients
        )

    @cached_property
    def _uncached_tokens(self) -> tuple[float, ...]:
        """Prompts of the lengths that stand for all, without what the prefix cache holds."""
        return tuple(
            prompt_tokens * (1 - self.load.prefix_hit)
            for prompt_tokens in self.load.prompt_lengths.bin_lengths()
        )

    @cached_property
    def prompt_times_s(self) -> tuple[float, ...]:
        """Seconds for which those prompts keep the replica busy."""
        return tuple(
            prompt_busy_time(self.step_times, prompt_tokens)
            for prompt_tokens in self._uncached_tokens
        )

    @cached_property
    def idle_prompts_s(self) -> tuple[float, ...]:
        """Seconds until the end of those prompts on an idle replica."""
        prompt_share = self.coefficients.prompt_share * self._bias_factor(
            "ttft", REFERENCE_BATCH
        )
        return tuple(
            prompt_share * prompt_latency(self.step_times, prompt_tokens)
            for prompt_tokens in self._uncached_tokens
        )

    @cached_property
    def mean_prompt_s(self) -> float:
        """Mean seconds for which a prompt keeps the replica busy."""
        return self.prompt_moments[0]

    @cached_property
    def _attention_s(self) -> float:
        return attention_time(self.step_times, self.load.decode_context_tokens)

    @cached_property
    def _interference_s(self) -> float:
        return (
            self.coefficients.interference
            * self.mean_prompt_s
            / self.load.answer_lengths.mean_tokens
        )

    @cached_property
    def prompt_moments(self) -> tuple[float, float, float]:
        """First three moments of the time for which prompts keep the replica busy."""
        power_means = (
            bin_mean([busy_s**exponent for busy_s in self.prompt_times_s])
            for exponent in (1, 2, 3)
        )
        return next(power_means), next(power_means), next(power_means)

    def undisturbed_tpot(self, batch_size: int) -> float:
        """Seconds per output token with n in flight and no prompt between."""
        return self.tpot(
            batch_size
        ) - batch_size * self._interference_s * self._bias_factor(
            "tpot", batch_size
        )

    def tpot(self, batch_size: int) -> float:
        """Seconds per output token with n in flight: decode + k * n * prefill / answer."""
        tpot_s = self._tpot_by_batch.get(batch_size)
        if tpot_s is None:
            predicted_s = (
                decode_time(self.step_times, batch_size, self._attention_s)
                + batch_size * self._interference_s
            )
            tpot_s = self._tpot_by_batch[batch_size] = (
                predicted_s * self._bias_factor("tpot", batch_size)
            )
        return tpot_s

    def start_delay(self, batch_size: int) -> float:
        """Seconds before a prompt starts with n in flight: arrival, and the running step."""
        coefficients = self.coefficients
        return self._bias_factor("ttft", batch_size) * (
            coefficients.first_token
            + coefficients.step_wait * self.tpot(batch_size)
        )

    def completion_rate(self, batch_size: int) -> float:
        """Requests completed a second with n in flight."""
        rate_per_s = self._rate_by_batch.get(batch_size)
        if rate_per_s is None:
            cycle_s = (
                self.mean_prompt_s
                + self.load.answer_lengths.mean_tokens * self.tpot(batch_size)
            )
            rate_per_s = self._rate_by_batch[batch_size] = batch_size / cycle_s
        return rate_per_s

    def rate_bound(self, tpot_limit_s: float) -> float:
        """A rate that no load can exceed while the time per token stays within `tpot_limit_s`.

        completion() grows with n and tpot() too, so the largest admissible n gives the bound.
        """
        if tpot_limit_s not in self._rate_bounds:
            self._rate_bounds[tpot_limit_s] = self._find_rate_bound(
                tpot_limit_s
            )
        return self._rate_bounds[tpot_limit_s]

    def _find_rate_bound(self, tpot_limit_s: float) -> float:
        lower_batch = 0
        upper_batch = self.max_batch
        while lower_batch < upper_batch:
            middle_batch = (lower_batch + upper_batch + 1) // 2
            if self.tpot(middle_batch) <= tpot_limit_s:
                lower_batch = middle_batch
            else:
                upper_batch = middle_batch - 1
        return self.completion_rate(lower_batch) if lower_batch else 0.0

    def idle_quantile(self, metric: str, percentile: int) -> float:
        """The assured quantile of ttft, tpot or e2e when nobody else is there: its best."""
        return self._predicted_idle(metric, percentile) * self.margin(metric)

    def _predicted_idle(self, metric: str, percentile: int) -> float:
        bin_index = percentile_bin(percentile)
        if metric == "tpot":
            return self.tpot(1)
        if metric == "ttft":
            return self.start_delay(1) + self.idle_prompts_s[bin_index]
        return (
            self.start_delay(1)
            + bin_mean(self.idle_prompts_s)
            + self.tpot(1) * self.load.answer_lengths.bin_lengths()[bin_index]
        )

    def open_service(
        self, rate_per_s: float, replica_count: int = 1
    ) -> Service | None:
        """Return the service of one of some replicas at its rate, nothing if it cannot keep up."""
        full_rate_per_s = self.completion_rate(self.max_batch)
        if rate_per_s >= full_rate_per_s * 0.999:
            return None
        state_weights = [1.0]
        state_weight = 1.0
        total_weight = 1.0
        for batch_size in range(1, self.max_batch + 1):
            state_weight *= rate_per_s / self.completion_rate(batch_size)
            state_weights.append(state_weight)
            total_weight += state_weight
            if state_weight < 1e-12 * total_weight and batch_size > 8:
                break
        # Beyond max_batch requests queue, and the chances fall geometrically.
        queue_weight = (
            state_weight * rate_per_s / (full_rate_per_s - rate_per_s)
            if len(state_weights) > self.max_batch
            else 0.0
        )
        total_weight += queue_weight
        probabilities = tuple(
            raw_weight / total_weight for raw_weight in state_weights
        )
        wait_probability = (
            (probabilities[-1] + queue_weight / total_weight)
            if queue_weight
            else 0.0
        )
        arrival_variation = self.load.replica_variation(replica_count)
        burst_factor = (
            arrival_variation + self.load.answer_lengths.variation
        ) / 2
        return Service(
            replica=self,
            rate_per_s=rate_per_s,
            probabilities=probabilities,
            slot_wait=Wait(
                wait_probability, burst_factor / (full_rate_per_s - rate_per_s)
            ),
            prompt_wait=self._prompt_wait(rate_per_s, arrival_variation),
            arriving_count=1,
            arrival_variation=arrival_variation,
        )

    def closed_service(self, in_flight: float) -> Service:
        """Return the service with a constant number of requests in flight, up to max_batch."""
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
        """Wait for earlier prompts: one server, M/G/1 corrected for the arrivals.

        Takacs' second moment: E[W^2] = 2 E[W]^2 + rate * E[S^3] / (3 (1 - busy)).
        """
        first_moment, second_moment, third_moment = self.prompt_moments
        utilization = min(0.98, rate_per_s * self.mean_prompt_s)
        busy_variation = second_moment / first_moment**2 - 1
        burst_factor = (arrival_variation + busy_variation) / (
            1 + busy_variation
        )
        mean_wait_s = (
            second_moment
            / (2 * first_moment)
            * burst_factor
            / (1 - utilization)
        )
        wait_variation = (
            2 * utilization
            - 1
            + third_moment
            / (3 * first_moment * (1 - utilization) * mean_wait_s**2)
        )
        return Wait(utilization, mean_wait_s, wait_variation)
