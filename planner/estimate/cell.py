"""Typed cells of a table: a cell is blank, or of its column's type, or its row is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from planner.estimate.names import RefusedError
from planner.suggest import closest

Row: TypeAlias = Mapping[str, str]
Choice = TypeVar("Choice", bound=str)
MAX_NUMBER: Final = 10_000_000
MAX_COUNT: Final = 100_000
MID_YEAR: Final = 6  # month of a date that states only its year
DATE_PATTERN: Final = re.compile(
    r"(20\d\d)(?:-(0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?)?"
)
VERSION_PATTERN: Final = re.compile(
    r"v?(\d+(?:\.\d+)*(?:[.-]?(?:rc|pre|post|dev|a|b)\d*)*)"
)


def read_cell(table_row: Row, column: str) -> str:
    """Return the text of a cell without the blanks around it."""
    return (table_row.get(column) or "").strip()


def read_number(table_row: Row, column: str) -> float:
    """Return a number above 0, or 0 when the cell is empty."""
    cell_text = read_cell(table_row, column)
    if not cell_text:
        return 0.0
    try:
        cell_number = float(cell_text)
    except ValueError:
        raise RefusedError(f"{column} '{cell_text}' is not a number") from None
    if not 0 < cell_number < MAX_NUMBER or math.isnan(cell_number):
        raise RefusedError(
            f"{column} {cell_text} is not between 0 and {MAX_NUMBER:,}"
        )
    return cell_number


def read_count(table_row: Row, column: str, default_count: int) -> int:
    """Return a whole number of 1 or more."""
    cell_text = read_cell(table_row, column)
    if not cell_text:
        return default_count
    try:
        cell_number = float(cell_text)
    except ValueError:
        cell_number = math.nan
    if not cell_number.is_integer():
        raise RefusedError(f"{column} '{cell_text}' is not a whole number")
    if not 1 <= cell_number <= MAX_COUNT:
        raise RefusedError(
            f"{column} {cell_text} is not between 1 and {MAX_COUNT:,}"
        )
    return int(cell_number)


def read_share(table_row: Row, column: str) -> float | None:
    """Return a share from 0 to 1, or nothing when the cell is empty."""
    cell_text = read_cell(table_row, column)
    if not cell_text:
        return None
    try:
        share = float(cell_text)
    except ValueError:
        raise RefusedError(f"{column} '{cell_text}' is not a number") from None
    if not 0 <= share <= 1:
        raise RefusedError(f"{column} {cell_text} is not between 0 and 1")
    return share


def read_choice(
    table_row: Row, column: str, choices: Sequence[Choice]
) -> Choice | None:
    """Return one of the names that a column takes, or nothing when the cell is empty."""
    cell_text = read_cell(table_row, column)
    normalized = cell_text.lower()
    if not normalized:
        return None
    for choice in choices:
        if choice == normalized:
            return choice
    known_word = closest(normalized, choices)
    suggestion = f"; did you mean '{known_word}'?" if known_word else ""
    raise RefusedError(
        f"{column} '{cell_text}' is none of {', '.join(choices)}{suggestion}"
    )


def read_flag(table_row: Row, column: str, *, default: bool = False) -> bool:
    """Return whether a cell says yes, which is the only other word than no."""
    answer = read_choice(table_row, column, ("yes", "no"))
    return default if answer is None else answer == "yes"


def read_year(table_row: Row, column: str, default_year: float) -> float:
    """Return a date such as 2025-06-30 as a year with its month as a fraction."""
    cell_text = read_cell(table_row, column)
    if not cell_text:
        return default_year
    date_match = DATE_PATTERN.fullmatch(cell_text)
    if not date_match:
        raise RefusedError(
            f"{column} '{cell_text}' is no date such as 2025, 2025-06 or 2025-06-30"
        )
    return int(date_match[1]) + (int(date_match[2] or MID_YEAR) - 1) / 12


def read_version(table_row: Row, column: str) -> str:
    """Return a release such as 0.10.0 or 1.1.0rc2.post2, or nothing when the cell is empty."""
    cell_text = read_cell(table_row, column)
    if not cell_text:
        return ""
    version_match = VERSION_PATTERN.fullmatch(cell_text.lower())
    if not version_match:
        raise RefusedError(
            f"{column} '{cell_text}' is no release such as 0.10.0 or 26.04"
        )
    return version_match[1]
