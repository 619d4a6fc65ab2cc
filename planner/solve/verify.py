"""Plays the finalists of a search request by request, and replaces those that miss a limit."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from planner.perf import simulate
from planner.solve.search import Found
from planner.solve.size import serve, spared
from planner.solve.solution import Verified

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.solve.bill import Bill
    from planner.solve.need import Need
    from planner.solve.offer import Offer
    from planner.solve.size import Fit

SEEDS: Final = (1, 2, 3)
REQUESTS: Final = 900  # of one replica, for each seed
MOST: Final = 6  # fleets that are played before the last is taken with a warning
GROWTH: Final = 8  # a fleet that fails grows by one group in so many
MS: Final = 1000.0


def verified(
    need: Need, finalists: Sequence[Found], bill: Callable[[Need, Fit, Offer], Bill]
) -> tuple[Found, Verified | None]:
    """Return the cheapest finalist that passes, grown where it has to be, and how it passed.

    One replica is played at its share of the peak, with bursts thinned at random. Fleets are
    tried in the order of their cost. Without latency limits there is nothing to verify.
    """
    if not need.limits or need.mode == "batch":
        return finalists[0], None
    queue = [(found.rank, place, found, 0) for place, found in enumerate(finalists)]
    heapq.heapify(queue)
    for turn in range(MOST):
        _, place, found, added = heapq.heappop(queue)
        run = play(need, found.fit)
        if turn == MOST - 1 or passes(need, run):
            break
        more = max(1, found.fit.needed // GROWTH)
        larger = _grown(need, found, more, bill)
        heapq.heappush(queue, (larger.rank, place, larger, added + more))
    passed = passes(need, run)
    shown = {f"{m}_p{p}_ms": (x.value * MS, x.low * MS, x.high * MS)
             for (m, p), x in run.found.items()}  # fmt: skip
    return found, Verified(run.requests, run.seeds, added, shown, passed)


def passes(need: Need, run: simulate.Run) -> bool:
    """Whether every limit is met over all simulated requests."""
    return all(run.found[x.metric, x.percentile].value <= float(x.seconds) for x in need.limits)


def play(need: Need, fit: Fit) -> simulate.Run:
    """Play one replica of a fit at the peak with several seeds."""
    one = simulate.of_replica(fit.replica)
    copies = fit.needed * fit.replicas
    asked = {(x.metric, x.percentile) for x in need.limits}
    runs = []
    for seed in SEEDS:
        if need.mode == "closed":
            users = max(1, round(need.load.concurrency / copies))
            requests = simulate.arrivals(need.load, REQUESTS, seed, 1.0, simulate.NEVER)
            played = simulate.loop(one, requests, users)
        else:
            # A share 1 / n of a renewal process, taken at random.
            thinned = 1 + (need.load.variation - 1) / copies
            rate = need.load.rate / copies
            requests = simulate.arrivals(need.load, REQUESTS, seed, thinned, rate)
            played = simulate.play(one, requests, 1, "random")
        runs.append(simulate.times(one, played))
    return simulate.summary(runs, asked)


def _grown(need: Need, found: Found, more: int, bill: Callable[[Need, Fit, Offer], Bill]) -> Found:
    fit = found.fit
    needed = fit.needed + more
    service = serve(need, fit.replica, needed * fit.replicas) or fit.service
    groups = spared(needed, fit.span, need.availability)
    larger = replace(fit, needed=needed, groups=groups, service=service)
    return Found(offer=found.offer, fit=larger, bill=bill(need, larger, found.offer))
