"""Read CSV tables of facts; the first invalid row is refused with file and line.

A table is defined by its columns. Each has a converter, which raises ValueError with a reason.
"""

from __future__ import annotations

import csv
import pkgutil
import re
from calendar import monthrange
from decimal import Decimal, InvalidOperation
from operator import getitem
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypeVar

from msgspec import Struct

from planner.errors import CatalogError, Place, Problem

if TYPE_CHECKING:
    import _csv
    from collections.abc import Callable, Iterable, Iterator, Mapping

# How the text of each column is read; a reader raises ValueError with a reason.
Columns: TypeAlias = "dict[str, Callable[[str], Any]]"
CellT = TypeVar("CellT")
# Between these a number may be a price, USD: below is an amount that no bill would show.
LEAST_USD: Final = Decimal("1e-9")
MOST_USD: Final = Decimal(1_000_000)
UNKNOWN_DATE: Final = "unknown"
DAY_DIGITS: Final = len("2025-07-30")


class TableRow(Struct):
    """The converted cells of one line of a file."""

    path: str
    line: int
    cells: dict[str, Any]

    @property
    def place(self) -> Place:
        """Where the line stands."""
        return Place(self.path, self.line, 1)

    def __getitem__(self, column: str) -> Any:
        """Return one cell."""
        return self.cells[column]


class _ConvertedCells(dict[str, Any]):
    """The cells of a column by their text: each distinct text is converted once."""

    def __init__(self, converter: Callable[[str], Any]) -> None:
        super().__init__()
        self.converter = converter

    def __missing__(self, cell: str) -> Any:
        """Convert a text that was not met before."""
        converted = self[cell] = self.converter(cell)
        return converted


def load_rows(
    package: str, file_name: str, columns: Mapping[str, Callable[[str], Any]]
) -> Iterator[TableRow]:
    """Yield the rows of a table in the data folder of a package, as `read_rows` does."""
    return read_rows(data_text(package, file_name), file_name, columns)


def data_text(package: str, file_name: str) -> str:
    """Return the text of a file in the data folder of a package."""
    return package_text(package, f"data/{file_name}")


def package_text(package: str, path: str) -> str:
    """Return the text of a file of a package; raises FileNotFoundError where it has none."""
    # importlib.resources does the same, and takes 7 ms to import.
    file_bytes = pkgutil.get_data(package, path)
    if file_bytes is None:
        raise FileNotFoundError(path)
    return file_bytes.decode("utf-8")


def read_rows(
    text: str, path: str, columns: Mapping[str, Callable[[str], Any]]
) -> Iterator[TableRow]:
    """Yield the rows of a table.

    The header must have exactly the names in `columns`, in any order. Raises CatalogError with
    file, line and column of the first invalid cell.
    """
    csv_reader = csv.reader(text.splitlines(), strict=True)
    header = next(csv_reader, [])
    if sorted(header) != sorted(columns):
        # Both missing and unknown columns.
        odd_columns = set(header) ^ set(columns)
        refuse_row(
            Place(path, 1, 1),
            f"columns differ: {', '.join(sorted(odd_columns))}",
        )
    converted_columns = [_ConvertedCells(columns[column]) for column in header]
    for cells in _read_cells(csv_reader, path):
        if len(cells) != len(header):
            refuse_row(
                Place(path, csv_reader.line_num, 1),
                f"{len(cells)} cells, the header has {len(header)}",
            )
        try:
            converted_cells = dict(
                zip(header, map(getitem, converted_columns, cells), strict=True)
            )
        except (ValueError, InvalidOperation):
            # A second pass over the row finds the column, only on an error.
            _refuse_cell(
                Place(path, csv_reader.line_num, 1),
                header,
                [columns[column] for column in header],
                cells,
            )
        yield TableRow(path, csv_reader.line_num, converted_cells)


def _read_cells(csv_reader: _csv.Reader, path: str) -> Iterator[list[str]]:
    """Yield the cells of each line; refuse what is no line of a table."""
    try:
        yield from csv_reader
    except csv.Error as error:
        refuse_row(Place(path, csv_reader.line_num, 1), str(error))


def rows_by_key(
    table_rows: Iterable[TableRow], *columns: str
) -> dict[tuple[Any, ...], TableRow]:
    """Return rows by their cells in some columns.

    Raises CatalogError for a key that appears twice.
    """
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
    """Raise CatalogError for an invalid row."""
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
        # Decimal raises this instead of ValueError for text.
        except InvalidOperation:
            refuse_row(place, f"{column}: '{cell}' is not a number")
        except ValueError as error:
            refuse_row(place, f"{column}: '{cell}' {error}")
    refuse_row(place, "the row cannot be read")


def nonempty_text(cell: str) -> str:
    """Return text that is not empty."""
    if not cell:
        raise ValueError("is empty")
    return cell


def any_text(cell: str) -> str:
    """Return text, which may be empty."""
    return cell


def one_of(*words: str) -> Callable[[str], str]:
    """Return a converter that accepts one of the words."""
    known_words = frozenset(words)

    def convert_word(cell: str) -> str:
        if cell not in known_words:
            raise ValueError("is not one of " + ", ".join(sorted(known_words)))
        return cell

    return convert_word


def subset_of(*words: str) -> Callable[[str], tuple[str, ...]]:
    """Return a converter of words separated by semicolons, each from the given set."""
    parse_word = one_of(*words)
    return lambda cell: tuple(
        parse_word(word_text) for word_text in cell.split(";") if word_text
    )


def word_list(cell: str) -> tuple[str, ...]:
    """Return words separated by semicolons."""
    return tuple(word_text for word_text in cell.split(";") if word_text)


def yes_or_no(cell: str) -> bool:
    """Return whether the cell is yes; it must be yes or no."""
    return one_of("yes", "no")(cell) == "yes"


def real_between(minimum: float, maximum: float) -> Callable[[str], float]:
    """Return a converter of finite numbers within bounds, both included."""

    def convert_real(cell: str) -> float:
        number = float(cell)
        if not minimum <= number <= maximum:  # also refuses NaN
            raise ValueError(f"is not between {minimum:g} and {maximum:g}")
        return number

    return convert_real


def integer_between(minimum: int, maximum: int) -> Callable[[str], int]:
    """Return a converter of integers within bounds, both included."""

    def convert_integer(cell: str) -> int:
        number = int(cell)
        if not minimum <= number <= maximum:
            raise ValueError(f"is not between {minimum} and {maximum}")
        return number

    return convert_integer


def is_price(usd: Decimal) -> bool:
    """Whether a number may be a price in USD: above 0 and below 1,000,000."""
    # Decimal also parses NaN, Infinity, and numbers that are 0 as a float.
    return usd.is_finite() and LEAST_USD <= usd < MOST_USD


def usd_price(cell: str) -> Decimal:
    """Return a price in USD, above 0 and below 1,000,000."""
    price_usd = Decimal(cell)
    if not is_price(price_usd):
        raise ValueError("is not a price above 0 and below 1,000,000")
    return price_usd


def partial_date(cell: str) -> str:
    """Return a date as exact as it is known: 2026, 2026-07, 2026-07-30 or unknown."""
    found = re.fullmatch(
        r"(20\d\d)(?:-(0[1-9]|1[0-2])(?:-(\d\d))?)?|unknown", cell, re.ASCII
    )
    if found is None:
        raise ValueError("is not a date")
    year, month, day = found.groups()
    if day and not 1 <= int(day) <= monthrange(int(year), int(month))[1]:
        raise ValueError("is not a day of its month")
    return cell


def day(cell: str) -> str:
    """Return a date that is known to the day."""
    as_of = partial_date(cell)
    if len(as_of) != DAY_DIGITS:
        raise ValueError("is not a day")
    return as_of


def date_until(last: str) -> Callable[[str], str]:
    """Return a converter of `partial_date` for days up to another one, such as 2026-11-18.

    What is known to the month or the year has begun by then.
    """

    def convert_date(cell: str) -> str:
        as_of = partial_date(cell)
        if as_of != UNKNOWN_DATE and as_of > last[: len(as_of)]:
            raise ValueError(f"is after {last}, the date of the catalog")
        return as_of

    return convert_date


def finite_decimal(cell: str) -> Decimal:
    """Return a finite decimal number."""
    number = Decimal(cell)
    if not number.is_finite():
        raise ValueError("is not finite")
    return number


def optional(
    converter: Callable[[str], CellT],
) -> Callable[[str], CellT | None]:
    """Return a converter that maps an empty cell to `None`."""
    return lambda cell: converter(cell) if cell else None


CONFIDENCE_LEVEL = one_of("high", "medium", "low")
SOURCE_COLUMNS: dict[str, Callable[[str], Any]] = {
    "source": nonempty_text,
    "as_of": partial_date,
}
