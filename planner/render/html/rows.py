"""Pictures of rows: a name, an amount, and a bar on an axis that all rows share.

Bills, limits, reliefs, other fleets and what moves a bill are all drawn so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from planner.render.html.picture import (
    EDGE,
    LINE_HEIGHT,
    WIDTH,
    Drawing,
    bottom_axis,
    box,
    fitted,
    label,
    line,
    segments,
    text_width,
)
from planner.render.html.scale import round_scale

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.render.html.markup import Markup
    from planner.render.html.scale import Scale

# Each style has its own pattern, so that it is told without its color.
BarStyle: TypeAlias = Literal[
    "main", "second", "good", "bad", "unknown", "total"
]
BAR_HEIGHT: Final = 11.0
ROW_HEIGHT: Final = 34.0
# Of a bar whose amount is next to nothing.
LEAST_WIDTH: Final = 1.5
GAP: Final = 10.0


class Bar(Struct, frozen=True):
    """A bar from one number to another. Of an unknown amount, the end is None."""

    start: float
    end: float | None
    style: BarStyle = "main"


class ChartRow(Struct, frozen=True, kw_only=True):
    """A row of a picture.

    name   what it is of, at its left
    note   its amount as text, at its right
    bars   from left to right
    band   where the number is in 90 % of cases
    limit  what it may be at most
    """

    name: str
    note: str
    bars: tuple[Bar, ...]
    band: tuple[float, float] | None = None
    limit: float | None = None


def rows_drawing(
    rows: Sequence[ChartRow],
    axis_text: Callable[[float], str],
    *,
    reference: float | None = None,
) -> Drawing:
    """Return rows over an axis from 0 on; `reference` is marked through all of them."""
    scale = round_scale(
        (number for row in rows for number in _numbers(row)), EDGE, WIDTH - EDGE
    )
    bottom = len(rows) * ROW_HEIGHT + 4
    shapes = bottom_axis(
        scale,
        axis_text,
        top=0,
        bottom=bottom,
    )
    if reference is not None:
        x = scale.at(reference)
        shapes.append(line((x, 0), (x, bottom), "reference"))
    for number, row in enumerate(rows):
        shapes += _row_shapes(row, scale, number * ROW_HEIGHT)
    return Drawing(tuple(shapes), bottom + LINE_HEIGHT + 4)


def _numbers(row: ChartRow) -> list[float]:
    ends = [bar.end for bar in row.bars if bar.end is not None]
    return [
        *(bar.start for bar in row.bars),
        *ends,
        *(row.band or ()),
        *([] if row.limit is None else [row.limit]),
    ]


def _row_shapes(row: ChartRow, scale: Scale, top: float) -> list[Markup]:
    text_y = top + LINE_HEIGHT - 4
    bar_y = top + LINE_HEIGHT + 1
    name_width = WIDTH - 2 * EDGE - text_width(row.note) - GAP
    shapes = [
        label(EDGE, text_y, fitted(row.name, name_width)),
        label(WIDTH - EDGE, text_y, row.note, "end strong"),
    ]
    for bar in row.bars:
        ends = sorted(
            (
                scale.at(bar.start),
                # What nobody knows may be as long as the picture is wide.
                WIDTH - EDGE if bar.end is None else scale.at(bar.end),
            )
        )
        shapes.append(
            box(
                ends[0],
                bar_y,
                width=max(LEAST_WIDTH, ends[1] - ends[0]),
                height=BAR_HEIGHT,
                style=f"bar {bar.style}",
            )
        )
    if row.band is not None:
        shapes += _band_shapes(scale, row.band, bar_y)
    if row.limit is not None:
        x = scale.at(row.limit)
        shapes.append(
            line((x, bar_y - 3), (x, bar_y + BAR_HEIGHT + 3), "limit")
        )
    return shapes


def _band_shapes(
    scale: Scale, band: tuple[float, float], bar_y: float
) -> list[Markup]:
    """Return a line between two ends, on a rim that parts it from the bar below."""
    middle = bar_y + BAR_HEIGHT / 2
    low, high = map(scale.at, band)
    ends = [
        ((low, middle), (high, middle)),
        *(((x, middle - 3), (x, middle + 3)) for x in (low, high)),
    ]
    return [segments(ends, style) for style in ("rim", "band")]
