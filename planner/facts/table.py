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

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Row:
    """The converted cells of one line."""

    place: Place
    cells: dict[str, Any]

    def __getitem__(self, column: str) -> Any:
        """Return one cell."""
        return self.cells[column]


def rows(
    text: str, path: str, columns: Mapping[str, Callable[[str], Any]]
) -> Iterator[Row]:
    """Yield the rows of a table; the header must be exactly `columns`, in any order.

    Raises CatalogError that names file, line and column of the first bad cell.
    """
    lines = csv.reader(text.splitlines(), strict=True)
    header = next(lines, [])
    if sorted(header) != sorted(columns):
        odd = set(header) ^ set(columns)
        refuse(Place(path, 1, 1), f"columns differ: {', '.join(sorted(odd))}")
    converters = [columns[name] for name in header]
    # Most columns repeat few values, so each distinct cell is converted once.
    memos: list[dict[str, Any]] = [{} for _ in header]
    for cells in lines:
        place = Place(path, lines.line_num, 1)
        if len(cells) != len(header):
            refuse(place, f"{len(cells)} cells, the header has {len(header)}")
        try:
            values = [
                memo[cell]
                if cell in memo
                else memo.setdefault(cell, convert(cell))
                for memo, convert, cell in zip(
                    memos, converters, cells, strict=True
                )
            ]
        except (ValueError, InvalidOperation):
            _blame(place, header, converters, cells)
        yield Row(place, dict(zip(header, values, strict=True)))


def keyed(found: Iterable[Row], *columns: str) -> dict[tuple[Any, ...], Row]:
    """Return rows by the cells of some columns; refuses a row that is given twice."""
    by: dict[tuple[Any, ...], Row] = {}
    for row in found:
        key = tuple(row[column] for column in columns)
        if key in by:
            refuse(row.place, f"{' '.join(key).strip()} is given twice")
        by[key] = row
    return by


def refuse(place: Place, message: str) -> NoReturn:
    """Raise the error of a row that cannot be used."""
    step = "restore the file, or correct the row"
    raise CatalogError(
        Problem(
            code="catalog-row", message=message, place=place, next_step=step
        )
    )


def _blame(
    place: Place,
    header: list[str],
    converters: list[Callable[[str], Any]],
    cells: list[str],
) -> NoReturn:
    for name, convert, cell in zip(header, converters, cells, strict=True):
        try:
            convert(cell)
        except InvalidOperation:
            refuse(place, f"{name}: '{cell}' is not a number")
        except ValueError as error:
            refuse(place, f"{name}: '{cell}' {error}")
    refuse(place, "the row cannot be read")


def text(cell: str) -> str:
    """Non-empty text."""
    if not cell:
        raise ValueError("is empty")
    return cell


def free(cell: str) -> str:
    """Any text, also none."""
    return cell


def one_of(*words: str) -> Callable[[str], str]:
    """One of the words."""
    known = frozenset(words)

    def convert(cell: str) -> str:
        if cell not in known:
            raise ValueError("is not one of " + ", ".join(sorted(known)))
        return cell

    return convert


def many_of(*words: str) -> Callable[[str], tuple[str, ...]]:
    """Some of the words, separated by semicolons."""
    single = one_of(*words)
    return lambda cell: tuple(single(part) for part in cell.split(";") if part)


def listed(cell: str) -> tuple[str, ...]:
    """Words separated by semicolons."""
    return tuple(part for part in cell.split(";") if part)


def yes(cell: str) -> bool:
    """Yes or no."""
    return one_of("yes", "no")(cell) == "yes"


def real(low: float, high: float) -> Callable[[str], float]:
    """A finite number within bounds."""

    def convert(cell: str) -> float:
        value = float(cell)
        if not low <= value <= high:  # also refuses NaN
            raise ValueError(f"is not between {low:g} and {high:g}")
        return value

    return convert


def whole(low: int, high: int) -> Callable[[str], int]:
    """An integer within bounds."""

    def convert(cell: str) -> int:
        value = int(cell)
        if not low <= value <= high:
            raise ValueError(f"is not between {low} and {high}")
        return value

    return convert


def price(cell: str) -> Decimal:
    """USD, positive and finite."""
    value = Decimal(cell)
    if not value.is_finite() or not 0 < value < 10**6:
        raise ValueError("is not a price above 0 and below 1,000,000")
    return value


def date(cell: str) -> str:
    """A date as exact as known: 2026, 2026-07, 2026-07-30, or unknown."""
    if not re.fullmatch(r"20\d\d(-(0[1-9]|1[0-2])(-\d\d)?)?|unknown", cell):
        raise ValueError("is not a date")
    return cell


def decimal(cell: str) -> Decimal:
    """Any finite decimal number."""
    value = Decimal(cell)
    if not value.is_finite():
        raise ValueError("is not finite")
    return value


def optional(convert: Callable[[str], T]) -> Callable[[str], T | None]:
    """The same, or nothing when the cell is empty."""
    return lambda cell: convert(cell) if cell else None


CONFIDENCE = one_of("high", "medium", "low")
SOURCED: dict[str, Callable[[str], Any]] = {"source": text, "as_of": date}
