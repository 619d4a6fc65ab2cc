"""A page as terminal text: plain when piped, without wrapping; colored on a terminal."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from planner.render.page import Heading, Page, Paragraph, Table

if TYPE_CHECKING:
    from planner.render.page import Tone

STYLES: Final[dict[Tone, str]] = {
    "": "",
    "strong": "bold",
    "dim": "dim",
    "good": "green",
    "warn": "yellow",
    "bad": "red",
}
GAP: Final = 2


def render(page: Page, *, color: bool = False, width: int | None = None) -> str:
    """Return the page as text, ending with a newline; `width` None never wraps."""
    sink = io.StringIO()
    console = Console(
        file=sink,
        width=width or _widest(page),
        color_system="standard" if color else None,
        force_terminal=color,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
        legacy_windows=False,
    )
    for index, block in enumerate(page):
        if (
            index
            and isinstance(block, Heading | Table)
            and not _joined(page[index - 1], block)
        ):
            console.print()
        if isinstance(block, Heading):
            console.print(Text(block.text, style="bold"))
        elif isinstance(block, Paragraph):
            console.print(Text(block.text, style=STYLES[block.tone]))
        else:
            console.print(_grid(block))
    return (
        "\n".join(line.rstrip() for line in sink.getvalue().splitlines()) + "\n"
    )


def _joined(before: object, block: object) -> bool:
    return isinstance(before, Heading) and isinstance(block, Table)


def _grid(table: Table) -> Grid:
    titled = any(title.strip(">") for title in table.columns)
    grid = Grid(
        box=None,
        show_header=titled,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="dim",
    )
    grid.add_column(width=0)  # its padding is the indentation of the table
    for title in table.columns:
        right = title.startswith(">")
        grid.add_column(
            Text(title.lstrip(">")),
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=right,
        )
    for index, row in enumerate(table.rows):
        tone = table.tones[index] if index < len(table.tones) else ""
        grid.add_row("", *(Text(cell, style=STYLES[tone]) for cell in row))
    return grid


def _widest(page: Page) -> int:
    """Columns that the page needs when nothing may wrap."""
    widths = [1]
    for block in page:
        if isinstance(block, Table):
            columns = zip(block.columns, *block.rows, strict=True)
            widths.append(
                GAP
                + sum(
                    max(cell_len(c) for c in cells) + GAP for cells in columns
                )
            )
        else:
            widths.append(cell_len(block.text))
    return max(widths)
