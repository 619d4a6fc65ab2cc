"""How far the traffic of a service is from what was said of it: rows of data/traffic_changes.csv.

A row is a service that was watched: its requests in a period, and in the next one of as many days.
"""

from __future__ import annotations

import math
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING, Final

from planner.facts import table
from planner.numeric import BAND_END, student_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_DAYS: Final = 10_000
# Millions of requests.
REQUESTS: Final = (0.001, 1e9)


@cache
def traffic_ratios() -> tuple[float, float]:
    """Return between which ratios 90 % of a month's traffic are to that of its spec.

    A month is taken to be as far from its spec as a row is from the period before it. Raises
    CatalogError for an invalid row.
    """
    columns: table.Columns = {
        "service": table.nonempty_text,
        "days": table.integer_between(1, MOST_DAYS),
        "before": table.real_between(*REQUESTS),
        "after": table.real_between(*REQUESTS),
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    rows = table.load_rows("planner.cost", "traffic_changes.csv", columns)
    reach = next_reach([math.log(row["after"] / row["before"]) for row in rows])
    return math.exp(-reach), math.exp(reach)


def next_reach(changes: Sequence[float]) -> float:
    """Return how far from zero 90 % of the next changes are, as few were seen.

        t * sqrt(mean of change^2)

    t is the 95 % quantile of Student's distribution with as many degrees of freedom as there are
    changes: their mean is taken to be zero, since a spec may foresee what grows.
    """
    spread = math.sqrt(fmean(change**2 for change in changes))
    return student_quantile(BAND_END, len(changes)) * spread
