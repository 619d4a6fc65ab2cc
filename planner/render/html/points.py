"""Pictures of choices: what each takes across, and what it costs upwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from planner.render.html.markup import element
from planner.render.html.picture import Drawing, point_text, polyline
from planner.render.html.plot import plot_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.render.html.markup import Markup
    from planner.render.html.plot import Axis

PLOT_HEIGHT: Final = 170.0
SIZE: Final = 5.0
BIG: Final = 8.0


class PricedChoice(Struct, frozen=True):
    """A choice at a place; the plan, another one, or one that breaks a limit."""

    x: float
    y: float
    mark: Literal["plan", "other", "beyond"]


def choices_drawing(
    choices: Sequence[PricedChoice], axes: tuple[Axis, Axis]
) -> Drawing:
    """Return choices from left to right with a line through them.

    The plan is a large diamond, others are full circles, those beyond a limit are empty ones.
    """
    # The plan is drawn last, above another one at its place.
    ordered = sorted(
        choices, key=lambda choice: (choice.x, choice.y, choice.mark == "plan")
    )
    plot = plot_frame(
        [choice.x for choice in ordered],
        [choice.y for choice in ordered],
        axes,
        PLOT_HEIGHT,
    )
    places = [
        (plot.across.at(choice.x), plot.up.at(choice.y)) for choice in ordered
    ]
    return Drawing(
        (
            *plot.shapes,
            polyline(places, "edge"),
            *(
                _mark(choice, x, y)
                for choice, (x, y) in zip(ordered, places, strict=True)
            ),
        ),
        plot.height,
    )


def _mark(choice: PricedChoice, x: float, y: float) -> Markup:
    if choice.mark == "plan":
        corners = [(x, y - BIG), (x + BIG, y), (x, y + BIG), (x - BIG, y)]
        return element(
            "polygon", {"points": point_text(corners), "class": "mark plan"}
        )
    return element(
        "circle", {"cx": x, "cy": y, "r": SIZE, "class": f"mark {choice.mark}"}
    )
