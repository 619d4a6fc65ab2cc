"""Rows at a given rate: latency near saturation and its 99th percentiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from planner.estimate.inference import predict_inference
from tests.accuracy.sample import Batch

NUMBERS: Final = (
    "tpot_ms_mean",
    "tpot_ms_p99",
    "ttft_ms_mean",
    "ttft_ms_p99",
    "e2e_ms_mean",
    "output_tok_s",
)


def rows(batch: Batch) -> Iterator[tuple[str, float, float, float, int]]:
    """Yield each number: median error, share inside its band, median high / low, rows."""
    given = [
        s
        for s in batch.samples
        if s.row["quality"] == "A" and s.setup.demand.load_kind == "open"
    ]
    answered = [(s.row, predict_inference(s.setup).columns) for s in given]
    for name in NUMBERS:
        found = [
            (float(row[name]), numbers[name])
            for row, numbers in answered
            if row[name]
        ]
        errors = [abs(x.value / measured - 1) for measured, x in found]
        inside = [x.low <= measured <= x.high for measured, x in found]
        widths = [x.high / x.low for _, x in found]
        yield (
            name,
            float(np.median(errors)),
            float(np.mean(inside)),
            float(np.median(widths)),
            len(found),
        )
