"""Rendering of a page as text: colored on a terminal, not wrapped when piped."""

from __future__ import annotations

import io
import textwrap
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from planner.render.clean import clean
from planner.render.page import (
    PHRASE_DOT,
    Heading,
    Page,
    PageTable,
    Paragraph,
)

if TYPE_CHECKING:
    from planner.render.page import Tone

TONE_STYLES: Final[dict[Tone, str]] = {
    "": "",
    "strong": "bold",
    "dim": "dim",
    "good": "green",
    "warn": "yellow",
    "bad": "red",
}
COLUMN_GAP: Final = 2


def render(page: Page, *, color: bool = False, width: int | None = None) -> str:
    """Return the page as text with a final newline; no `width` means no wrapping."""
    text_buffer = io.StringIO()
    rich_console = Console(
        file=text_buffer,
        # Piped lines are as long as the widest one, for grep and diff.
        width=width or _page_width(page),
        color_system="standard" if color else None,
        force_terminal=color,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
        legacy_windows=False,
    )
    for block_index, page_block in enumerate(page):
        if (
            block_index
            and isinstance(page_block, Heading | PageTable)
            # A table below its heading or a blank line has no blank line of its own.
            and not _is_joined(page[block_index - 1], page_block)
        ):
            rich_console.print()
        if isinstance(page_block, Heading):
            rich_console.print(Text(page_block.text, style="bold"))
        elif isinstance(page_block, Paragraph):
            rich_console.print(
                Text(
                    _wrapped(page_block, rich_console.width),
                    style=TONE_STYLES[page_block.tone],
                )
            )
        else:
            _print_table(rich_console, page_block)
    return clean(
        "\n".join(
            # rich fills lines with spaces.
            text_line.rstrip()
            for text_line in text_buffer.getvalue().splitlines()
        )
        + "\n"
    )


def line_count(page: Page) -> int:
    """Return how many lines the text of a page has where it is not made narrower."""
    return render(page).count("\n") if page else 0


def _is_joined(previous_block: object, block: object) -> bool:
    return isinstance(block, PageTable) and (
        isinstance(previous_block, Heading) or previous_block == Paragraph("")
    )


def _wrapped(paragraph: Paragraph, console_width: int) -> str:
    """Return the text in lines of the width, which break at dots where there are any."""
    line_width = min(paragraph.width or console_width, console_width)
    indent = " " * (len(paragraph.text) - len(paragraph.text.lstrip()))
    lines: list[str] = []
    for phrase in paragraph.text.split(PHRASE_DOT):
        longer_line = PHRASE_DOT.join([*lines[-1:], phrase])
        if lines and cell_len(longer_line) <= line_width:
            lines[-1] = longer_line
            continue
        lines += textwrap.wrap(
            phrase,
            line_width,
            initial_indent=indent if lines else "",
            subsequent_indent=indent,
            # A name in two parts cannot be copied.
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def least_width(table: PageTable) -> int:
    """Return the columns that a table takes with its numbers whole, and words whole elsewhere."""
    widths = [
        _widest_cell(cells) if cells[0].startswith(">") else _widest_word(cells)
        for cells in _columns(table)
    ]
    return COLUMN_GAP * len(widths) + sum(widths)


def _columns(table: PageTable) -> list[tuple[str, ...]]:
    """Return the cells of each column, its title first."""
    return list(zip(table.columns, *table.rows, strict=True))


def _widest_cell(cells: tuple[str, ...]) -> int:
    return max(map(cell_len, (cells[0].lstrip(">"), *cells[1:])))


def _widest_word(cells: tuple[str, ...]) -> int:
    texts = (cells[0].lstrip(">"), *cells[1:])
    words = [word for text in texts for word in text.split()]
    return max(map(cell_len, words), default=0)


def _column_widths(table: PageTable, table_width: int) -> list[int]:
    """Return the width of each column of a table.

    The widest column of words becomes narrower until the table fits, then the widest one of
    numbers with units. Cells break between words only: a name in two parts cannot be copied, and
    a number would be misread. A table that is still too wide stays so.
    """
    columns = _columns(table)
    widths = [_widest_cell(cells) for cells in columns]
    least_widths = [_widest_word(cells) for cells in columns]
    numeric = [title.startswith(">") for title in table.columns]
    while COLUMN_GAP * len(widths) + sum(widths) > table_width:
        shrinking = [
            index
            for index, width in enumerate(widths)
            if width > least_widths[index]
        ]
        if not shrinking:
            break
        widest = max(
            shrinking, key=lambda index: (not numeric[index], widths[index])
        )
        widths[widest] -= 1
    return widths


def _print_table(rich_console: Console, table: PageTable) -> None:
    table_width = min(table.width or rich_console.width, rich_console.width)
    while table.narrower is not None and least_width(table) > table_width:
        table = table.narrower
    widths = _column_widths(table, table_width)
    page_width = rich_console.width
    # Of a table that is too wide rich would break words and numbers.
    needed_width = COLUMN_GAP * len(widths) + sum(widths)
    rich_console.width = max(needed_width, page_width)
    rich_console.print(_rich_table(table, widths))
    rich_console.width = page_width


def _rich_table(table: PageTable, widths: list[int]) -> Grid:
    has_titles = any(column_title.strip(">") for column_title in table.columns)
    rich_table = Grid(
        box=None,
        show_header=has_titles,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="dim",
    )
    rich_table.add_column(
        width=0
    )  # its padding is the indentation of the table
    for column_title, column_width in zip(table.columns, widths, strict=True):
        is_numeric = column_title.startswith(">")
        rich_table.add_column(
            Text(column_title.lstrip(">")),
            justify="right" if is_numeric else "left",
            overflow="fold",
            width=column_width,
        )
    for row_index, table_row in enumerate(table.rows):
        row_tone = (
            table.tones[row_index] if row_index < len(table.tones) else ""
        )
        rich_table.add_row(
            "",
            *(
                Text(cell_text, style=TONE_STYLES[row_tone])
                for cell_text in table_row
            ),
        )
    return rich_table


def _page_width(page: Page) -> int:
    """Return the columns that the page needs without wrapping."""
    block_widths = [1]
    for page_block in page:
        if isinstance(page_block, PageTable):
            table_columns = zip(
                page_block.columns, *page_block.rows, strict=True
            )
            table_width = COLUMN_GAP + sum(
                max(cell_len(cell_text) for cell_text in column_cells)
                + COLUMN_GAP
                for column_cells in table_columns
            )
            block_widths.append(
                min(table_width, page_block.width or table_width)
            )
        else:
            text_width = cell_len(page_block.text)
            max_width = getattr(page_block, "width", 0) or text_width
            block_widths.append(min(text_width, max_width))
    return max(block_widths)
