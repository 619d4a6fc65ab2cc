"""Pictures of a predicted number against another one, with its band and its limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.render.html.markup import element
from planner.render.html.picture import (
    Drawing,
    label,
    line,
    point_text,
    polyline,
    segments,
)
from planner.render.html.plot import TEXT_GAP, plot_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.render.html.markup import Markup
    from planner.render.html.plot import Axis, Plot

PLOT_HEIGHT: Final = 180.0
# Of a wide band no more is shown than so many times what is in it, or its limit.
MOST_ABOVE: Final = 1.5


class BandPoint(Struct, frozen=True):
    """A number at a place of the axis, and its 90 % band."""

    x: float
    low: float
    number: float
    high: float


def curve_drawing(
    points: Sequence[BandPoint],
    axes: tuple[Axis, Axis],
    *,
    limit: float | None,
    marked_x: float,
) -> Drawing:
    """Return a curve in its band, a line at its limit, and one where the plan is.

    `axes` are the lower and the left one.
    """
    limits = [] if limit is None else [limit]
    ceiling = MOST_ABOVE * max(*(point.number for point in points), *limits)
    plot = plot_frame(
        [point.x for point in points],
        [*(min(point.high, ceiling) for point in points), *limits],
        axes,
        PLOT_HEIGHT,
    )
    bottom, top = plot.up.start, plot.up.end
    left, right = plot.across.start, plot.across.end
    marked = plot.across.at(marked_x)
    shapes = [
        *plot.shapes,
        *_curve_shapes(points, plot),
        line((marked, top), (marked, bottom), "reference"),
    ]
    if limit is not None:
        y = plot.up.at(limit)
        limit_text = f"limit {axes[1].text_of(limit)}"
        shapes += [
            line((left, y), (right, y), "limit"),
            label(left + TEXT_GAP, y - TEXT_GAP, limit_text),
        ]
    return Drawing(tuple(shapes), plot.height)


def _curve_shapes(points: Sequence[BandPoint], plot: Plot) -> list[Markup]:
    def places(numbers: list[float]) -> list[tuple[float, float]]:
        return [
            (plot.across.at(point.x), plot.up.at(number))
            for point, number in zip(points, numbers, strict=True)
        ]

    lows = places([point.low for point in points])
    highs = places([point.high for point in points])
    middle = places([point.number for point in points])
    return [
        element(
            "polygon",
            {"points": point_text(lows + highs[::-1]), "class": "area"},
        ),
        polyline(lows, "edge"),
        polyline(highs, "edge"),
        polyline(middle, "curve"),
        # A line without length has round ends: a dot.
        segments([(place, place) for place in middle], "dot"),
    ]
