"""What a fleet does: against its limits, and at other loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner import figures
from planner.render.html import axis_text
from planner.render.html.blocks import block_markup
from planner.render.html.curves import BandPoint, curve_drawing
from planner.render.html.figure import Figure, Section
from planner.render.html.plot import Axis
from planner.render.html.rows import Bar, ChartRow, rows_drawing
from planner.render.metric import FRACTION_KEYS, metric_text, metric_title
from planner.render.page import PageTable, Paragraph
from planner.render.plan import (
    DEFAULT_PERCENTILES,
    band_text,
    prediction_blocks,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.plan.types import Plan
    from planner.solve.solution import LoadPoint

# A prediction that has it is of requests that arrive from outside.
OPEN_LOAD_METRIC: Final = "busy_fraction"
# One point is no curve.
FEWEST_POINTS: Final = 2
LOAD_NOTE: Final = (
    "With the machines of the peak, all of them up, by the formulas of the predictions above; the "
    "simulation confirmed the plan itself."
)


def prediction_section(plan: Plan, level: int) -> Section | None:
    """Return what is predicted, beside what was asked; nothing of a workspace."""
    blocks = prediction_blocks(plan)
    if not blocks:
        return None
    rows = _limit_rows(plan)
    first, *others = blocks
    content: list[Figure] = []
    if isinstance(first, PageTable) and rows:
        content.append(
            Figure(
                key="limits",
                title="Predicted, of what is allowed",
                summary="; ".join(f"{row.name}: {row.note}" for row in rows)
                + ". A line through a bar is the 90 % band, a dashed mark the limit.",
                drawing=rows_drawing(rows, axis_text.share_tick),
                table=first,
                is_open=True,
            )
        )
    else:
        others = blocks
    return Section(
        key="predictions",
        title="What it does, and what was asked",
        content=(*content, *block_markup(others, level + 1)),
    )


def _limit_rows(plan: Plan) -> list[ChartRow]:
    """Return a row for each limit, of which the bar is a share, and for each other share."""
    rows = []
    for key, limit in sorted(plan.solution.limits.items()):
        prediction = plan.solution.predicted[key]
        value_text = metric_text(key, prediction.value)
        rows.append(
            ChartRow(
                name=metric_title(key),
                note=f"{value_text} of {metric_text(key, limit.limit)}",
                bars=(Bar(0, 1 - limit.headroom),),
                band=(
                    prediction.low / limit.limit,
                    prediction.high / limit.limit,
                ),
                limit=1,
            )
        )
    for key in sorted(FRACTION_KEYS & plan.solution.predicted.keys()):
        prediction = plan.solution.predicted[key]
        rows.append(
            ChartRow(
                name=metric_title(key),
                note=metric_text(key, prediction.value),
                bars=(Bar(0, prediction.value, "second"),),
                band=(prediction.low, prediction.high),
            )
        )
    return rows


def load_section(
    plan: Plan, curve: Sequence[LoadPoint], level: int
) -> Section | None:
    """Return each limited latency at other loads; nothing where there is one load alone."""
    if len(curve) < FEWEST_POINTS:
        return None
    metrics = sorted(plan.solution.limits) or sorted(DEFAULT_PERCENTILES)
    return Section(
        key="load",
        title="At other loads",
        content=(
            *block_markup([Paragraph(LOAD_NOTE, "dim")], level + 1),
            *(_load_figure(plan, curve, metric) for metric in metrics),
        ),
    )


def _load_figure(plan: Plan, curve: Sequence[LoadPoint], metric: str) -> Figure:
    title = f"{metric_title(metric)} against load"
    limit = plan.solution.limits.get(metric)
    [planned] = [point for point in curve if point.share == 1]
    unit = (
        "requests a second"
        if OPEN_LOAD_METRIC in planned.predictions
        else "requests in flight"
    )
    points = [
        BandPoint(point.load, found.low, found.value, found.high)
        for point in curve
        for found in [point.predictions[metric]]
    ]
    drawing = curve_drawing(
        points,
        (
            Axis(unit, axis_text.count_tick),
            Axis(
                f"{metric_title(metric)}, with its 90 % band",
                axis_text.time_tick,
            ),
        ),
        limit=None if limit is None else limit.limit,
        marked_x=planned.load,
    )
    first, last = (
        metric_text(metric, point.predictions[metric].value)
        for point in (curve[0], curve[-1])
    )
    limit_text = (
        ""
        if limit is None
        else f" The dashed line is the limit of {metric_text(metric, limit.limit)}."
    )
    return Figure(
        key=metric.replace("_", "-"),
        title=title,
        summary=f"From {first} at {_load_text(curve[0].load)} to {last} at "
        f"{_load_text(curve[-1].load)} {unit}; the dotted line is the peak of the plan."
        f"{limit_text}",
        drawing=drawing,
        table=PageTable(
            (f">{unit}", ">of the peak", ">predicted", ">90 % band"),
            tuple(
                (
                    _load_text(point.load),
                    figures.percentage(point.share),
                    metric_text(metric, point.predictions[metric].value),
                    band_text(metric, point.predictions[metric]),
                )
                for point in curve
            ),
        ),
    )


def _load_text(load: float) -> str:
    return axis_text.count_tick(load)
