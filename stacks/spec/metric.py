"""What agents tell of their machines, as rows: data/metrics.csv.

Alarms, charts and descriptions of metrics are made of these rows.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.facts import table

if TYPE_CHECKING:
    from stacks.spec.stack import StackSpec

# The namespace of the metrics, on clouds that have namespaces.
NAMESPACE: Final = "tonnage"
TROUBLE: Final = "Trouble"


class Metric(Struct, frozen=True, kw_only=True):
    """A number that every machine of a group tells once a minute.

    is_serving  whether only machines with an engine tell it
    chart       the chart that shows it
    """

    name: str
    is_serving: bool
    chart: str
    unit: str
    meaning: str


@cache
def _all_metrics() -> tuple[Metric, ...]:
    columns: table.Columns = {
        "metric": table.nonempty_text,
        "work": table.one_of("any", "serving"),
        "chart": table.nonempty_text,
        "unit": table.nonempty_text,
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return tuple(
        Metric(
            name=row["metric"],
            is_serving=row["work"] == "serving",
            chart=row["chart"],
            unit=row["unit"],
            meaning=row["meaning"],
        )
        for row in table.load_rows("stacks", "metrics.csv", columns)
    )


def told_metrics(stack: StackSpec) -> tuple[Metric, ...]:
    """Return what the machines of a stack tell."""
    has_engine = any(
        fleet.layout is not None and not fleet.is_training
        for fleet in stack.fleets
    )
    return tuple(
        metric
        for metric in _all_metrics()
        if has_engine or not metric.is_serving
    )


def charts(stack: StackSpec) -> dict[str, list[Metric]]:
    """Return the charts of a stack with their metrics, in the order of the rows."""
    shown: dict[str, list[Metric]] = {}
    for metric in told_metrics(stack):
        shown.setdefault(metric.chart, []).append(metric)
    return shown
