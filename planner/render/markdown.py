"""Rendering of a page as GitHub markdown; text from specs is escaped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from planner.render.clean import clean
from planner.render.page import Heading, Paragraph

if TYPE_CHECKING:
    from planner.render.page import Page, PageTable


def render(page: Page) -> str:
    """Return the page as markdown with a newline at the end."""
    markdown_parts = []
    for page_block in page:
        if isinstance(page_block, Heading):
            markdown_parts.append(f"### {escape(page_block.text)}")
        elif isinstance(page_block, Paragraph):
            escaped_text = escape(page_block.text)
            markdown_parts.append(
                f"**{escaped_text}**"
                if page_block.tone == "strong"
                else escaped_text
            )
        else:
            markdown_parts.append(_markdown_table(page_block))
    return clean(
        "\n\n".join(
            markdown_part for markdown_part in markdown_parts if markdown_part
        )
        + "\n"
    )


def escape(text: str) -> str:
    """Return text as one line in which no character is markdown or HTML."""
    # A line break would end a table row or start another block.
    single_line = re.sub(r"[\r\n]+", " ", text)
    single_line = single_line.replace("&", "&amp;").replace("<", "&lt;")
    # @ and # would link people and issues on GitHub.
    return re.sub(r"([\\`*_{}\[\]|@#])", r"\\\1", single_line)


def _markdown_table(table: PageTable) -> str:
    header_cells = [
        escape(column_title.lstrip(">")) or " "
        for column_title in table.columns
    ]
    rule_cells = [
        "---:" if column_title.startswith(">") else "---"
        for column_title in table.columns
    ]
    table_lines = [
        header_cells,
        rule_cells,
        *(
            [escape(cell_text) or " " for cell_text in table_row]
            for table_row in table.rows
        ),
    ]
    return "\n".join(
        "| " + " | ".join(line_cells) + " |" for line_cells in table_lines
    )
