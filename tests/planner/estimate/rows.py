"""Tables of one row, written and answered."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

from planner.estimate.table import predict_table


def answered(row: Mapping[str, str]) -> dict[str, str]:
    """What the table of a row is answered with."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(row), lineterminator="\n")
    writer.writeheader()
    writer.writerow(row)
    text = predict_table(buffer.getvalue(), "rows.csv")
    return next(csv.DictReader(io.StringIO(text)))
