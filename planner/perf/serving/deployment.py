"""One fully specified deployment: model, layout, hardware, engine and load."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from planner.perf.serving.coefficients import SERVING, Coefficients
from planner.perf.serving.engine import VARIED_LENGTHS, coefficient_keys
from planner.perf.serving.fitted_memory import default_step_tokens
from planner.perf.serving.load_shape import (
    ReplicaRates,
    TokenCounts,
    kv_transfer_time,
    memory_capacity,
)
from planner.perf.serving.memory import StartupMemory, replica_memory
from planner.perf.serving.prompt import prompt_busy_time, prompt_latency
from planner.perf.serving.step import (
    NO_DRAFT,
    Draft,
    StepTimes,
    step_times,
)
from planner.perf.serving.work import ReplicaProfile, profile_replica

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.common.layout import Node, ReplicaLayout
    from planner.perf.serving.engine import ServingEngine
    from planner.perf.serving.served_rate import LatencyLimits

LoadKind: TypeAlias = Literal["offline", "static", "burst", "closed", "open"]


class Demand(Struct, frozen=True, kw_only=True):
    """Load of a whole deployment; lengths are means in tokens.

    load_kind      offline, static, burst, closed or open
    user_count     requests always in flight (closed), started together as one batch (static), or
                   sent at once and batched as slots are free (burst)
    rate_per_s     requests per second (open)
    length_keys    keys of the variation of lengths: see `engine.coefficient_keys`
    request_count  requests of one run
    message_tokens  tokens between two messages to the client
    limits          limits on 99th percentiles that a rate is asked for, or None
    """

    load_kind: LoadKind
    prompt_tokens: float
    answer_tokens: float
    user_count: float = 0.0
    rate_per_s: float = 0.0
    length_keys: tuple[str, ...] = VARIED_LENGTHS
    request_count: float = math.inf
    message_tokens: float = 1.0
    limits: LatencyLimits | None = None

    @property
    def first_share(self) -> float:
        """Share of the requests of one run that its users send at once, when it starts."""
        return min(1.0, self.user_count / self.request_count)


class Deployment(Struct, frozen=True, kw_only=True):
    """A deployment of `replica_count` equal replicas.

    prefill_workers  number and layout of separate prefill workers; None without disaggregation
    speculative      whether the engine uses speculative decoding
    draft            draft length and gain of speculative decoding, when known
    """

    llm: Llm
    layout: ReplicaLayout
    node: Node
    engine: ServingEngine
    demand: Demand
    replica_count: int = 1
    prefill_workers: tuple[int, ReplicaLayout] | None = None
    speculative: bool = False
    draft: Draft = NO_DRAFT

    @property
    def coefficient_keys(self) -> frozenset[str]:
        """Keys that select the coefficients."""
        return coefficient_keys(
            self.layout, self.node, self.engine, self.demand.length_keys
        )

    @property
    def max_sequences(self) -> float:
        """Largest number of requests that the engine runs at once on a replica."""
        # The limit is for one attention group; ADP runs adp of them.
        return float(
            min(
                self.engine.max_sequences,
                _default_sequences(
                    self.llm, self.layout, self.node, self.engine
                ),
            )
            * self.layout.adp
        )

    @property
    def budget_tokens(self) -> float:
        """Most tokens of a step: as stated, else the engine's default; 0 where none is known."""
        if self.engine.token_budget:
            return float(self.engine.token_budget)
        memory = _startup_memory(self.llm, self.layout, self.node, self.engine)
        if memory is not None:
            return float(memory.max_step_tokens)
        return default_step_tokens(self.engine.kind, self.node.memory_gib)

    @property
    def profile(self) -> ReplicaProfile:
        """Work of one replica in bytes, FLOP and counts."""
        return profile_replica(self.llm, self.layout, self.node)

    @property
    def prefill_profile(self) -> ReplicaProfile:
        """Work of one prefill worker, or of a replica without such workers."""
        return profile_replica(
            self.llm,
            self.prefill_workers[1] if self.prefill_workers else self.layout,
            self.node,
        )

    @property
    def overhead_gib(self) -> float | None:
        """GiB of one accelerator outside weights and KV cache, or None.

        Only the start-up rules of vLLM are known: see `serving.memory`. Other engines have
        None.
        """
        return _overhead_gib(self.llm, self.layout, self.node, self.engine)

    def replica_rates(self) -> ReplicaRates:
        """Return one replica under this load, as input of `load_shape`."""
        demand = self.demand
        layout_and_node = self.layout, self.node
        coefficients, profile, times = _shared_inputs(
            self.llm,
            layout_and_node,
            self.engine,
            demand.length_keys,
            self.draft,
        )
        prompt_busy_s = prompt_busy_time(times, demand.prompt_tokens)
        idle_prompt_s = prompt_latency(times, demand.prompt_tokens)
        # Share of prompt time that decoding requests wait for.
        interference_share = coefficients.interference
        serial_share = 1.0
        if self.prefill_workers:
            prefill_times = step_times(self.prefill_profile, coefficients)
            prompt_busy_s = (
                # The prefill workers share the prompts of all replicas.
                prompt_busy_time(prefill_times, demand.prompt_tokens)
                * self.replica_count
                / self.prefill_workers[0]
            )
            # Decoding starts once the KV cache has crossed the network.
            idle_prompt_s = prompt_latency(
                prefill_times, demand.prompt_tokens
            ) + kv_transfer_time(profile, coefficients, demand.prompt_tokens)
            # Prompts on separate workers do not stop decoding.
            interference_share = serial_share = 0.0
        overhead_gib = self.overhead_gib
        overhead_gib = (
            # Counted start-up memory where known, else the fitted reserve.
            coefficients.reserve_gib if overhead_gib is None else overhead_gib
        )
        # The batch is limited by the engine or by KV memory.
        max_batch = min(
            self.max_sequences,
            memory_capacity(
                profile,
                coefficients,
                self.engine.pool_rule,
                overhead_gib,
                TokenCounts(demand.prompt_tokens, demand.answer_tokens),
            ),
        )
        return ReplicaRates(
            step_times=times,
            coefficients=coefficients,
            prompt_tokens=demand.prompt_tokens,
            answer_tokens=demand.answer_tokens,
            max_batch=max_batch,
            prompt_busy_s=prompt_busy_s,
            idle_prompt_s=idle_prompt_s,
            interference_share=interference_share,
            serial_share=serial_share,
            message_tokens=demand.message_tokens,
            budget_tokens=self.budget_tokens,
            first_share=demand.first_share,
        )


@lru_cache(maxsize=4096)
def _shared_inputs(
    llm: Llm,
    layout_and_node: tuple[ReplicaLayout, Node],
    serving_engine: ServingEngine,
    length_keys: tuple[str, ...],
    speculation: Draft,
) -> tuple[Coefficients, ReplicaProfile, StepTimes]:
    """Return what depends on the deployment but not on its load."""
    layout, node = layout_and_node
    coefficients = SERVING.select(
        coefficient_keys(layout, node, serving_engine, length_keys),
        serving_engine.software_year,
    )
    profile = profile_replica(llm, layout, node)
    return coefficients, profile, step_times(profile, coefficients, speculation)


def _overhead_gib(
    llm: Llm, layout: ReplicaLayout, node: Node, serving_engine: ServingEngine
) -> float | None:
    memory = _startup_memory(llm, layout, node, serving_engine)
    return None if memory is None else memory.overhead_gib


def _default_sequences(
    llm: Llm, layout: ReplicaLayout, node: Node, serving_engine: ServingEngine
) -> float:
    """Return the sequences that an engine runs at once by itself; infinity where unknown."""
    memory = _startup_memory(llm, layout, node, serving_engine)
    if memory is None or not memory.max_sequences:
        return math.inf
    return memory.max_sequences


@lru_cache(maxsize=4096)
def _startup_memory(
    llm: Llm, layout: ReplicaLayout, node: Node, serving_engine: ServingEngine
) -> StartupMemory | None:
    """Return the memory of vLLM after start-up; None of other engines."""
    if not serving_engine.has_startup_rules:
        return None
    return replica_memory(
        llm,
        layout,
        node,
        serving_engine.software_year,
        token_budget=serving_engine.token_budget,
    )
