"""Sends requests to simulated replicas, and measures what came of them."""

from __future__ import annotations

import math
import random
import statistics
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.perf.physics import first
from planner.perf.simulate import NEVER, Lane, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from planner.perf.load import Arrival, Load, Routing
    from planner.perf.simulate import Machine

WARM: Final = (
    0.15  # share of requests that fill the replica, and are not counted
)
TAIL: Final = 0.05  # share that no arrivals stand behind
STUDENT: Final = (
    0.0,
    0.0,
    6.31,
    2.92,
    2.35,
    2.13,
    2.02,
    1.94,
    1.89,
)  # 90 %, by seeds


def arrivals(
    load: Load, count: int, seed: int, variation: float, rate: float
) -> list[Request]:
    """Draw requests: Gamma gaps of a squared variation, lognormal lengths.

    The same seed gives the same requests.
    """
    draw = random.Random(seed)  # noqa: S311 - a simulation, not a secret
    shape, at, found = 1 / max(variation, 1e-3), 0.0, []
    sigmas = load.prompt.sigma, load.answer.sigma
    means = load.prompt.mean * (1 - load.prefix_hit), load.answer.mean
    middles = [
        math.log(m) - s * s / 2 for m, s in zip(means, sigmas, strict=True)
    ]
    for _ in range(count):
        at += (
            draw.gammavariate(shape, 1 / (shape * rate))
            if rate < NEVER
            else 0.0
        )
        given, wanted = (
            max(1, round(draw.lognormvariate(m, s) if s else math.exp(m)))
            for m, s in zip(middles, sigmas, strict=True)
        )
        found.append(Request(at, given, max(2, wanted)))
    return found


def recorded(
    trace: Sequence[Arrival], load: Load, copies: int, lanes: int, seed: int
) -> list[Request]:
    """Return what `lanes` of `copies` replicas get of a recorded trace, as its router spreads it.

    Prompts are without what the prefix cache holds.
    """
    draw, begin = random.Random(seed), trace[0][0]  # noqa: S311 - a simulation, not a secret
    fresh, found = 1 - load.prefix_hit, []
    for place, (at, given, wanted) in enumerate(trace):
        turn = (
            place + seed
            if load.routing == "round-robin"
            else draw.randrange(copies)
        )
        if turn % copies < lanes:
            prompt = max(1, round(given * fresh))
            found.append(Request(at - begin, prompt, max(2, round(wanted))))
    return found


def busiest(trace: Sequence[Arrival], count: int) -> Sequence[Arrival]:
    """Return the consecutive requests, at most so many, that came fastest."""
    if len(trace) <= count:
        return trace
    last = len(trace) - count
    start = min(
        range(last + 1), key=lambda i: trace[i + count - 1][0] - trace[i][0]
    )
    return trace[start : start + count]


def deliver(
    one: Machine, requests: list[Request], replicas: int, routing: Routing
) -> list[Request]:
    """Send requests to replicas as a router does, and play them to the end; they are changed."""
    lanes = [Lane(one) for _ in range(replicas)]
    draw = random.Random(len(requests))  # noqa: S311 - a simulation, not a secret
    for place, request in enumerate(requests):
        if routing == "round-robin":
            lane = lanes[place % replicas]
        elif routing == "random":
            lane = lanes[draw.randrange(replicas)]
        else:
            lane = _least(lanes, request.due, place)
        lane.queue.append(request)
    for lane in lanes:
        lane.advance(NEVER)
    return requests


def _least(lanes: list[Lane], now: float, place: int) -> Lane:
    """Play all lanes up to now; return the one with the fewest requests, turn by turn."""
    for lane in lanes:
        lane.advance(now)
    count = len(lanes)
    return lanes[
        min(range(count), key=lambda i: (lanes[i].load, (i - place) % count))
    ]


def loop(one: Machine, requests: list[Request], users: int) -> list[Request]:
    """Play a closed loop: each of the users sends the next request when one of theirs ends."""
    lane, waiting = Lane(one), deque(requests)
    for _ in range(min(users, len(waiting))):
        lane.queue.append(waiting.popleft())
    while waiting and lane.load:
        ended = len(lane.done)
        lane.advance(lane.advance(lane.now))
        for request in lane.done[ended:]:
            if waiting:
                following = waiting.popleft()
                following.due = request.end
                lane.queue.append(following)
    lane.advance(NEVER)
    return lane.done


@dataclass(frozen=True, slots=True)
class Measured:
    """A percentile over all simulated requests with its 90 % Monte Carlo band, in seconds."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Run:
    """What a simulation measured, by (metric, percentile)."""

    requests: int
    seeds: int
    found: dict[tuple[str, int], Measured]


def times(one: Machine, played: list[Request]) -> dict[str, list[float]]:
    """Return ttft, tpot and e2e of the requests in the middle of a run."""
    kept = played[
        int(WARM * len(played)) : len(played) - int(TAIL * len(played))
    ]
    c, rates = one.coefficients, one.rates
    started = [
        one.starts
        * (
            c.first_token
            + c.step_wait * x.pace
            + c.prompt_share * (x.begun - x.due + first(rates, x.prompt))
        )
        for x in kept
    ]
    return {
        "ttft": started,
        "tpot": [(x.end - x.first) / (x.answer - 1) for x in kept],
        "e2e": [
            s + x.end - x.first for s, x in zip(started, kept, strict=True)
        ],
    }


def summary(
    runs: list[dict[str, list[float]]], asked: Iterable[tuple[str, int]]
) -> Run:
    """Return percentiles over all runs, and how far they spread from seed to seed."""
    found = {}
    for metric, percentile in sorted(asked):
        every = sorted(x for run in runs for x in run[metric])
        each = [_quantile(sorted(run[metric]), percentile) for run in runs]
        wide = 0.0
        if len(each) > 1:
            quantile = STUDENT[min(len(each), len(STUDENT) - 1)]
            wide = quantile * statistics.stdev(each) / math.sqrt(len(each))
        value = _quantile(every, percentile)
        found[metric, percentile] = Measured(
            value, max(0.0, value - wide), value + wide
        )
    return Run(sum(len(run["ttft"]) for run in runs), len(runs), found)


def _quantile(ordered: list[float], percentile: int) -> float:
    place = max(0, math.ceil(percentile / 100 * len(ordered)) - 1)
    return ordered[place]
