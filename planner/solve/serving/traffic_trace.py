"""Reads a recorded trace, and derives rate, lengths and burstiness from it."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import math
import operator
import statistics
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from decimal import Decimal
from itertools import accumulate, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from msgspec import Meta, ValidationError, convert
from msgspec.structs import replace

from planner.errors import Place, Problem, SpecError
from planner.perf.serving.load import LengthDistribution
from planner.perf.serving.trace import Trace
from planner.spec.model import TokenLengths, Traffic

if TYPE_CHECKING:
    import _csv
    from collections.abc import Callable, Iterator

    from planner.perf.serving.load import ServingLoad

MIN_REQUESTS: Final = 100
MINUTE_S: Final = 60
MAX_BURSTINESS: Final = 20.0  # the largest burstiness that a spec may name
# Rows that are read at once. More take longer: they leave the fast part of the memory.
ROWS_AT_ONCE: Final = 256
MAX_NUMBER: Final = 1e300  # infinity is no time and no number of tokens
COLUMN_NAMES: Final = ("timestamp", "input_tokens", "output_tokens")
CSV_ERRORS: Final = (
    csv.Error,
    IndexError,
    KeyError,
    ValueError,
    ValidationError,
)

_Number: TypeAlias = Annotated[float, Meta(ge=0, le=MAX_NUMBER)]
_Request: TypeAlias = tuple[_Number, _Number, _Number]


def read_trace(trace_path: str, read_file: Callable[[str], bytes]) -> Trace:
    """Return the requests of a CSV trace by arrival time; raise SpecError.

    Columns: timestamp in seconds, input_tokens, output_tokens. At least 100 requests.
    """
    trace = _parse_trace(trace_path, read_file(trace_path))
    if len(trace) < MIN_REQUESTS:
        message = f"the trace has {len(trace)} requests"
        raise _trace_error(
            Place(trace_path), message, f"give at least {MIN_REQUESTS} requests"
        )
    _sort_requests(trace)
    return trace


def observed_traffic(traffic: Traffic, trace: Trace) -> Traffic:
    """Return a traffic spec with rate, lengths and burstiness of a trace.

    peak_rps   = requests of the busiest minute / 60
    burstiness = standard deviation / mean of the times between arrivals, at most 20
    """
    return replace(
        traffic,
        peak_rps=Decimal(max(_minute_counts(trace.arrival_s))) / MINUTE_S,
        input_tokens=_token_statistics(trace.prompt_tokens),
        output_tokens=_token_statistics(trace.answer_tokens),
        burstiness=Decimal(
            str(round(min(MAX_BURSTINESS, _gap_variation(trace.arrival_s)), 3))
        ),
    )


def observed_load(load: ServingLoad, trace: Trace) -> ServingLoad:
    """Return a load with rate, lengths and burstiness of a trace, as `observed_traffic` has them.

    The rate is in requests/s of the busiest minute.
    """
    prompts = _token_statistics(trace.prompt_tokens)
    answers = _token_statistics(trace.answer_tokens)
    return replace(
        load,
        rate_per_s=max(_minute_counts(trace.arrival_s)) / MINUTE_S,
        prompt_lengths=LengthDistribution(
            mean_tokens=float(prompts.mean), p95_tokens=float(prompts.p95)
        ),
        answer_lengths=LengthDistribution(
            mean_tokens=float(answers.mean), p95_tokens=float(answers.p95)
        ),
        arrival_variation=min(MAX_BURSTINESS, _gap_variation(trace.arrival_s))
        ** 2,
    )


def _parse_trace(trace_path: str, trace_bytes: bytes) -> Trace:
    with contextlib.suppress(*CSV_ERRORS):
        return _read_requests(_open_csv(trace_bytes), is_plain=True)
    # Some number is written in a rare way (`.5`), or is none.
    csv_rows = _open_csv(trace_bytes)
    try:
        return _read_requests(csv_rows, is_plain=False)
    except CSV_ERRORS:
        message = (
            "needs numbers of 0 or more in timestamp (seconds), input_tokens, "
            "output_tokens"
        )
        raise _trace_error(
            Place(trace_path, csv_rows.line_num, 1),
            message,
            "correct the trace",
        ) from None


def _open_csv(trace_bytes: bytes) -> _csv.Reader:
    return csv.reader(
        io.TextIOWrapper(
            io.BytesIO(trace_bytes),
            # utf-8-sig drops a byte order mark at the start.
            encoding="utf-8-sig",
            errors="replace",
        )
    )


def _read_requests(csv_rows: Iterator[list[str]], *, is_plain: bool) -> Trace:
    """Return the requests in the order of the file.

    `is_plain` reads the notation of JSON and is fast. Otherwise rows are read one by one, in all
    notations of Python. Raises an error of CSV_ERRORS in the row that is read: KeyError without
    a column, IndexError in a short row, others for what is no finite number of 0 or more.
    """
    columns = array("d"), array("d"), array("d")
    # An empty file has no requests, but no wrong column either.
    header = next(csv_rows, COLUMN_NAMES)
    positions = {name: position for position, name in enumerate(header)}
    select_cells = itemgetter(*(positions[name] for name in COLUMN_NAMES))
    while rows := list(islice(csv_rows, ROWS_AT_ONCE if is_plain else 1)):
        # Blank lines have no cells.
        requests = [select_cells(row) for row in rows if row]
        if not is_plain:
            requests = [tuple(map(float, cells)) for cells in requests]
        valid_requests = convert(requests, list[_Request], strict=False)
        for column, numbers in zip(
            # Only blank lines: no requests, thus no columns.
            columns,
            zip(*valid_requests, strict=True),
            strict=False,
        ):
            column.extend(array("d", numbers))
    return Trace(*columns)


def _sort_requests(trace: Trace) -> None:
    """Order requests by arrival, those of one moment by prompt and answer."""
    arrival_s = trace.arrival_s
    token_columns = (trace.prompt_tokens, trace.answer_tokens)
    if any(map(operator.gt, arrival_s, islice(arrival_s, 1, None))):
        # Sorting positions takes half the memory of sorting requests.
        order = sorted(range(len(trace)), key=arrival_s.__getitem__)
        for column in (arrival_s, *token_columns):
            column[:] = array("d", map(column.__getitem__, order))
    for moment in _shared_moments(arrival_s):
        simultaneous = sorted(
            zip(*(column[moment] for column in token_columns), strict=True)
        )
        for column, values in zip(
            token_columns, zip(*simultaneous, strict=True), strict=True
        ):
            column[moment] = array("d", values)


def _shared_moments(arrival_s: array[float]) -> Iterator[slice]:
    """Yield the positions of the requests of each moment in which several arrive."""
    is_shared = map(operator.eq, arrival_s, islice(arrival_s, 1, None))
    stop = 0
    for start in itertools.compress(itertools.count(), is_shared):
        if start >= stop:
            stop = bisect_right(arrival_s, arrival_s[start], start)
            yield slice(start, stop)


def _minute_counts(arrival_s: array[float]) -> Iterator[int]:
    """Yield the requests of each minute that has some, counted from the first arrival."""
    first_s = arrival_s[0]

    def minute(time_s: float) -> float:
        return (time_s - first_s) // MINUTE_S

    start = 0
    while start < len(arrival_s):
        stop = bisect_right(
            arrival_s, minute(arrival_s[start]), start, key=minute
        )
        yield stop - start
        start = stop


def _gap_variation(arrival_s: array[float]) -> float:
    """Return the coefficient of variation of the gaps; 1 is a Poisson process.

    variation = sqrt(mean of squared gaps / square of the mean gap - 1)
    """
    gap_count = len(arrival_s) - 1
    mean_gap_s = (arrival_s[-1] - arrival_s[0]) / gap_count
    # All requests arrive at once.
    if not mean_gap_s:
        return 0.0
    gaps_s = array(
        "d", map(operator.sub, islice(arrival_s, 1, None), arrival_s)
    )
    mean_square = math.fsum(map(operator.mul, gaps_s, gaps_s)) / gap_count
    # Equal gaps may round to slightly less than zero.
    return math.sqrt(max(0.0, mean_square / mean_gap_s**2 - 1))


def _token_statistics(token_counts: array[float]) -> TokenLengths:
    p95_tokens = _percentile_95(Counter(token_counts))
    mean_tokens = max(1.0, statistics.fmean(token_counts))
    return TokenLengths(
        mean=Decimal(round(mean_tokens)),
        # The lognormal of lengths needs p95 >= mean.
        p95=Decimal(round(max(mean_tokens, p95_tokens))),
    )


def _percentile_95(occurrences: Counter[float]) -> float:
    """Return the 95th percentile of values that are counted, as statistics.quantiles does.

    percentile = value at rank 0.95 * (count + 1), interpolated between its two neighbours

    A trace has many requests of few lengths, so sorting lengths is faster than sorting requests.
    """
    values = sorted(occurrences)
    last_ranks = list(accumulate(map(occurrences.__getitem__, values)))
    rank, twentieths = divmod(19 * (last_ranks[-1] + 1), 20)
    lower, upper = (
        values[bisect_left(last_ranks, min(neighbour, last_ranks[-1]))]
        for neighbour in (rank, rank + 1)
    )
    return (lower * (20 - twentieths) + upper * twentieths) / 20


def _trace_error(place: Place, message: str, next_step: str) -> SpecError:
    return SpecError(
        Problem(
            code="traffic", message=message, place=place, next_step=next_step
        )
    )
