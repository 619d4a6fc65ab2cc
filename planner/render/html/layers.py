"""A picture of things that rest on each other, in layers from left to right."""

from __future__ import annotations

from collections import defaultdict
from graphlib import TopologicalSorter
from statistics import fmean
from typing import TYPE_CHECKING, Final

from planner.render.html.markup import element
from planner.render.html.picture import Drawing, box, fitted, label, place_text

if TYPE_CHECKING:
    from collections.abc import Mapping


BOX_WIDTH: Final = 150.0
BOX_HEIGHT: Final = 32.0
COLUMN_GAP: Final = 44.0
ROW_GAP: Final = 10.0
EDGE: Final = 4.0


def layers_drawing(
    kinds: Mapping[str, str], needs: Mapping[str, tuple[str, ...]]
) -> Drawing:
    """Return a box for each thing, right of all that it needs, with a line from each of these.

    `kinds` says what each is. A line is left out where a longer way says the same.
    """
    layers = _layers(needs)
    row_count = max(map(len, layers), default=0)
    places = {
        name: (
            EDGE + number * (BOX_WIDTH + COLUMN_GAP),
            EDGE + row * (BOX_HEIGHT + ROW_GAP),
        )
        for number, layer in enumerate(layers)
        for row, name in enumerate(layer)
    }
    links = "".join(
        _link_path(places[needed], places[name])
        for name, all_needed in sorted(direct_needs(needs).items())
        for needed in sorted(all_needed)
    )
    by_name = sorted(places.items())
    # What has one style is in one group: plans have many resources.
    shapes = (
        element("path", {"d": links, "class": "link"}),
        element(
            "g",
            {"class": "thing"},
            *(
                box(x, y, width=BOX_WIDTH, height=BOX_HEIGHT)
                for _, (x, y) in by_name
            ),
        ),
        *(
            label(x + 6, y + 13, fitted(name, BOX_WIDTH - 12))
            for name, (x, y) in by_name
        ),
        element(
            "g",
            {"class": "quiet small"},
            *(
                label(x + 6, y + 26, fitted(kinds[name], BOX_WIDTH - 12))
                for name, (x, y) in by_name
            ),
        ),
    )
    return Drawing(
        shapes,
        2 * EDGE + row_count * (BOX_HEIGHT + ROW_GAP),
        2 * EDGE + len(layers) * (BOX_WIDTH + COLUMN_GAP) - COLUMN_GAP,
    )


def direct_needs(
    needs: Mapping[str, tuple[str, ...]],
) -> dict[str, frozenset[str]]:
    """Return what each thing needs, less what something else that it needs rests on."""
    below: dict[str, frozenset[str]] = {}
    direct: dict[str, frozenset[str]] = {}
    for name in TopologicalSorter(needs).static_order():
        all_needed = frozenset(needs[name])
        further = frozenset().union(*(below[needed] for needed in all_needed))
        below[name] = all_needed | further
        direct[name] = all_needed - further
    return direct


def _layers(needs: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
    """Return the names of each layer, each near what it rests on."""
    depth: dict[str, int] = {}
    by_depth: defaultdict[int, list[str]] = defaultdict(list)
    for name in TopologicalSorter(needs).static_order():
        depth[name] = 1 + max((depth[one] for one in needs[name]), default=-1)
        by_depth[depth[name]].append(name)
    row: dict[str, float] = {}

    def mean_row(name: str) -> tuple[float, str]:
        return fmean([row[one] for one in needs[name]] or [0.0]), name

    layers = []
    for number in sorted(by_depth):
        layer = sorted(by_depth[number], key=mean_row)
        row |= {name: float(place) for place, name in enumerate(layer)}
        layers.append(layer)
    return layers


def _link_path(needed: tuple[float, float], place: tuple[float, float]) -> str:
    """Return a line from the right of one box to the left of another."""
    start_x = needed[0] + BOX_WIDTH
    start_y = needed[1] + BOX_HEIGHT / 2
    end_x, end_y = place[0], place[1] + BOX_HEIGHT / 2
    bend = COLUMN_GAP / 2
    return (
        f"M{place_text(start_x, start_y)}C{place_text(start_x + bend, start_y)} "
        f"{place_text(end_x - bend, end_y)} {place_text(end_x, end_y)}"
    )
