"""What a replica reaches in the long run at best, by Little's law instead of a simulation.

n requests in flight get n / step(n) tokens a second. The mean of n bounds the mean of these
tokens by their concave hull (Jensen's inequality), whatever n does meanwhile.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from itertools import pairwise
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


class SteadyState(Struct, frozen=True):
    """What a replica with requests of given lengths reaches at best.

    in_flight     requests in flight at the corners of the hull, from 0
    tokens_per_s  tokens a second at the corners, from 0 to the most
    steps         mean decode steps of a request
    prompt_s      mean time that a prompt occupies a stage of the pipeline, s
    stage_count   stages of the pipeline
    interference  share of the speed of decoding that prompts take
    """

    in_flight: tuple[float, ...]
    tokens_per_s: tuple[float, ...]
    steps: float
    prompt_s: float
    stage_count: float
    interference: float

    @property
    def most_rate(self) -> float:
        """Upper bound of the requests a second that are completed, for ever.

        It is 1 / (steps / most tokens a second + interference * prompt): each request takes the
        time of its steps, and that in which its prompt stops those of others.
        """
        most_tokens_per_s = self.tokens_per_s[-1]
        if not most_tokens_per_s:
            return 0.0
        return 1 / (
            self.steps / most_tokens_per_s + self.interference * self.prompt_s
        )

    def least_tpot(self, rate_per_s: float, variation: float) -> float:
        """Return a lower bound of the mean time per output token, in seconds.

        `variation` is the squared coefficient of variation of interarrival times. The tokens that
        arrive are those that are decoded:
            rate * steps = tokens/s with N in flight * (1 - interference * P(prompts run))
            tpot         = N / (rate * steps)
        It is infinite where more arrives than is ever completed.
        """
        if rate_per_s > self.most_rate:
            return math.inf
        arriving_per_s = rate_per_s * self.steps
        decoded_per_s, least_decoded_per_s = (
            arriving_per_s / (1 - self.interference * share)
            for share in self._prompt_shares(rate_per_s, variation)
        )
        if decoded_per_s > self.tokens_per_s[-1]:
            decoded_per_s = least_decoded_per_s
        return self._least_in_flight(decoded_per_s) / arriving_per_s

    def _prompt_shares(
        self, rate_per_s: float, variation: float
    ) -> tuple[float, float]:
        """Return the shares of time in which prompts are in any stage and in the first one.

        The first one is busy for b = rate * prompt of the time. When it falls idle, the last
        prompts are in the other stages, until a next one comes. Crowds of k requests leave k times
        as long between them:
            any stage = b + (1 - b) * (1 - exp(-rate / k * (stages - 1) * prompt))
            k         = max(1, (1 + variation) / 2)
        """
        busy_share = rate_per_s * self.prompt_s
        crowd_rate = rate_per_s / max(1.0, (1 + variation) / 2)
        next_comes = -math.expm1(
            -crowd_rate * (self.stage_count - 1) * self.prompt_s
        )
        return busy_share + (1 - busy_share) * next_comes, busy_share

    def _least_in_flight(self, tokens_per_s: float) -> float:
        """Return the fewest requests in flight that get so many tokens a second, on the hull."""
        high = min(
            max(1, bisect_left(self.tokens_per_s, tokens_per_s)),
            # Rounding at the most rate.
            len(self.tokens_per_s) - 1,
        )
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
        prompt_s=statistics.fmean(map(table.busy_time, prompts)),
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
