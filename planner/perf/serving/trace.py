"""A recorded trace of requests, in columns: a million requests take 24 MB."""

from __future__ import annotations

import operator
from array import array
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.perf.serving.load import Arrival


class Trace(Struct, frozen=True, eq=False):
    """Requests in the order of arrival. Two traces are equal when they are the same object.

    `arrival_s` is in seconds, `prompt_tokens` and `answer_tokens` in tokens: arrays of
    doubles of one length.
    """

    arrival_s: array[float]
    prompt_tokens: array[float]
    answer_tokens: array[float]

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.arrival_s)

    def __iter__(self) -> Iterator[Arrival]:
        """Iterate over the requests."""
        return zip(
            self.arrival_s, self.prompt_tokens, self.answer_tokens, strict=True
        )

    def span(self, start: int, request_count: int) -> Trace:
        """Return `request_count` requests from position `start` on."""
        positions = slice(start, start + request_count)
        return Trace(
            self.arrival_s[positions],
            self.prompt_tokens[positions],
            self.answer_tokens[positions],
        )

    def with_traffic(self, traffic_factor: float) -> Trace:
        """Return the same requests in 1 / `traffic_factor` of the time."""
        scaled_times_s = array(
            "d", (arrival_s / traffic_factor for arrival_s in self.arrival_s)
        )
        return Trace(scaled_times_s, self.prompt_tokens, self.answer_tokens)


# All seeds of a simulation play the same span.
@lru_cache(maxsize=1)
def busiest_span(trace: Trace, request_count: int) -> Trace:
    """Return the `request_count` consecutive requests with the shortest duration."""
    if len(trace) <= request_count:
        return trace
    last_arrivals_s = islice(trace.arrival_s, request_count - 1, None)
    # Shortest time between first and last request: the highest rate.
    durations_s = array(
        "d", map(operator.sub, last_arrivals_s, trace.arrival_s)
    )
    return trace.span(durations_s.index(min(durations_s)), request_count)
