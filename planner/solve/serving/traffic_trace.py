"""Reads a recorded trace, and derives rate, lengths and burstiness from it."""

from __future__ import annotations

import csv
import itertools
import math
import statistics
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.errors import Place, Problem, SpecError
from planner.spec.model import TokenLengths, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.perf.serving.load import Arrival

MIN_REQUESTS: Final = 100
MINUTE_S: Final = 60
MAX_BURSTINESS: Final = 20.0  # the largest burstiness that a spec may name


def read_trace(
    trace_path: str, read_file: Callable[[str], bytes]
) -> tuple[Arrival, ...]:
    """Return the requests of a CSV trace by arrival time; raise SpecError.

    Columns: timestamp in seconds, input_tokens, output_tokens. At least 100 requests.
    """
    csv_reader = csv.DictReader(
        # utf-8-sig drops a byte order mark at the start.
        read_file(trace_path).decode("utf-8-sig", "replace").splitlines()
    )
    arrivals = []
    for row in csv_reader:
        try:
            arrival_s, prompt_tokens, answer_tokens = (
                _parse_number(row[column_name])
                for column_name in (
                    "timestamp",
                    "input_tokens",
                    "output_tokens",
                )
            )
        except (KeyError, TypeError, ValueError):
            message = (
                "needs numbers of 0 or more in timestamp (seconds), input_tokens, "
                "output_tokens"
            )
            raise _trace_error(
                Place(trace_path, csv_reader.line_num, 1),
                message,
                "correct the trace",
            ) from None
        arrivals.append((arrival_s, prompt_tokens, answer_tokens))
    if len(arrivals) < MIN_REQUESTS:
        message = f"the trace has {len(arrivals)} requests"
        raise _trace_error(
            Place(trace_path), message, f"give at least {MIN_REQUESTS} requests"
        )
    return tuple(sorted(arrivals))


def observed_traffic(traffic: Traffic, trace: Sequence[Arrival]) -> Traffic:
    """Return a traffic spec with rate, lengths and burstiness of a trace.

    peak_rps   = requests of the busiest minute / 60
    burstiness = standard deviation / mean of the times between arrivals, at most 20
    """
    arrival_times_s = [arrival_s for arrival_s, _, _ in trace]
    arrival_gaps_s = [
        later_s - earlier_s
        for earlier_s, later_s in itertools.pairwise(arrival_times_s)
    ]
    # Minutes count from the first arrival.
    minute_counts = Counter(
        int((arrival_s - arrival_times_s[0]) // MINUTE_S)
        for arrival_s in arrival_times_s
    )
    # Coefficient of variation; 1 is a Poisson process.
    burstiness = statistics.pstdev(arrival_gaps_s) / (
        # The mean gap is 0 when all requests arrive at once.
        statistics.fmean(arrival_gaps_s) or 1e-9
    )
    return replace(
        traffic,
        peak_rps=Decimal(max(minute_counts.values())) / MINUTE_S,
        input_tokens=_token_statistics(
            [prompt_tokens for _, prompt_tokens, _ in trace]
        ),
        output_tokens=_token_statistics(
            [answer_tokens for _, _, answer_tokens in trace]
        ),
        burstiness=Decimal(str(round(min(MAX_BURSTINESS, burstiness), 3))),
    )


def _parse_number(number_text: str) -> float:
    """Return a finite number of 0 or more; raise ValueError otherwise."""
    parsed_number = float(number_text)
    if not 0 <= parsed_number < math.inf:
        raise ValueError(number_text)
    return parsed_number


def _token_statistics(token_counts: list[float]) -> TokenLengths:
    # The last of the 19 cut points is the 95th percentile.
    p95_tokens = statistics.quantiles(token_counts, n=20)[-1]
    mean_tokens = max(1.0, statistics.fmean(token_counts))
    return TokenLengths(
        mean=Decimal(round(mean_tokens)),
        # The lognormal of lengths needs p95 >= mean.
        p95=Decimal(round(max(mean_tokens, p95_tokens))),
    )


def _trace_error(place: Place, message: str, next_step: str) -> SpecError:
    return SpecError(
        Problem(
            code="traffic", message=message, place=place, next_step=next_step
        )
    )
