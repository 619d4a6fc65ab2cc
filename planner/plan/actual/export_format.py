"""Formats of cost exports: which column says what, as rows of data/export_columns.csv."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.errors import Place, Problem, UsageError
from planner.facts import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from planner.plan.actual.export_row import ExportRow

PACKAGE: Final = "planner.plan.actual"


class ExportFormat(Struct, frozen=True, kw_only=True):
    """A format: the columns of each field, the one to prefer first.

    columns   names in small letters by field, as `cells` of a row has them
    titles    the same names as the format writes them
    required  fields without which a file is not of this format
    words     what words of a field mean, by field and word
    tag_prefixes  what may stand before the names of tags, at first nothing
    """

    name: str
    columns: dict[str, tuple[str, ...]]
    titles: dict[str, str]
    required: frozenset[str]
    words: dict[tuple[str, str], str]
    tag_prefixes: tuple[str, ...]

    def missing(self, columns: frozenset[str]) -> list[str]:
        """Return the required fields that no column says, as names of their columns."""
        return [
            " or ".join(self.titles[name] for name in names)
            for field, names in self.columns.items()
            if field in self.required and not columns.intersection(names)
        ]

    def column(self, row: ExportRow, field: str) -> str:
        """Return the first column of a field that a row has; empty where it has none."""
        names = self.columns.get(field, ())
        return next((name for name in names if name in row.cells), "")

    def required_column(self, row: ExportRow, field: str) -> str:
        """Return the column of a field; raises UsageError for a row of JSON that has none."""
        column = self.column(row, field)
        if not column:
            raise UsageError(
                Problem(
                    code="export-row",
                    message=f"has no {self.titles[self.columns[field][0]]}",
                    place=Place(row.path, row.line, 1),
                    next_step="export the file again, or correct the row",
                )
            )
        return column

    def text(self, row: ExportRow, field: str) -> str:
        """Return what a row says in a field; empty where it says nothing."""
        return row.cells.get(self.column(row, field), "").strip()

    def all_text(self, row: ExportRow, field: str) -> str:
        """Return what a row says in all columns of a field, with spaces between."""
        names = self.columns.get(field, ())
        return " ".join(filter(None, (row.cells.get(name) for name in names)))

    def meaning(self, field: str, word: str) -> str:
        """Return what a word means; empty where the format does not say."""
        return self.words.get((field, word), "")

    def tag(self, tags: Mapping[str, object], name: str) -> str:
        """Return a tag by its name, before which a format may put a prefix; empty without."""
        for prefix in self.tag_prefixes:
            content = tags.get(prefix + name)
            if isinstance(content, str):
                return content
        return ""


def format_of(columns: frozenset[str], path: str) -> ExportFormat:
    """Return the format that some columns are of.

    Raises UsageError with the columns that the nearest format wants.
    """
    nearest = min(
        export_formats(), key=lambda known: len(known.missing(columns))
    )
    missing = nearest.missing(columns)
    if missing:
        names = ", ".join(known.name for known in export_formats())
        raise UsageError(
            Problem(
                code="export-columns",
                message=f"no export of {names}",
                cause=f"the nearest is {nearest.name}, which has also {', '.join(missing)}",
                place=Place(path, 1, 1),
                next_step="export it again with all columns",
            )
        )
    return nearest


@cache
def export_formats() -> tuple[ExportFormat, ...]:
    """Return all formats, in the order of their table."""
    rows = list(_rows())
    return tuple(
        _export_format(name, [row for row in rows if row["format"] == name])
        for name in dict.fromkeys(row["format"] for row in rows)
    )


def _rows() -> Iterator[table.TableRow]:
    columns: table.Columns = {
        "format": table.nonempty_text,
        "field": table.nonempty_text,
        "column": table.nonempty_text,
        "required": table.yes_or_no,
        **table.SOURCE_COLUMNS,
    }
    return table.load_rows(PACKAGE, "export_columns.csv", columns)


def _export_format(name: str, rows: list[table.TableRow]) -> ExportFormat:
    fields = dict.fromkeys(row["field"] for row in rows)
    word_columns: table.Columns = {
        "format": table.nonempty_text,
        "field": table.nonempty_text,
        "word": table.nonempty_text,
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    words = {
        (row["field"], row["word"]): row["meaning"]
        for row in table.load_rows(PACKAGE, "export_words.csv", word_columns)
        if row["format"] == name
    }
    return ExportFormat(
        name=name,
        columns={
            field: tuple(
                row["column"].casefold()
                for row in rows
                if row["field"] == field
            )
            for field in fields
        },
        titles={row["column"].casefold(): row["column"] for row in rows},
        required=frozenset(row["field"] for row in rows if row["required"]),
        words=words,
        tag_prefixes=(
            "",
            *(
                word
                for (field, word), meaning in words.items()
                if (field, meaning) == ("tags", "prefix")
            ),
        ),
    )
