"""Turns the columns of the calibration tables into typed ones, by a table of exact spellings.

A spelling of data/calibration_spellings.csv stands for one or several typed cells, blank ones
included. A column with the spelling `*` leaves nothing refused: any other word stands for that.
Notes, names of rows and sources have no spellings, so nothing here reads them.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from planner.estimate.cell import (
    DATE_PATTERN,
    VERSION_PATTERN,
    Row,
    read_cell,
    read_choice,
)
from planner.estimate.engine_row import KV_PRECISIONS
from planner.estimate.inference_row import DEMAND_KINDS, SERVING_MODES
from planner.estimate.software import PRODUCT_PRECISIONS
from planner.estimate.training_layout import SHARDINGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TableKind: TypeAlias = Literal["inference", "training", "memory"]
TypedCells: TypeAlias = dict[str, str]
ANY_OTHER: Final = "*"  # the spelling of every word without a row of its own
# What a column of both kinds of tables takes; names are resolved by their readers.
TYPED_WORDS: Final[Mapping[tuple[TableKind, str], Sequence[str]]] = {
    ("inference", "kv_precision"): tuple(KV_PRECISIONS),
    ("inference", "load_kind"): tuple(DEMAND_KINDS),
    ("inference", "serving_mode"): SERVING_MODES,
    ("training", "precision"): PRODUCT_PRECISIONS,
    ("training", "sharding"): SHARDINGS,
    ("memory", "sharding"): SHARDINGS,
}
# Columns whose words may be typed already, under another name.
WORD_PATTERNS: Final = {
    "framework_version": ("version", VERSION_PATTERN),
    "source_date": ("date", DATE_PATTERN),
}


@cache
def calibration_spellings() -> Mapping[
    TableKind, Mapping[str, Mapping[str, TypedCells]]
]:
    """Return the typed cells of each spelling, by kind of table and column."""
    csv_text = (
        files("planner.estimate")
        .joinpath("data", "calibration_spellings.csv")
        .read_text(encoding="utf-8")
    )
    spellings: dict[TableKind, dict[str, dict[str, TypedCells]]] = {
        "inference": {},
        "training": {},
        "memory": {},
    }
    for spelling_row in csv.DictReader(csv_text.splitlines()):
        for table_kind, column_spellings in spellings.items():
            if table_kind == spelling_row["table"]:
                column_spellings.setdefault(
                    spelling_row["column"], {}
                ).setdefault(spelling_row["spelling"], {})[
                    spelling_row["typed_column"]
                ] = spelling_row["value"]
    return spellings


def typed_row(table_kind: TableKind, table_row: Row) -> TypedCells:
    """Return a row with its typed cells filled; raises RefusedError for an unknown word.

    A typed cell that is filled already wins. Columns of the calibration tables that are not
    typed ones are left out.
    """
    typed_cells = dict(table_row)
    for column, spellings in calibration_spellings()[table_kind].items():
        typed_columns = {
            typed_column
            for spelled_cells in spellings.values()
            for typed_column in spelled_cells
        }
        is_typed = column in typed_columns
        blank_columns = {
            typed_column
            for typed_column in typed_columns
            if typed_column == column
            or not read_cell(typed_cells, typed_column)
        }
        if read_cell(table_row, column) and blank_columns:
            spelled_cells = _spelled_cells(
                table_kind, table_row, column, is_typed=is_typed
            )
            typed_cells |= {
                typed_column: typed_text
                for typed_column, typed_text in spelled_cells.items()
                if typed_column in blank_columns
            }
        if not is_typed:
            typed_cells.pop(column, None)
    return typed_cells


def _spelled_cells(
    table_kind: TableKind, table_row: Row, column: str, *, is_typed: bool
) -> TypedCells:
    """Return the typed cells that the word of a column stands for, none for a typed word."""
    spellings = calibration_spellings()[table_kind][column]
    cell_text = read_cell(table_row, column)
    normalized = " ".join(cell_text.lower().split())
    if normalized in spellings and normalized != ANY_OTHER:
        return spellings[normalized]
    if column in WORD_PATTERNS:
        typed_column, word_pattern = WORD_PATTERNS[column]
        if word_pattern.fullmatch(normalized):
            return {typed_column: normalized}
    if ANY_OTHER in spellings:
        return spellings[ANY_OTHER]
    typed_words = TYPED_WORDS.get((table_kind, column), ())
    if typed_words or not is_typed:
        # Refuses the word, with the nearest of those that are known.
        read_choice(table_row, column, (*typed_words, *spellings))
    return {}
