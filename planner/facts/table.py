"""Reads a CSV table of facts and refuses the first row that breaks a rule, by file and line.

The rules of a table are its columns: a converter each, which raises ValueError with a reason.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from planner.errors import CatalogError, Place, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

CellT = TypeVar("CellT")


@dataclass(frozen=True, slots=True)
class TableRow:
    """The converted cells of one line."""

    place: Place
    cells: dict[str, Any]

    def __getitem__(self, column: str) -> Any:
        """Return one cell."""
        return self.cells[column]


def read_rows(
    text: str, path: str, columns: Mapping[str, Callable[[str], Any]]
) -> Iterator[TableRow]:
    """Yield the rows of a table; the header must be exactly `columns`, in any order.

    Raises CatalogError that names file, line and column of the first bad cell.
    """
    csv_reader = csv.reader(text.splitlines(), strict=True)
    header = next(csv_reader, [])
    if sorted(header) != sorted(columns):
        odd_columns = set(header) ^ set(columns)
        refuse_row(
            Place(path, 1, 1),
            f"columns differ: {', '.join(sorted(odd_columns))}",
        )
    converters = [columns[column] for column in header]
    # Most columns repeat few values, so each distinct cell is converted once.
    column_memos: list[dict[str, Any]] = [{} for _ in header]
    for cells in csv_reader:
        position = Place(path, csv_reader.line_num, 1)
        if len(cells) != len(header):
            refuse_row(
                position, f"{len(cells)} cells, the header has {len(header)}"
            )
        try:
            converted = [
                column_memo[cell]
                if cell in column_memo
                else column_memo.setdefault(cell, converter(cell))
                for column_memo, converter, cell in zip(
                    column_memos, converters, cells, strict=True
                )
            ]
        except (ValueError, InvalidOperation):
            _refuse_cell(position, header, converters, cells)
        yield TableRow(position, dict(zip(header, converted, strict=True)))


def rows_by_key(
    table_rows: Iterable[TableRow], *columns: str
) -> dict[tuple[Any, ...], TableRow]:
    """Return rows by the cells of some columns; refuses a row that is given twice."""
    rows_by_cells: dict[tuple[Any, ...], TableRow] = {}
    for table_row in table_rows:
        row_key = tuple(table_row[column] for column in columns)
        if row_key in rows_by_cells:
            refuse_row(
                table_row.place, f"{' '.join(row_key).strip()} is given twice"
            )
        rows_by_cells[row_key] = table_row
    return rows_by_cells


def refuse_row(place: Place, message: str) -> NoReturn:
    """Raise the error of a row that cannot be used."""
    next_step = "restore the file, or correct the row"
    raise CatalogError(
        Problem(
            code="catalog-row",
            message=message,
            place=place,
            next_step=next_step,
        )
    )


def _refuse_cell(
    place: Place,
    header: list[str],
    converters: list[Callable[[str], Any]],
    cells: list[str],
) -> NoReturn:
    for column, converter, cell in zip(header, converters, cells, strict=True):
        try:
            converter(cell)
        except InvalidOperation:
            refuse_row(place, f"{column}: '{cell}' is not a number")
        except ValueError as error:
            refuse_row(place, f"{column}: '{cell}' {error}")
    refuse_row(place, "the row cannot be read")


def nonempty_text(cell: str) -> str:
    """Non-empty text."""
    if not cell:
        raise ValueError("is empty")
    return cell


def any_text(cell: str) -> str:
    """Any text, also none."""
    return cell


def one_of(*words: str) -> Callable[[str], str]:
    """One of the words."""
    known_words = frozenset(words)

    def convert_word(cell: str) -> str:
        if cell not in known_words:
            raise ValueError("is not one of " + ", ".join(sorted(known_words)))
        return cell

    return convert_word


def subset_of(*words: str) -> Callable[[str], tuple[str, ...]]:
    """Some of the words, separated by semicolons."""
    parse_word = one_of(*words)
    return lambda cell: tuple(
        parse_word(word_text) for word_text in cell.split(";") if word_text
    )


def word_list(cell: str) -> tuple[str, ...]:
    """Words separated by semicolons."""
    return tuple(word_text for word_text in cell.split(";") if word_text)


def yes_or_no(cell: str) -> bool:
    """Yes or no."""
    return one_of("yes", "no")(cell) == "yes"


def real_between(minimum: float, maximum: float) -> Callable[[str], float]:
    """A finite number within bounds."""

    def convert_real(cell: str) -> float:
        number = float(cell)
        if not minimum <= number <= maximum:  # also refuses NaN
            raise ValueError(f"is not between {minimum:g} and {maximum:g}")
        return number

    return convert_real


def integer_between(minimum: int, maximum: int) -> Callable[[str], int]:
    """An integer within bounds."""

    def convert_integer(cell: str) -> int:
        number = int(cell)
        if not minimum <= number <= maximum:
            raise ValueError(f"is not between {minimum} and {maximum}")
        return number

    return convert_integer


def usd_price(cell: str) -> Decimal:
    """USD, positive and finite."""
    price_usd = Decimal(cell)
    if not price_usd.is_finite() or not 0 < price_usd < 10**6:
        raise ValueError("is not a price above 0 and below 1,000,000")
    return price_usd


def partial_date(cell: str) -> str:
    """A date as exact as known: 2026, 2026-07, 2026-07-30, or unknown."""
    if not re.fullmatch(r"20\d\d(-(0[1-9]|1[0-2])(-\d\d)?)?|unknown", cell):
        raise ValueError("is not a date")
    return cell


def finite_decimal(cell: str) -> Decimal:
    """Any finite decimal number."""
    number = Decimal(cell)
    if not number.is_finite():
        raise ValueError("is not finite")
    return number


def optional(
    converter: Callable[[str], CellT],
) -> Callable[[str], CellT | None]:
    """The same, or nothing when the cell is empty."""
    return lambda cell: converter(cell) if cell else None


CONFIDENCE_LEVEL = one_of("high", "medium", "low")
SOURCE_COLUMNS: dict[str, Callable[[str], Any]] = {
    "source": nonempty_text,
    "as_of": partial_date,
}
