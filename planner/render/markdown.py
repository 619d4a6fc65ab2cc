"""A page as GitHub markdown; text from specs is escaped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from planner.render.page import Heading, Paragraph

if TYPE_CHECKING:
    from planner.render.page import Page, Table


def render(page: Page) -> str:
    """Return the page as markdown, ending with a newline."""
    parts = []
    for block in page:
        if isinstance(block, Heading):
            parts.append(f"### {escape(block.text)}")
        elif isinstance(block, Paragraph):
            text = escape(block.text)
            parts.append(f"**{text}**" if block.tone == "strong" else text)
        else:
            parts.append(_table(block))
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """Take the meaning from characters that markdown or HTML would act on."""
    flat = re.sub(r"[\r\n]+", " ", text)
    flat = flat.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*_{}\[\]|@#])", r"\\\1", flat)


def _table(table: Table) -> str:
    titles = [escape(title.lstrip(">")) or " " for title in table.columns]
    rules = [
        "---:" if title.startswith(">") else "---" for title in table.columns
    ]
    lines = [
        titles,
        rules,
        *([escape(cell) or " " for cell in row] for row in table.rows),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
