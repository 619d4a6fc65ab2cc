"""What a replica reaches in the long run at best, by Little's law instead of a simulation.

n requests in flight get n / step(n) tokens a second. The mean of n bounds the mean of these
tokens by their concave hull (Jensen's inequality), whatever n does meanwhile.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.perf.serving.replica_table import ReplicaTable

# More of the speed is not taken as lost to prompts: what is left of it then would hang on
# prompts that are not their mean.
MOST_SLOWING: Final = 0.5


class ContextLoad(Struct, frozen=True):
    """What requests hold of a KV pool.

    steps           mean decode steps of a request
    context_tokens  mean context of a request that is decoded, tokens
    """

    steps: float
    context_tokens: float


class SteadyState(Struct, frozen=True):
    """What a replica with requests of given lengths reaches at best.

    in_flight     requests in flight at the corners of the hull, from 0
    tokens_per_s  tokens a second at the corners, from 0 to the most
    steps         mean decode steps of a request
    prompts_s     times that some prompts occupy a stage of the pipeline, s
    stage_count   stages of the pipeline
    interference  share of the speed of decoding that prompts take
    """

    in_flight: tuple[float, ...]
    tokens_per_s: tuple[float, ...]
    steps: float
    prompts_s: tuple[float, ...]
    stage_count: float
    interference: float

    def least_tpot(self, rate_per_s: float, variation: float) -> float:
        """Return a lower bound of the mean time per output token, in seconds.

        `variation` is the squared coefficient of variation of interarrival times. The tokens that
        arrive are those that are decoded:
            rate * steps = tokens/s with N in flight * (1 - interference * P(prompts run))
            tpot         = N / (rate * steps)
        It is infinite where more arrives than is ever completed.
        """
        arriving_per_s = rate_per_s * self.steps
        for share in self._prompt_shares(rate_per_s, variation):
            # The first stage has no time for all prompts.
            if share > 1:
                break
            slowing = min(MOST_SLOWING, self.interference * share)
            decoded_per_s = arriving_per_s / (1 - slowing)
            if decoded_per_s <= self.tokens_per_s[-1]:
                return self._least_in_flight(decoded_per_s) / arriving_per_s
        return math.inf

    def _prompt_shares(
        self, rate_per_s: float, variation: float
    ) -> tuple[float, float]:
        """Return the shares of time in which prompts are in any stage and in the first one.

        They exceed 1 where more prompts arrive than the first stage can do.

        The first one is busy for b = rate * mean prompt of the time. When it falls idle, the last
        prompt is in the other stages, until a next one comes. Crowds of k requests leave k times
        as long between them:
            any stage = b + (1 - b) * (1 - mean of exp(-rate / k * (stages - 1) * prompt))
            k         = max(1, (1 + variation) / 2)
        """
        busy_share = rate_per_s * statistics.fmean(self.prompts_s)
        if self.stage_count == 1 or busy_share > 1:
            return busy_share, busy_share
        other_stages = self.stage_count - 1
        crowd_rate = rate_per_s / max(1.0, (1 + variation) / 2)
        none_comes = statistics.fmean(
            math.exp(-crowd_rate * other_stages * prompt_s)
            for prompt_s in self.prompts_s
        )
        return busy_share + (1 - busy_share) * (1 - none_comes), busy_share

    def _least_in_flight(self, tokens_per_s: float) -> float:
        """Return the fewest requests in flight that get so many tokens a second, on the hull."""
        high = max(1, bisect_left(self.tokens_per_s, tokens_per_s))
        low = high - 1
        share = (tokens_per_s - self.tokens_per_s[low]) / (
            self.tokens_per_s[high] - self.tokens_per_s[low]
        )
        return self.in_flight[low] + share * (
            self.in_flight[high] - self.in_flight[low]
        )


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


def steady_state(
    table: ReplicaTable, load: ContextLoad, prompts: Sequence[int]
) -> SteadyState:
    """Return what a replica reaches under a load, with the tokens of some of its prompts.

    With n requests in flight, which hold n * context tokens of the pool in the mean (Little's
    law), it decodes n / step(n, n * context) tokens/s. The pool and the slots bound n. Preemptions
    only take from it.
    """
    most_in_flight = int(
        min(table.slot_count, table.pool_tokens / load.context_tokens + 1)
    )
    corners = _rising_hull(
        [
            (
                in_flight,
                in_flight
                / (
                    table.base_steps_s[in_flight]
                    + table.step_growths_s[in_flight]
                    * in_flight
                    * load.context_tokens
                ),
            )
            for in_flight in range(1, most_in_flight + 1)
        ]
    )
    return SteadyState(
        in_flight=tuple(in_flight for in_flight, _ in corners),
        tokens_per_s=tuple(tokens_per_s for _, tokens_per_s in corners),
        steps=load.steps,
        prompts_s=tuple(map(table.busy_time, prompts)),
        stage_count=table.stage_count,
        interference=1 - table.prompt_decode_speed,
    )


def _rising_hull(
    points: Sequence[tuple[float, float]],
) -> list[tuple[float, float]]:
    """Return the corners of the concave hull of (0, 0) and points to its right, while it rises."""
    corners = [(0.0, 0.0)]
    for x, y in points:
        while len(corners) > 1:
            (x0, y0), (x1, y1) = corners[-2:]
            # A corner on the line from its neighbour to the new point, or below it, is none.
            if (y1 - y0) * (x - x0) > (y - y0) * (x1 - x0):
                break
            corners.pop()
        corners.append((x, y))
    rising = 1 + sum(low[1] < high[1] for low, high in pairwise(corners))
    return corners[:rising]
