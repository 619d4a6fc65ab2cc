"""Tabulated times and limits of one replica."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.perf.common import memory
from planner.perf.serving.correction import REFERENCE_BATCH
from planner.perf.serving.prompt import busy_timer, latency_timer
from planner.perf.serving.step import attention_time, decode_timer
from planner.perf.serving.work import UNLIMITED_TOKENS
from planner.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from planner.perf.serving.coefficients import Coefficients
    from planner.perf.serving.correction import Correction
    from planner.perf.serving.margin import RateMargins
    from planner.perf.serving.prompt import PromptTimer
    from planner.perf.serving.replica import Replica
    from planner.perf.serving.step import StepTimes

# Speed of decoding that is left when a prompt takes everything.
MIN_DECODE_SPEED: Final = 1e-3


class TableInputs(Struct, frozen=True):
    """All that the table of a replica is computed from: equal inputs have the same table.

    step_times      times of the terms of a step
    coefficients    of the engine on this hardware
    margins         factors that the confidence asks for
    correction      what a benchmark taught
    slot_count      most requests in flight
    pool_tokens     tokens of the KV pool
    context_tokens  mean context of a decode step
    token_budget    most prompt tokens of a step
    """

    step_times: StepTimes
    coefficients: Coefficients
    margins: RateMargins
    correction: Correction | None
    slot_count: int
    pool_tokens: float
    context_tokens: float
    token_budget: float


class ReplicaTable(Struct, frozen=True, eq=False):
    """Tabulated times and limits of one replica. It is equal to no other table.

    base_steps_s         step time without context-dependent reads, by batch, s
    step_growths_s       step time added by one token of context, by batch, s
    busy_time            seconds that a prompt of so many tokens occupies the replica
    prompt_latency       seconds of a prompt of so many tokens on an idle replica
    pool_tokens          tokens of the KV pool
    answer_share         share of an answer reserved in the pool at admission
    slot_count           most requests in flight
    token_budget         most prompt tokens of a step
    stage_count          stages of the pipeline
    prompt_decode_speed  speed of decoding while a prompt runs, relative to full speed
    prompt_factor        margin on the time before the first token
    ttft_factor          correction of the time to first token from a benchmark
    """

    base_steps_s: tuple[float, ...]
    step_growths_s: tuple[float, ...]
    step_times: StepTimes
    busy_time: PromptTimer
    prompt_latency: PromptTimer
    coefficients: Coefficients
    pool_tokens: float
    answer_share: float
    slot_count: int
    token_budget: float
    stage_count: float
    prompt_decode_speed: float
    prompt_factor: float = 1.0
    ttft_factor: float = 1.0


def tabulate_times(
    times: StepTimes,
    coefficients: Coefficients,
    slot_count: int,
    pool_tokens: float,
    context_tokens: float,
    *,
    token_budget: float = UNLIMITED_TOKENS,
) -> ReplicaTable:
    """Tabulate the times of a replica for each batch up to `slot_count`.

        step(n, S) = base(n) + growth(n) * S

    Reads of sliding windows and the limit of sparse attention are those of a request with a
    mean context of `context_tokens`.
    """
    # Attention without the full layers, whose reads grow with context.
    fixed_attention_s = (
        attention_time(times, context_tokens) - times.kv_full_s * context_tokens
    )
    decode_time = decode_timer(times)
    base_steps_s = [0.0]
    step_growths_s = [0.0]
    for batch_size in range(1, slot_count + 1):
        base_steps_s.append(decode_time(batch_size, fixed_attention_s))
        step_growths_s.append(
            # Sequences of one accelerator in one stage, as in decode_time.
            max(max(batch_size / times.pp, 1.0) / times.adp, 1.0)
            / batch_size
            * times.kv_full_s
            # Speculative decoding yields several tokens in each step.
            / times.draft.tokens_per_step
        )
    return ReplicaTable(
        base_steps_s=tuple(base_steps_s),
        step_growths_s=tuple(step_growths_s),
        step_times=times,
        # The same requests meet many fleets of a replica.
        busy_time=cache(busy_timer(times)),
        prompt_latency=cache(latency_timer(times)),
        coefficients=coefficients,
        pool_tokens=pool_tokens,
        answer_share=coefficients.answer_share,
        slot_count=slot_count,
        token_budget=token_budget,
        stage_count=times.pp,
        prompt_decode_speed=max(
            # Interference above 1 would stop decoding altogether.
            MIN_DECODE_SPEED,
            1 - coefficients.interference,
        ),
    )


def table_inputs(replica: Replica) -> TableInputs:
    """Return what the table of a replica under its load is computed from."""
    context_tokens = replica.load.decode_context_tokens
    # Mean KV bytes per token, page rounding and windows included.
    token_bytes = (
        memory.kv_bytes(replica.stored_llm, replica.layout, context_tokens)
        / context_tokens
    )
    return TableInputs(
        step_times=replica.step_times,
        coefficients=replica.coefficients,
        margins=replica.margins,
        correction=replica.correction,
        slot_count=replica.max_batch,
        pool_tokens=replica.startup_memory.kv_gib * BYTES_PER_GIB / token_bytes,
        context_tokens=context_tokens,
        token_budget=replica.startup_memory.max_step_tokens,
    )


def tabulate_replica(replica: Replica) -> ReplicaTable:
    """Tabulate a replica under its load, with its margins and the correction from a benchmark."""
    return tabulate(table_inputs(replica))


def tabulate(inputs: TableInputs) -> ReplicaTable:
    """Tabulate the times of a replica, with margins and the correction from a benchmark."""
    replica_table = tabulate_times(
        inputs.step_times,
        inputs.coefficients,
        inputs.slot_count,
        inputs.pool_tokens,
        inputs.context_tokens,
        token_budget=inputs.token_budget,
    )
    margins = inputs.margins
    tpot_factors = [
        margins.decode * _bias_factor(inputs, "tpot", batch_size)
        for batch_size in range(inputs.slot_count + 1)
    ]
    # Kept with the margin alone, and not without it too.
    busy_time = busy_timer(inputs.step_times)
    return replace(
        replica_table,
        base_steps_s=_scaled(replica_table.base_steps_s, tpot_factors),
        step_growths_s=_scaled(replica_table.step_growths_s, tpot_factors),
        busy_time=cache(
            lambda prompt_tokens: margins.prefill * busy_time(prompt_tokens)
        ),
        prompt_factor=margins.prefill,
        ttft_factor=_bias_factor(inputs, "ttft", int(REFERENCE_BATCH)),
    )


def _bias_factor(inputs: TableInputs, metric: str, batch_size: int) -> float:
    """Return the factor on ttft or tpot that a benchmark taught, else 1."""
    if inputs.correction is None:
        return 1.0
    return inputs.correction.factor(metric, batch_size, inputs.context_tokens)


def _scaled(
    times_s: tuple[float, ...], factors: list[float]
) -> tuple[float, ...]:
    return tuple(
        time_s * factor for time_s, factor in zip(times_s, factors, strict=True)
    )
