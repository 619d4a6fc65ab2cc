"""Pages before rendering: headings, paragraphs and tables."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

Tone: TypeAlias = Literal["", "strong", "dim", "good", "warn", "bad"]


class Heading(Struct, frozen=True):
    """A heading of one line."""

    text: str


class Paragraph(Struct, frozen=True):
    """One line of text.

    tone  emphasis or color; the text alone carries the meaning
    """

    text: str
    tone: Tone = ""


class PageTable(Struct, frozen=True):
    """A table of text cells.

    columns  titles; > at the start aligns the column to the right
    tones    tone of each row from the first; missing ones are plain
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    tones: tuple[Tone, ...] = ()


Block: TypeAlias = Heading | Paragraph | PageTable
Page: TypeAlias = tuple[Block, ...]


def total_row_tones(row_count: int) -> tuple[Tone, ...]:
    """Return the tones of `row_count` rows of which the last one is a total."""
    plain_tone: Tone = ""
    strong_tone: Tone = "strong"
    return (*(plain_tone for _ in range(row_count - 1)), strong_tone)
