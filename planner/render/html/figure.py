"""A picture with the table of its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from planner.render.html.blocks import table_markup
from planner.render.html.markup import Markup, element
from planner.render.html.picture import WIDTH, picture

if TYPE_CHECKING:
    from planner.render.html.picture import Drawing
    from planner.render.page import PageTable


class Figure(Struct, frozen=True, kw_only=True):
    """A picture, what it shows in a sentence, and the table of its numbers.

    key      unique in its section
    is_open  whether the table is shown from the start
    """

    key: str
    title: str
    summary: str
    drawing: Drawing
    table: PageTable
    is_open: bool = False

    def markup(self, section_key: str) -> Markup:
        """Return the figure of a section; a picture wider than a page is scrolled by its own."""
        shown = picture(
            f"{section_key}-{self.key}", self.title, self.summary, self.drawing
        )
        if self.drawing.width > WIDTH:
            shown = element(
                "div",
                {
                    "class": "scroll",
                    "tabindex": "0",
                    "role": "group",
                    "aria-label": self.title,
                },
                shown,
            )
        table = element(
            "details",
            {"open": "open"} if self.is_open else None,
            element("summary", None, f"Table: {self.title}"),
            table_markup(self.table, self.title),
        )
        return element(
            "figure",
            None,
            element("figcaption", None, self.title),
            shown,
            table,
        )


class Section(Struct, frozen=True, kw_only=True):
    """A part of a report with a heading of its own; its key is unique in the report."""

    key: str
    title: str
    content: tuple[Markup | Figure, ...]

    def markup(self, level: int, prefix: str = "") -> Markup:
        """Return the section below a heading of a level.

        With a prefix it is a part of a larger section, and no landmark: there would be too many.
        """
        key = f"{prefix}{self.key}"
        return element(
            "section",
            None if prefix else {"aria-labelledby": key},
            element(f"h{level}", {"id": key}, self.title),
            *(
                part.markup(key) if isinstance(part, Figure) else part
                for part in self.content
            ),
        )
