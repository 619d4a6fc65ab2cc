"""Pages before rendering: headings, paragraphs and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

Tone: TypeAlias = Literal["", "strong", "dim", "good", "warn", "bad"]


# What a terminal shows without breaking a line, and a reader takes in at once.
LINE_WIDTH: Final = 100
# What it shows at once.
PAGE_LINES: Final = 45
PHRASE_DOT: Final = "  ·  "


class Heading(Struct, frozen=True):
    """A heading of one line."""

    text: str


class Paragraph(Struct, frozen=True):
    """One line of text.

    tone   emphasis or color; the text alone carries the meaning
    width  columns of its lines at most, also where there is no terminal; 0: one line

    Lines after the first are indented as the first is.
    """

    text: str
    tone: Tone = ""
    width: int = 0


class PageTable(Struct, frozen=True):
    """A table of text cells.

    columns  titles; > at the start aligns the column to the right
    tones    tone of each row from the first; missing ones are plain
    width    columns at most, also where there is no terminal; 0: as many as it needs
    narrower the same with less in it, for text where this one has no room for its numbers
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    tones: tuple[Tone, ...] = ()
    width: int = 0
    narrower: PageTable | None = None


Block: TypeAlias = Heading | Paragraph | PageTable
Page: TypeAlias = tuple[Block, ...]


def phrases(
    words: Sequence[str], tone: Tone = "", indent: str = ""
) -> Paragraph:
    """Return phrases with dots between them; lines break at the dots."""
    return Paragraph(indent + PHRASE_DOT.join(words), tone, LINE_WIDTH)


def total_row_tones(row_count: int) -> tuple[Tone, ...]:
    """Return the tones of `row_count` rows of which the last one is a total."""
    plain_tone: Tone = ""
    strong_tone: Tone = "strong"
    return (*(plain_tone for _ in range(row_count - 1)), strong_tone)
