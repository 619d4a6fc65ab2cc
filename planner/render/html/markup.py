"""HTML and SVG as text, in which nothing that somebody wrote is markup.

What is made is XML too, so that readers of both take it.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from planner.render.clean import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

EMPTY_TAGS: Final = frozenset(
    {
        "circle",
        "input",
        "line",
        "link",
        "meta",
        "path",
        "polygon",
        "polyline",
        "rect",
    }
)


class Markup(Struct, frozen=True):
    """A piece of a document, complete and safe. It is made by `element` and `joined` alone."""

    text: str


Content: TypeAlias = Markup | str
Attributes: TypeAlias = "Mapping[str, str | float]"

NOTHING: Final = Markup("")


def element(
    tag: str, attributes: Attributes | None = None, *content: Content
) -> Markup:
    """Return an element; text among its content and in its attributes is escaped."""
    opening = tag + "".join(
        f' {name}="{_attribute_text(amount)}"'
        for name, amount in (attributes or {}).items()
    )
    if tag in EMPTY_TAGS:
        return Markup(f"<{opening}/>")
    return Markup(f"<{opening}>{joined(content).text}</{tag}>")


def joined(content: Iterable[Content]) -> Markup:
    """Return pieces one after the other; text among them is escaped."""
    return Markup(
        "".join(
            piece.text if isinstance(piece, Markup) else _escaped(piece)
            for piece in content
        )
    )


def _escaped(text: str) -> str:
    # Colors of a terminal are none of a page.
    return escape(clean(text).replace("\x1b", "?"))


def _attribute_text(amount: str | float) -> str:
    if isinstance(amount, str):
        return _escaped(amount)
    return number_text(amount)


def number_text(number: float) -> str:
    """Return a number of pixels, to a tenth: less is not seen."""
    return f"{number:.1f}".removesuffix(".0")
