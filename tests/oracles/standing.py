"""The machines of each minute of a week, by what its hours need.

Shares nothing with the planner but the hours of a pool: a minute has what it needs, and what any
minute needs until the machines that are asked for now have started.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.solve.solution import SizedPool, Solution

WEEK_MINUTES = 7 * 24 * 60


def standing_nodes(
    solution: Solution,
    pool: SizedPool,
    is_open: Callable[[int], bool] = lambda _minute: True,
) -> Sequence[int]:
    """Machines of a pool in each minute; there are none while the service is closed."""
    hourly = (pool.week or solution.week).hourly_nodes(
        pool.peak_groups, pool.nodes_per_group, pool.spares
    )
    needed = [
        hourly[minute // 60] * is_open(minute) for minute in range(WEEK_MINUTES)
    ]
    twice = needed + needed
    start = math.ceil(pool.startup_s / 60)
    return [
        max(twice[minute : minute + start + 1]) * is_open(minute)
        for minute in range(WEEK_MINUTES)
    ]
