"""The requests a second beyond which a replica falls behind for ever: its KV pool is full."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.perf.serving.simulation import ReplicaTable


class ContextLoad(Struct, frozen=True):
    """What requests hold of a KV pool.

    steps           mean decode steps of a request
    context_tokens  mean context of a request that is decoded, tokens
    """

    steps: float
    context_tokens: float


def context_load(lengths: Sequence[tuple[int, int]]) -> ContextLoad:
    """Return what requests hold, by the tokens of their prompts and answers.

    The first token of an answer comes with the prompt. A request of prompt P is decoded in the
    D = A - 1 steps of the others, with contexts from P to P + D:
        context = mean of (P * D + D^2 / 2) / mean of D
    """
    steps = statistics.fmean(answer - 1 for _, answer in lengths)
    token_steps = statistics.fmean(
        prompt * (answer - 1) + (answer - 1) ** 2 / 2
        for prompt, answer in lengths
    )
    return ContextLoad(steps, token_steps / steps)


def most_rate(table: ReplicaTable, load: ContextLoad) -> float:
    """Return an upper bound of the requests a second that a replica completes, for ever.

    With n requests in flight, which hold n * context tokens of the pool in the mean (Little's
    law), a replica that does nothing but decode completes

        n / (steps * step(n, n * context)) requests/s

    That is a concave function of n, so the mean of n bounds the mean rate, and the pool and the
    slots bound n. Prompts, preemptions and bursts only take from it.
    """
    most_in_flight = int(
        min(table.slot_count, table.pool_tokens / load.context_tokens + 1)
    )
    return max(
        (
            in_flight
            / (
                load.steps
                * (
                    table.base_steps_s[in_flight]
                    + table.step_growths_s[in_flight]
                    * in_flight
                    * load.context_tokens
                )
            )
            for in_flight in range(1, most_in_flight + 1)
        ),
        default=0.0,
    )
