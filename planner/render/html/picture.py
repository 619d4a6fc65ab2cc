"""What all pictures share: their frame, their text, and how long a text is on them."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.render.html.markup import Markup, element, number_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.render.html.scale import Scale

# Pixels of a picture; a page makes it wider or narrower as a whole.
WIDTH: Final = 420.0
EDGE: Final = 8.0
LINE_HEIGHT: Final = 16.0
# Of a letter of 12 pixels in a wide typeface, and of a letter of East Asia.
LETTER_WIDTH: Final = 7.2
WIDE_LETTER: Final = 12.0
DOTS: Final = "…"


class Drawing(Struct, frozen=True):
    """Shapes and the pixels that they take."""

    shapes: tuple[Markup, ...]
    height: float
    width: float = WIDTH


def picture(key: str, title: str, summary: str, drawing: Drawing) -> Markup:
    """Return a drawing as a picture with a title, and what it shows in a sentence.

    `key` is unique in its document.
    """
    title_key, summary_key = f"{key}-title", f"{key}-says"
    return element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "class": "picture wide" if drawing.width > WIDTH else "picture",
            "viewBox": f"0 0 {drawing.width:.0f} {drawing.height:.0f}",
            # What is wider than a page keeps its size.
            **(
                {"width": drawing.width, "height": drawing.height}
                if drawing.width > WIDTH
                else {}
            ),
            "role": "img",
            "aria-labelledby": f"{title_key} {summary_key}",
        },
        element("title", {"id": title_key}, title),
        element("desc", {"id": summary_key}, summary),
        *drawing.shapes,
    )


def label(x: float, y: float, text: str, style: str = "") -> Markup:
    """Return a line of text; `style` has classes, of which `end` and `mid` move its anchor."""
    attributes: dict[str, str | float] = {"x": x, "y": y}
    if style:
        attributes["class"] = style
    return element("text", attributes, text)


def line(
    start: tuple[float, float], end: tuple[float, float], style: str
) -> Markup:
    """Return a straight line from one place to another."""
    return element(
        "line",
        {
            "x1": start[0],
            "y1": start[1],
            "x2": end[0],
            "y2": end[1],
            "class": style,
        },
    )


def box(
    x: float, y: float, *, width: float, height: float, style: str = ""
) -> Markup:
    """Return a rectangle; without a style it has that of its group."""
    attributes: dict[str, str | float] = {
        "x": x,
        "y": y,
        "width": width,
        "height": height,
    }
    if style:
        attributes["class"] = style
    return element("rect", attributes)


def polyline(points: list[tuple[float, float]], style: str) -> Markup:
    """Return a line through points."""
    return element("polyline", {"points": point_text(points), "class": style})


def point_text(points: list[tuple[float, float]]) -> str:
    """Return points as SVG takes them."""
    return " ".join(place_text(*point) for point in points)


def place_text(x: float, y: float) -> str:
    """Return a place as paths and lists of points have it."""
    return f"{number_text(x)} {number_text(y)}"


def text_width(text: str) -> float:
    """Return about how many pixels a text takes."""
    return sum(
        WIDE_LETTER
        if unicodedata.east_asian_width(letter) in "WF"
        else LETTER_WIDTH
        for letter in text
    )


def fitted(text: str, width: float) -> str:
    """Return a text, or its beginning with dots where it takes more than so many pixels."""
    if text_width(text) <= width:
        return text
    shown = ""
    for letter in text:
        if text_width(shown + letter + DOTS) > width:
            break
        shown += letter
    return shown.rstrip() + DOTS


def segments(
    ends: list[tuple[tuple[float, float], tuple[float, float]]], style: str
) -> Markup:
    """Return several straight lines as one shape."""
    path = "".join(
        f"M{place_text(*start)}L{place_text(*end)}" for start, end in ends
    )
    return element("path", {"d": path, "class": style})


def bottom_axis(
    scale: Scale,
    text_of: Callable[[float], str],
    *,
    top: float,
    bottom: float,
) -> list[Markup]:
    """Return marks of a horizontal axis with their texts, and lines up to the top."""
    ticks = [(scale.at(number), text_of(number)) for number in scale.ticks()]
    shapes = [segments([((x, top), (x, bottom)) for x, _ in ticks], "grid")]
    last_end = -WIDTH
    for x, text in ticks:
        half_width = text_width(text) / 2
        # The texts of marks at the ends stay within the picture.
        middle = min(max(x, half_width), WIDTH - EDGE / 2 - half_width)
        # One that would touch the text before it is left out.
        if middle - half_width > last_end:
            shapes.append(
                label(middle, bottom + LINE_HEIGHT - 3, text, "quiet mid")
            )
            last_end = middle + half_width
    return shapes
