"""Markdown that is too long for a comment, cut at whole sections."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
HEADING: Final = re.compile(r" {0,3}(#{1,6})(?:\s|$)")
FOLD_BEGIN: Final = "<details"
FOLD_END: Final = "</details>"
GAP: Final = "\n\n"
# Blocks and lines that are left out are counted with at most so many digits.
MOST_LEFT_OUT: Final = 9_999_999


class CommentBlock(Struct, frozen=True):
    """A paragraph, a table, a list, a heading, a block of code, or a fold with all that is in it.

    `level` is that of a heading, from 1 to 6; 0 for others.
    """

    text: str
    level: int = 0
    is_fold: bool = False

    @property
    def size(self) -> int:
        """UTF-16 units of the block and the gap after it."""
        return utf16_size(self.text) + len(GAP)


def utf16_size(text: str) -> int:
    """Return the UTF-16 units of a text: never less than its characters.

    Code hosts count characters or UTF-16 units, and do not say which.
    """
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def open_fence(line: str, fence: str) -> str:
    """Return the fence that is open after a line, if `fence` was open before it."""
    fence_match = FENCE.match(line)
    if fence_match is None:
        return fence
    mark, info = fence_match[1], fence_match[2]
    if not fence:
        # A line of code may stand between backticks.
        return "" if mark[0] == "`" and "`" in info else mark
    closes = mark.startswith(fence) and not info.strip()
    return "" if closes else fence


def comment_blocks(text: str) -> list[CommentBlock]:
    """Return the blocks of a text; joined with empty lines they are the text."""
    blocks: list[CommentBlock] = []
    lines: list[str] = []
    fence = ""
    depth = 0

    def end_block() -> None:
        block_text = "\n".join(lines).strip("\n")
        if block_text:
            blocks.append(_block(block_text))
        lines.clear()

    for line in text.split("\n"):
        is_open = bool(fence) or depth > 0
        if not is_open and (not line.strip() or HEADING.match(line)):
            end_block()
        fence, depth = _after_line(line, fence, depth)
        lines.append(line)
        if not is_open and HEADING.match(line):
            end_block()
    end_block()
    return blocks


def _block(text: str) -> CommentBlock:
    heading = HEADING.match(text)
    return CommentBlock(
        text,
        level=len(heading[1]) if heading else 0,
        is_fold=text.lstrip().startswith(FOLD_BEGIN),
    )


def cut_comment(text: str, room: int, limit: int, report_url: str) -> str:
    """Return at most `room` UTF-16 units of a text, with a note of what is left out.

    Folds go first, from the last on; then sections, from the last on; then what follows the first
    block. Of the first block itself lines are left out at the end. `limit` is named in the note.
    """
    if utf16_size(text) <= room:
        return text
    # Else the note would be in code, or in a fold.
    blocks = comment_blocks(text + _closing(*_open_ends(text)))
    note_size = utf16_size(_note(MOST_LEFT_OUT, limit, report_url))
    block_room = room - note_size
    size = sum(block.size for block in blocks)
    left_out: set[int] = set()
    for position in _drop_order(blocks):
        if size <= block_room:
            break
        if position not in left_out:
            left_out.add(position)
            size -= blocks[position].size
    parts = [
        block.text
        for position, block in enumerate(blocks)
        if position not in left_out
    ]
    if size > block_room:
        parts = [_first_lines(blocks[0].text, block_room - len(GAP))]
    count = len(left_out)
    return GAP.join([*parts, _note(count, limit, report_url)])


def _note(count: int, limit: int, report_url: str) -> str:
    parts = "the end" if not count else f"{count:,} parts"
    if count == 1:
        parts = "1 part"
    where = f": [the whole report]({report_url})" if report_url else "."
    return (
        f"*Left out: {parts}, as a comment has at most {limit:,} characters"
        f"{where}*"
    )


def _drop_order(blocks: list[CommentBlock]) -> Iterator[int]:
    """Yield the blocks that may go, the least important one first; the first block stays."""
    last_first = range(len(blocks) - 1, 0, -1)
    yield from (position for position in last_first if blocks[position].is_fold)
    headings = [
        position for position in last_first if blocks[position].level > 0
    ]
    end = len(blocks)
    for heading in headings:
        # A heading without its text, or a text without its heading, says nothing.
        yield from range(heading, end)
        end = heading
    yield from range(end - 1, 0, -1)


def _open_ends(text: str) -> tuple[str, int]:
    """Return the fence and the number of folds that are open after a text."""
    fence = ""
    depth = 0
    for line in text.split("\n"):
        fence, depth = _after_line(line, fence, depth)
    return fence, depth


def _after_line(line: str, fence: str, depth: int) -> tuple[str, int]:
    """Return the fence and the folds that are open after a line; in code no fold begins."""
    next_fence = open_fence(line, fence)
    if fence or next_fence:
        return next_fence, depth
    opened = line.count(FOLD_BEGIN) - line.count(FOLD_END)
    return next_fence, max(0, depth + opened)


def _closing(fence: str, depth: int) -> str:
    """Return what closes a fence and folds."""
    fence_end = f"\n{fence}" if fence else ""
    return fence_end + f"\n\n{FOLD_END}" * depth


def _first_lines(text: str, room: int) -> str:
    """Return the first lines of a block that fit, with what closes its code and its folds."""
    lines: list[str] = []
    fence, depth = "", 0
    size = 0
    for line in text.split("\n"):
        ends = _after_line(line, fence, depth)
        next_size = size + utf16_size(line) + 1
        if next_size + len(_closing(*ends)) > room:
            break
        lines.append(line)
        fence, depth = ends
        size = next_size
    if not lines:
        # Of a single line that is too long its start is better than nothing.
        return text[: max(0, room // 2)]
    return "\n".join(lines) + _closing(fence, depth)
