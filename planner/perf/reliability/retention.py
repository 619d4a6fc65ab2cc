"""Which checkpoints are kept, and how long they lie in storage.

Kept are the newest `keep_last`, and the newest of each span of `keep_every_s`. The machines keep
the same ones (stacks/runtime/vm/retention.py). Times are in seconds from the first step.
"""

from __future__ import annotations

import math

from msgspec import Struct

# A whole number of intervals is met in spite of rounding.
TOLERANCE = 1e-9


class Retention(Struct, frozen=True, kw_only=True):
    """What is kept of the checkpoints of a run.

    keep_last     newest checkpoints
    keep_every_s  span of which the newest checkpoint is kept too, s
    """

    keep_last: int
    keep_every_s: float


def held_checkpoint_s(
    retention: Retention, interval_s: float, run_s: float
) -> float:
    """Return the time that checkpoints lie in storage over a run, summed over them, seconds.

    sum over k of min(keep_last * interval, run - k * interval)       the newest ones
    + sum over spans of max(0, run - newest_of_span - keep_last * interval)

    Checkpoint k is written at k * interval, and is one of the newest until `keep_last` more are.
    """
    written = math.floor(run_s / interval_s + TOLERANCE)
    newest_s = retention.keep_last * interval_s
    # Of these the whole time as one of the newest lies within the run.
    passed = max(0, written - retention.keep_last)
    last = written - passed
    # The others are among the newest until the end: an arithmetic series.
    last_s = (
        last * run_s
        - interval_s * (written * (written + 1) - passed * (passed + 1)) / 2
    )
    return (
        passed * newest_s
        + last_s
        + sum(
            max(0.0, run_s - index * interval_s - newest_s)
            for index in _newest_of_spans(retention, interval_s, run_s)
        )
    )


def held_checkpoints(
    retention: Retention, interval_s: float, run_s: float
) -> int:
    """Return the checkpoints that lie in storage when a run ends, its last one among them."""
    written = max(1, math.ceil(run_s / interval_s - TOLERANCE))
    last = min(written, retention.keep_last)
    return last + sum(
        index <= written - last
        for index in _newest_of_spans(retention, interval_s, run_s)
    )


def _newest_of_spans(
    retention: Retention, interval_s: float, run_s: float
) -> list[int]:
    """Return the numbers of the newest checkpoints of the spans that have ended."""
    ended_spans = math.floor(run_s / retention.keep_every_s + TOLERANCE)
    newest = (
        # The last one before the end of a span; without one it is that of an earlier span.
        math.ceil(span * retention.keep_every_s / interval_s - TOLERANCE) - 1
        for span in range(1, ended_spans + 1)
    )
    return [index for index in dict.fromkeys(newest) if index]
