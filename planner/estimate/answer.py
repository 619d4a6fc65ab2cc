"""Predicts one configuration: throughput, latency and memory, each with its band and basis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.estimate.names import RefusedError
from planner.perf import shape, tail
from planner.perf.band import Band, Basis, band, news, outside
from planner.perf.constant import constant
from planner.perf.memory import GIB

if TYPE_CHECKING:
    from planner.perf.setup import Setup
    from planner.perf.shape import Mean, Server

MS: Final = 1000.0
HOPELESS: Final = (
    3.0  # times the predicted capacity: no error of ours explains that
)
P99: Final = 0.99
COLUMNS: Final = (
    "output_tok_s",
    "req_throughput_rps",
    "ttft_ms_mean",
    "ttft_ms_p99",
    "tpot_ms_mean",
    "tpot_ms_p99",
    "e2e_ms_mean",
    "max_batch",
)


@dataclass(frozen=True, slots=True)
class Number:
    """A predicted number with the limits of its 90 % band."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The predicted numbers by column; what does not apply is absent."""

    basis: Basis
    numbers: dict[str, Number]


@dataclass(frozen=True, slots=True)
class _Bands:
    throughput: Band
    tpot: Band
    ttft: Band


def answer(setup: Setup) -> Answer:
    """Predict a configuration; raises RefusedError when it cannot run.

    Throughput is that of the whole deployment in output tokens and requests a second; latency in
    milliseconds; max_batch the requests that one replica has room for.
    """
    server = setup.server()
    if server.room < 1:
        need = setup.terms.weights / GIB
        have = setup.node.memory_gib
        raise RefusedError(
            f"does not fit: weights take {need:,.1f} of {have:,.1f} GiB on each"
        )
    if (
        setup.prefill
        and setup.prefill_terms.weights > setup.prefill_terms.memory
    ):
        raise RefusedError(
            "does not fit: a prefill worker cannot hold the weights"
        )
    new, basis = news(setup.llm, setup.node.accelerator, loose=_loose(setup))
    kind = setup.demand.kind
    far = _outside(setup)
    bands = _Bands(
        *(
            band(x, kind, new, basis, far)
            for x in ("throughput", "tpot", "ttft")
        )
    )
    shown = {
        "offline": _offline,
        "static": _static,
        "closed": _closed,
        "open": _open,
    }[kind]
    numbers = shown(setup, server, bands)
    room = float(math.floor(server.room))
    share = constant("memory_error", "batch")
    numbers["max_batch"] = Number(room, room * (1 - share), room * (1 + share))
    return Answer(basis, numbers)


def _outside(setup: Setup) -> int:
    """How many doublings beyond the measurements; raises RefusedError when that is too far."""
    demand = setup.demand
    far, feature = outside(
        prompt=demand.prompt,
        answer=demand.answer,
        active=setup.llm.active,
        accelerators=setup.layout.accelerators,
        batch=max(1.0, demand.users / setup.replicas),
    )
    if far > constant("too_far"):
        raise RefusedError(
            f"far outside what was measured: {feature}, by {far} doublings"
        )
    return far


def _loose(setup: Setup) -> bool:
    return setup.speculative or setup.prefill is not None


def _offline(setup: Setup, server: Server, bands: _Bands) -> dict[str, Number]:
    return _flow(
        setup, shape.offline(server) * setup.replicas, bands.throughput
    )


def _static(setup: Setup, server: Server, bands: _Bands) -> dict[str, Number]:
    users = max(1.0, setup.demand.users / setup.replicas)
    batch = min(users, server.room)
    found = _flow(
        setup, shape.static(server, batch) * setup.replicas, bands.throughput
    )
    step = (
        shape.pace(server, batch)
        - server.share * batch * server.busy / server.answer
    )
    waves = users / batch - 1
    first = shape.together(server, batch) + waves / 2 * (
        batch * server.busy + setup.demand.answer * step
    )
    return found | _latency(setup, first, step, bands)


def _closed(setup: Setup, server: Server, bands: _Bands) -> dict[str, Number]:
    users = setup.demand.users / setup.replicas
    mean = shape.closed(server, users)
    spent = mean.ttft + (setup.demand.answer - 1) * mean.tpot
    flow = setup.demand.users * setup.demand.answer / spent
    return _flow(setup, flow, bands.tpot, inverse=True) | _late(
        setup, server, mean, bands
    )


def _open(setup: Setup, server: Server, bands: _Bands) -> dict[str, Number]:
    rate = setup.demand.rate / setup.replicas
    most = shape.offline(server) / setup.demand.answer
    if rate > HOPELESS * most:
        reached = most * setup.replicas
        raise RefusedError(
            f"cannot keep up: at most about {reached:,.1f} requests a second"
        )
    served = min(rate, most) * setup.replicas * setup.demand.answer
    late = _unsure(setup, server, rate, bands)
    if (
        rate < most
    ):  # what arrives is served: only the end of the run is uncertain
        lasting = (
            setup.demand.rate
            * late["e2e_ms_mean"].value
            / MS
            / setup.demand.requests
        )
        share = 1 / (1 + lasting)
        off = constant("served_error")
        return (
            _flow(setup, served * share, Band(1 - off, 1 + off, "physics"))
            | late
        )
    return _flow(setup, served, bands.throughput) | late


def _unsure(
    setup: Setup, server: Server, rate: float, bands: _Bands
) -> dict[str, Number]:
    """Latency at a rate, when the capacity may be as far off as a band of throughput says.

    Near saturation a time grows with 1 / (1 - load), so the expected one is the geometric mean
    over capacities. How far it moves from the largest to the smallest widens the band.
    """
    within = bands.throughput
    loads = [
        _late(setup, server, shape.poisson(server, rate / x), bands)
        for x in (within.high, 1.0, within.low)
    ]
    return {name: _over([found[name] for found in loads]) for name in loads[0]}


def _over(found: list[Number]) -> Number:
    fast, usual, slow = (math.log(x.value) for x in found)
    middle = (fast + usual + slow) / 3
    low, high = (
        math.log(x / found[1].value) for x in (found[1].low, found[1].high)
    )
    low, high = math.hypot(low, middle - fast), math.hypot(high, slow - middle)
    return Number(*(math.exp(x) for x in (middle, middle - low, middle + high)))


def _late(
    setup: Setup, server: Server, mean: Mean, bands: _Bands
) -> dict[str, Number]:
    found = _latency(setup, mean.ttft, mean.tpot, bands)
    first = tail.ttft(server, mean, P99) * MS
    found["ttft_ms_p99"] = _within(first, _wider(bands.ttft, "ttft"))
    if "tpot_ms_mean" in found:
        rest = (
            tail.tpot(server, mean, P99, arriving=setup.demand.kind == "open")
            * MS
        )
        found["tpot_ms_p99"] = _within(rest, _wider(bands.tpot, "tpot"))
    return found


def _wider(mean: Band, metric: str) -> Band:
    """The band of a 99th percentile: it errs as its mean does, and in how far it lies above."""
    more = constant("tail_error", metric)
    low, high = (
        math.exp(math.hypot(math.log(x), more)) for x in (mean.low, mean.high)
    )
    return Band(1 / low, high, mean.basis)


def _latency(
    setup: Setup, ttft: float, tpot: float, bands: _Bands
) -> dict[str, Number]:
    """Times in milliseconds; those of a whole answer err as its two parts do."""
    first, rest = _within(ttft * MS, bands.ttft), _within(tpot * MS, bands.tpot)
    more = setup.demand.answer - 1
    value = first.value + more * rest.value
    low, high = (
        math.hypot(a - first.value, more * (b - rest.value))
        for a, b in ((first.low, rest.low), (first.high, rest.high))
    )
    found = {
        "ttft_ms_mean": first,
        "e2e_ms_mean": Number(value, value - low, value + high),
    }
    return found | ({"tpot_ms_mean": rest} if more else {})


def _flow(
    setup: Setup, tokens: float, within: Band, *, inverse: bool = False
) -> dict[str, Number]:
    """Tokens and requests a second; `inverse` when the band is one of times."""
    if inverse:
        within = Band(1 / within.high, 1 / within.low, within.basis)
    requests = tokens / setup.demand.answer
    return {
        "output_tok_s": _within(tokens, within),
        "req_throughput_rps": _within(requests, within),
    }


def _within(value: float, within: Band) -> Number:
    return Number(value, value * within.low, value * within.high)
