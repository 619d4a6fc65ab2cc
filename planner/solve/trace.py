"""Recorded traffic: a file of arrivals, and the rate, lengths and bursts that it shows."""

from __future__ import annotations

import csv
import itertools
import math
import statistics
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner.errors import Place, Problem, SpecError
from planner.spec.model import Tokens, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.perf.load import Arrival

FEWEST: Final = 100
MINUTE: Final = 60
WILDEST: Final = 20.0  # the largest burstiness that a spec may name


def read_trace(path: str, read: Callable[[str], bytes]) -> tuple[Arrival, ...]:
    """Return the requests of a trace in the order of their times; raises SpecError."""
    lines = csv.DictReader(
        read(path).decode("utf-8-sig", "replace").splitlines()
    )
    found = []
    for row in lines:
        try:
            at, given, wanted = (
                _number(row[name])
                for name in ("timestamp", "input_tokens", "output_tokens")
            )
        except (KeyError, TypeError, ValueError):
            message = (
                "needs numbers of 0 or more in timestamp (seconds), input_tokens, "
                "output_tokens"
            )
            raise _error(
                Place(path, lines.line_num, 1), message, "correct the trace"
            ) from None
        found.append((at, given, wanted))
    if len(found) < FEWEST:
        message = f"the trace has {len(found)} requests"
        raise _error(Place(path), message, f"give at least {FEWEST} requests")
    return tuple(sorted(found))


def observed(traffic: Traffic, trace: Sequence[Arrival]) -> Traffic:
    """Fill in rate, lengths and burstiness from a trace.

    The peak is the busiest minute; burstiness is the coefficient of variation between arrivals.
    """
    times = [at for at, _, _ in trace]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    minutes = Counter(int((at - times[0]) // MINUTE) for at in times)
    bursts = statistics.pstdev(gaps) / (statistics.fmean(gaps) or 1e-9)
    return replace(
        traffic,
        peak_rps=Decimal(max(minutes.values())) / MINUTE,
        input_tokens=_lengths([given for _, given, _ in trace]),
        output_tokens=_lengths([wanted for _, _, wanted in trace]),
        burstiness=Decimal(str(round(min(WILDEST, bursts), 3))),
    )


def _number(given: str) -> float:
    """Read a finite number of 0 or more; ValueError else."""
    number = float(given)
    if not 0 <= number < math.inf:
        raise ValueError(given)
    return number


def _lengths(found: list[float]) -> Tokens:
    p95 = statistics.quantiles(found, n=20)[-1]
    mean = max(1.0, statistics.fmean(found))
    return Tokens(mean=Decimal(round(mean)), p95=Decimal(round(max(mean, p95))))


def _error(place: Place, message: str, step: str) -> SpecError:
    return SpecError(
        Problem(code="traffic", message=message, place=place, next_step=step)
    )
