"""What the bill of a spec is for, also where nothing meets the spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.cost.lifetime import bill_period
from planner.spec.model import Batch
from planner.workload.registry import workload_of

if TYPE_CHECKING:
    from planner.cost.lifetime import Period
    from planner.spec.model import Spec


def planned_period(spec: Spec) -> Period:
    """Return the period of the bills of a spec: a run, a life with a ttl, or a month."""
    workload = workload_of(spec)
    if workload.period != "month":
        return workload.period
    is_one_job = (
        isinstance(spec, Batch) and spec.traffic.requests_per_day is None
    )
    return bill_period(spec.shutdown, is_one_job=is_one_job)
