"""The frame of pictures with two axes, or with one that goes up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.render.html.picture import (
    EDGE,
    LINE_HEIGHT,
    WIDTH,
    bottom_axis,
    label,
    segments,
    text_width,
)
from planner.render.html.scale import round_scale

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from planner.render.html.markup import Markup
    from planner.render.html.scale import Scale

TOP: Final = 22.0
TEXT_GAP: Final = 4.0
STEPS_ACROSS: Final = 6


class Axis(Struct, frozen=True):
    """What an axis is of, and how its numbers are written."""

    title: str
    text_of: Callable[[float], str]


class Plot(Struct, frozen=True):
    """A frame with its scales; what is drawn in it comes after its shapes."""

    across: Scale
    up: Scale
    shapes: tuple[Markup, ...]

    @property
    def height(self) -> float:
        """Pixels from the top to the title of the lower axis."""
        return self.up.start + 2 * LINE_HEIGHT + 6


def plot_frame(
    across_numbers: Iterable[float],
    up_numbers: Iterable[float],
    axes: tuple[Axis, Axis],
    height: float,
) -> Plot:
    """Return a frame that holds all numbers; `axes` are the lower and the left one."""
    across_axis, up_axis = axes
    bottom = TOP + height
    up = round_scale(up_numbers, bottom, TOP)
    across = round_scale(
        across_numbers,
        left_margin(up, up_axis),
        WIDTH - EDGE,
        most=STEPS_ACROSS,
    )
    return Plot(
        across,
        up,
        (
            *left_axis(up, up_axis),
            *bottom_axis(across, across_axis.text_of, top=TOP, bottom=bottom),
            label(
                WIDTH - EDGE,
                bottom + 2 * LINE_HEIGHT,
                across_axis.title,
                "quiet end",
            ),
        ),
    )


def left_margin(scale: Scale, axis: Axis) -> float:
    """Return how many pixels the texts of an axis take."""
    return EDGE + max(text_width(axis.text_of(tick)) for tick in scale.ticks())


def left_axis(scale: Scale, axis: Axis) -> list[Markup]:
    """Return the title of an axis that goes up, its marks, and lines across from them."""
    left = left_margin(scale, axis)
    places = [(scale.at(tick), axis.text_of(tick)) for tick in scale.ticks()]
    return [
        label(0, TOP - 10, axis.title, "quiet"),
        segments([((left, y), (WIDTH - EDGE, y)) for y, _ in places], "grid"),
        *(
            label(left - TEXT_GAP, y + TEXT_GAP, text, "quiet end")
            for y, text in places
        ),
    ]
