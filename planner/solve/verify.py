"""Plays the finalists of a search request by request, and replaces those that miss a limit."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from planner.perf import simulate
from planner.perf.play import (
    arrivals,
    busiest,
    deliver,
    loop,
    recorded,
    summary,
    times,
)
from planner.solve.search import Found
from planner.solve.size import serve, spared
from planner.solve.solution import Verified

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.perf.play import Run
    from planner.perf.simulate import Machine, Request
    from planner.solve.bill import Bill
    from planner.solve.need import Need
    from planner.solve.offer import Offer
    from planner.solve.size import Fit

SEEDS: Final = (1, 2, 3)
REQUESTS: Final = 900  # of one replica, for each seed
MOST: Final = (
    6  # fleets that are played before the last is taken with a warning
)
LANES: Final = 4  # replicas that are played together when a router chooses the least loaded
METRICS: Final = ("ttft", "tpot", "e2e")
PERCENTILES: Final = (50, 90, 95, 99)
GROWTH: Final = 8  # a fleet that fails grows by one group in so many
MS: Final = 1000.0


def verified(
    need: Need,
    finalists: Sequence[Found],
    bill: Callable[[Need, Fit, Offer], Bill],
) -> tuple[Found, Verified | None]:
    """Return the cheapest finalist that passes, grown where it has to be, and how it passed.

    Replicas are played at their share of the peak. Fleets are tried in the order of their cost.
    Without latency limits there is nothing to verify.
    """
    if not need.limits or need.mode == "batch":
        return finalists[0], None
    queue = [
        (found.rank, place, found, 0) for place, found in enumerate(finalists)
    ]
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
    shown = {
        f"{m}_p{p}_ms": (x.value * MS, x.low * MS, x.high * MS)
        for (m, p), x in run.found.items()
    }
    return found, Verified(
        requests=run.requests,
        seeds=run.seeds,
        added=added,
        found=shown,
        passed=passed,
        requests_of="trace" if need.trace else "drawn",
        routing=need.load.routing,
    )


def passes(need: Need, run: Run) -> bool:
    """Whether every limit is met over all simulated requests."""
    return all(
        run.found[x.metric, x.percentile].value <= float(x.seconds)
        for x in need.limits
    )


def play(need: Need, fit: Fit) -> Run:
    """Play a fit at the peak with several seeds."""
    one = simulate.of_replica(fit.replica)
    runs = [times(one, _played(need, fit, one, seed)) for seed in SEEDS]
    return summary(runs, itertools.product(METRICS, PERCENTILES))


def _played(need: Need, fit: Fit, one: Machine, seed: int) -> list[Request]:
    """What one replica gets, or several when their router looks at how busy they are."""
    load, copies = need.load, fit.needed * fit.replicas
    if need.mode == "closed":
        requests = arrivals(load, REQUESTS, seed, 1.0, simulate.NEVER)
        return loop(one, requests, max(1, round(load.concurrency / copies)))
    lanes = min(LANES, copies) if load.routing == "least-loaded" else 1
    if need.trace:
        requests = recorded(
            busiest(need.trace, REQUESTS * copies), load, copies, lanes, seed
        )
    else:
        part = lanes / copies
        spread = load.spread(copies) if lanes == 1 else load.thinned(part)
        requests = arrivals(
            load, REQUESTS * lanes, seed, spread, load.rate * part
        )
    return deliver(one, requests, lanes, load.routing)


def _grown(
    need: Need,
    found: Found,
    more: int,
    bill: Callable[[Need, Fit, Offer], Bill],
) -> Found:
    fit = found.fit
    needed = fit.needed + more
    service = serve(need, fit.replica, needed * fit.replicas) or fit.service
    groups = spared(needed, fit.span, need.availability)
    larger = replace(fit, needed=needed, groups=groups, service=service)
    return Found(
        offer=found.offer, fit=larger, bill=bill(need, larger, found.offer)
    )
