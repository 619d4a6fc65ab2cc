"""Tokens that engines have counted, from a snapshot of their metrics in the text of Prometheus."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Final, NoReturn

from msgspec import Struct

from planner.errors import Place, Problem, UsageError
from planner.facts import table
from planner.plan.actual.meter import PACKAGE

# name{labels} value timestamp, of which labels and timestamp may be missing.
SAMPLE: Final = re.compile(
    r"([a-zA-Z_:][\w:]*)(\{.*\})?[ \t]+(\S+)([ \t]+-?\d+)?"
)
OUTPUT: Final = "output"
# More than all engines of the world write in a year.
MOST: Final = 10**18


class CountedTokens(Struct, frozen=True):
    """Tokens of prompts and of answers, over all machines of a snapshot."""

    prompt: Decimal
    output: Decimal


def read_tokens(file_bytes: bytes, path: str) -> CountedTokens:
    """Return the sum of the counters of data/token_counters.csv over all series.

    Raises UsageError for a line that is no sample, a count that is none, and a snapshot without
    answers.
    """
    counts = {"prompt": Decimal(0), OUTPUT: Decimal(0)}
    has_output = False
    text = file_bytes.decode("utf-8", "replace")
    for number, line in enumerate(text.split("\n"), 1):
        sample = line.strip()
        if not sample or sample.startswith("#"):
            continue
        found = SAMPLE.fullmatch(sample)
        if found is None:
            _refuse(Place(path, number, 1), "is no sample of a metric")
        tokens = _counters().get(found[1])
        if tokens is not None:
            column = line.index(found[3], line.index(sample) + found.end(1)) + 1
            counts[tokens] += _count(found[3], Place(path, number, column))
            has_output |= tokens == OUTPUT
    if not has_output:
        names = [name for name, kind in _counters().items() if kind == OUTPUT]
        _refuse(Place(path), f"has none of {', '.join(names)}")
    return CountedTokens(**counts)


def _count(text: str, place: Place) -> Decimal:
    try:
        count = Decimal(text)
    except InvalidOperation:
        _refuse(place, f"'{text[:40]}' is not a number")
    if not count.is_finite() or not 0 <= count < MOST:
        _refuse(place, f"'{text[:40]}' is not a count")
    return count


def _refuse(place: Place, message: str) -> NoReturn:
    raise UsageError(
        Problem(
            code="metrics",
            message=message,
            place=place,
            next_step="save a snapshot again: curl MACHINE:8000/metrics -o FILE",
        )
    )


@cache
def _counters() -> dict[str, str]:
    columns: table.Columns = {
        "counter": table.nonempty_text,
        "tokens": table.one_of("prompt", OUTPUT),
        **table.SOURCE_COLUMNS,
    }
    return {
        row["counter"]: row["tokens"]
        for row in table.load_rows(PACKAGE, "token_counters.csv", columns)
    }
