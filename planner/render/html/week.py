"""Pictures of the hours of a week: an amount of each of them."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from planner.render.html.markup import element, number_text
from planner.render.html.picture import (
    EDGE,
    LINE_HEIGHT,
    WIDTH,
    Drawing,
    label,
    place_text,
    segments,
)
from planner.render.html.plot import TOP, left_axis, left_margin
from planner.render.html.scale import Scale, round_scale
from planner.render.week import DAYS
from planner.units import HOURS_PER_DAY, HOURS_PER_WEEK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.render.html.plot import Axis

PLOT_HEIGHT: Final = 90.0
STEPS_UP: Final = 4
NOON: Final = HOURS_PER_DAY / 2


def week_drawing(
    amounts: Sequence[float], axis: Axis, *, least_step: float = 0.0
) -> Drawing:
    """Return the amounts of 168 hours as steps from Monday to Sunday, from 0 on.

    least_step  from mark to mark: 1 for what is counted in whole ones
    """
    bottom = TOP + PLOT_HEIGHT
    up = round_scale(amounts, bottom, TOP, most=STEPS_UP, least_step=least_step)
    across = Scale(
        0, HOURS_PER_WEEK, left_margin(up, axis), WIDTH - EDGE, HOURS_PER_DAY
    )
    outline = f"M{place_text(across.start, bottom)}"
    hour = 0
    for amount, equal_hours in groupby(amounts):
        hour += len(list(equal_hours))
        outline += (
            f"V{number_text(up.at(amount))}H{number_text(across.at(hour))}"
        )
    midnights = [across.at(tick) for tick in across.ticks()]
    return Drawing(
        (
            *left_axis(up, axis),
            segments([((x, TOP), (x, bottom)) for x in midnights], "grid"),
            *(
                label(
                    across.at(number * HOURS_PER_DAY + NOON),
                    bottom + LINE_HEIGHT - 3,
                    name,
                    "quiet mid",
                )
                for number, name in enumerate(DAYS)
            ),
            element(
                "path",
                {"d": f"{outline}V{number_text(bottom)}Z", "class": "steps"},
            ),
        ),
        bottom + LINE_HEIGHT + 4,
    )
