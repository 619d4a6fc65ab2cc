"""Blocks of a page as HTML: the same rows that a terminal shows."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from planner.render.html.markup import element
from planner.render.page import PHRASE_DOT, Heading, Paragraph

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planner.render.html.markup import Content, Markup
    from planner.render.page import Block, PageTable

NO_LINKS: Final[Mapping[int, str]] = MappingProxyType({})
# Bars of letters, for which a report has pictures.
LETTER_BAR: Final = re.compile("[█░]+ ?")


def block_markup(
    blocks: Sequence[Block], heading_level: int
) -> tuple[Markup, ...]:
    """Return headings of a level, paragraphs and tables; what has no text is left out."""
    return tuple(
        _one_block(block, heading_level)
        for block in blocks
        if not isinstance(block, Paragraph) or block.text.strip()
    )


def _one_block(block: Block, heading_level: int) -> Markup:
    if isinstance(block, Heading):
        return element(f"h{heading_level}", None, block.text)
    if isinstance(block, Paragraph):
        text = block.text.strip().replace(PHRASE_DOT, " · ")
        return element("p", {"class": block.tone} if block.tone else None, text)
    return table_markup(block)


def table_markup(
    table: PageTable, name: str = "", links: Sequence[Mapping[int, str]] = ()
) -> Markup:
    """Return a table that may be scrolled sideways by its own, with keys too.

    name   what it is of, where its first title does not say it
    links  for each row, where its cells lead, by their position
    """
    numeric = [title.startswith(">") for title in table.columns]
    titles = [title.lstrip(">") for title in table.columns]
    shown_name = name or next(filter(None, titles), "table")
    rows = [
        _table_row(
            row,
            numeric,
            table.tones[number] if number < len(table.tones) else "",
            links[number] if links else NO_LINKS,
        )
        for number, row in enumerate(table.rows)
    ]
    head = [
        element(
            # A cell without a title is the head of nothing.
            "th" if title else "td",
            {
                **({"scope": "col"} if title else {}),
                **({"class": "n"} if is_numeric else {}),
            },
            title,
        )
        for title, is_numeric in zip(titles, numeric, strict=True)
    ]
    has_titles = any(titles)
    return element(
        "div",
        {
            "class": "scroll",
            "tabindex": "0",
            "role": "group",
            "aria-label": shown_name,
        },
        element(
            "table",
            None,
            *(
                [element("thead", None, element("tr", None, *head))]
                * has_titles
            ),
            element("tbody", None, *rows),
        ),
    )


def _table_row(
    cells: Sequence[str],
    numeric: Sequence[bool],
    tone: str,
    links: Mapping[int, str],
) -> Markup:
    shown = [
        element(
            # The first cell of a row says what the others are of.
            "td" if number or not cell else "th",
            {"class": "n"} if is_numeric else None,
            _linked(LETTER_BAR.sub("", cell), links.get(number)),
        )
        for number, (cell, is_numeric) in enumerate(
            zip(cells, numeric, strict=True)
        )
    ]
    return element("tr", {"class": tone} if tone else None, *shown)


def _linked(text: str, target: str | None) -> Content:
    return element("a", {"href": target}, text) if target and text else text
