"""Rows of an export as they stand in its file: CSV, or JSON lines, each cell as text."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NoReturn

from msgspec import Struct

from planner.errors import Place, Problem, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Of a cell in a message.
SHOWN_LETTERS: Final = 40


class ExportRow(Struct, frozen=True, kw_only=True):
    """One row: its cells by the names of their columns, in small letters.

    raw     the last line of it in the file, of which errors tell the column
    titles  the names of columns as the file writes them, of CSV
    """

    path: str
    line: int
    cells: dict[str, str]
    raw: str
    is_json: bool
    titles: tuple[str, ...] = ()

    def place(self, column: str) -> Place:
        """Return where a cell stands: file, line, and the letter at which it begins."""
        if self.is_json:
            key = f'"{column.rpartition(".")[2]}"'
            start = self.raw.casefold().find(key)
        else:
            start = _cell_start(self.raw, list(self.cells).index(column))
        return Place(self.path, self.line, start + 1)

    def refuse(self, column: str, reason: str) -> NoReturn:
        """Raise UsageError for a cell that cannot be read."""
        cell = self.cells[column]
        titles = dict(zip(self.cells, self.titles, strict=False))
        shown = (
            cell if len(cell) <= SHOWN_LETTERS else f"{cell[:SHOWN_LETTERS]}…"
        )
        raise UsageError(
            Problem(
                code="export-cell",
                message=f"{titles.get(column, column)}: '{shown}' {reason}",
                place=self.place(column),
                next_step="export the file again, or correct the row",
            )
        )


class ExportTable(Struct, frozen=True):
    """The rows of a file, and the names of all columns that it has, in small letters."""

    columns: frozenset[str]
    rows: Iterator[ExportRow]


def read_table(file_bytes: bytes, path: str) -> ExportTable:
    """Return the rows of a file; a first letter { says that it has JSON lines.

    Raises UsageError for what is no text, has no rows, or is cut off.
    """
    try:
        # Exports of Azure begin with a byte order mark.
        text = file_bytes.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = file_bytes.count(b"\n", 0, error.start) + 1
        _refuse_line(
            Place(path, line, 1),
            "not text in UTF-8",
            "unpack the file where it is compressed, and export it as CSV",
        )
    if text.lstrip()[:1] == "{":
        return _json_table(text, path)
    return _csv_table(text, path)


def _csv_table(text: str, path: str) -> ExportTable:
    lines = _Lines(text)
    records = _records(lines, path)
    _, names = next(records, (1, []))
    titles = tuple(name.strip() for name in names)
    header = [title.casefold() for title in titles]
    twice = {name for name in header if header.count(name) > 1}
    if twice:
        _refuse_line(
            Place(path, 1, 1),
            f"columns are given twice: {', '.join(sorted(twice))}",
        )
    return ExportTable(
        frozenset(header),
        (
            ExportRow(
                path=path,
                line=line,
                cells=dict(zip(header, cells, strict=True)),
                raw=lines.last,
                is_json=False,
                titles=titles,
            )
            for line, cells in _full_rows(records, len(header), path)
        ),
    )


class _Lines:
    """The lines of a text, of which the last one that was read is kept."""

    def __init__(self, text: str) -> None:
        # Only these ends are those of rows; other ones may stand in a cell.
        self.lines = io.StringIO(text, newline="")
        self.last = ""

    def __iter__(self) -> _Lines:
        """Return itself: the lines are read once."""
        return self

    def __next__(self) -> str:
        """Return the next line."""
        self.last = next(self.lines)
        return self.last


def _records(lines: _Lines, path: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each record with the line at which it ends; empty lines are none."""
    reader = csv.reader(lines, strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        _refuse_line(Place(path, reader.line_num, 1), str(error))


def _full_rows(
    records: Iterator[tuple[int, list[str]]], columns: int, path: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield records; refuse one that has not a cell for each column."""
    for line, cells in records:
        if len(cells) != columns:
            _refuse_line(
                Place(path, line, 1),
                f"{len(cells)} cells, the header has {columns}",
            )
        yield line, cells


def _json_table(text: str, path: str) -> ExportTable:
    rows = [
        _json_row(line, Place(path, number, 1))
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    ]
    # An object has no key where there is nothing to say.
    columns = frozenset(name for row in rows for name in row.cells)
    return ExportTable(columns, iter(rows))


def _json_row(line: str, place: Place) -> ExportRow:
    try:
        document = json.loads(
            line,
            parse_float=Decimal,
            parse_constant=_no_constant,
        )
        cells = dict(_flat_cells(document, ""))
    except (ValueError, RecursionError) as error:
        _refuse_line(place, f"not JSON: {error}")
    return ExportRow(
        path=place.path,
        line=place.line,
        cells=cells,
        raw=line,
        is_json=True,
    )


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _flat_cells(document: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield each value as text under its path, such as service.description; lists as JSON.

    Raises ValueError for what is no object.
    """
    if not isinstance(document, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - as json.loads does
    for key, content in document.items():
        name = f"{prefix}{key}".casefold()
        if isinstance(content, dict):
            yield from _flat_cells(content, f"{name}.")
        elif isinstance(content, list):
            yield name, json.dumps(content, default=str)
        else:
            yield name, "" if content is None else str(content)


def _cell_start(raw: str, index: int) -> int:
    """Return at which letter of a line of CSV the cell of an index begins; 0 where it is not."""
    is_quoted = False
    for position, letter in enumerate(raw):
        if index == 0:
            return position
        if letter == '"':
            is_quoted = not is_quoted
        elif letter == "," and not is_quoted:
            index -= 1
    return 0


def _refuse_line(
    place: Place,
    message: str,
    next_step: str = "export the file again: this one is damaged",
) -> NoReturn:
    raise UsageError(
        Problem(
            code="export-row", message=message, place=place, next_step=next_step
        )
    )
