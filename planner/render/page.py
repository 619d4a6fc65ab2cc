"""What is shown, before it is text or markdown: headings, paragraphs and tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Tone: TypeAlias = Literal["", "strong", "dim", "good", "warn", "bad"]


@dataclass(frozen=True, slots=True)
class Heading:
    """A line that opens a part."""

    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One line of text; `tone` is how it is meant, never the only carrier of meaning."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class PageTable:
    """Rows under column titles; titles that start with > are aligned to the right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    tones: tuple[Tone, ...] = ()


Block: TypeAlias = Heading | Paragraph | PageTable
Page: TypeAlias = tuple[Block, ...]


def total_row_tones(row_count: int) -> tuple[Tone, ...]:
    """Tones for so many rows, the last of which is a total."""
    plain_tone: Tone = ""
    strong_tone: Tone = "strong"
    return (*(plain_tone for _ in range(row_count - 1)), strong_tone)
