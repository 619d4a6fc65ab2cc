"""Charges of a stack: the rows of an export that carry its tag, as numbers and times."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from planner.errors import MissingError, Problem, UsageError
from planner.facts.table import finite_decimal
from planner.plan.actual.export_format import format_of
from planner.plan.actual.export_row import read_table
from planner.plan.actual.export_time import ExportTime, parse_time
from planner.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from planner.plan.actual.export_format import ExportFormat
    from planner.plan.actual.export_row import ExportRow

CURRENCY: Final = "USD"
USAGE: Final = "usage"
# No row of a bill has as much; it would take away the digits of all others.
MOST: Final = 10**12


class StackTags(Struct, frozen=True):
    """The tags by which charges are found: of a stack, of its name, and of a pool."""

    stack_tag: str
    stack: str
    pool_tag: str


class Charge(Struct, frozen=True, kw_only=True):
    """A row of an export.

    usd         cost after credits, USD
    start, end  of the period that it is for
    meter       all that the row says about what was counted
    quantity    in `unit`; None where the row counts nothing
    category    usage, tax and the like; empty where the word is not known
    commitment  used or unused, of a commitment; empty for everything else
    """

    usd: Decimal
    start: ExportTime
    end_s: int
    service: str
    meter: str
    resource: str
    quantity: Decimal | None
    unit: str
    category: str
    commitment: str
    pool: str


def read_charges(files: Mapping[str, bytes], tags: StackTags) -> list[Charge]:
    """Return the charges of a stack from files by their paths.

    Raises UsageError for a file that cannot be read or is given twice, and MissingError where no
    row carries the tag.
    """
    charges: list[Charge] = []
    seen: dict[bytes, str] = {}
    for path, file_bytes in files.items():
        if file_bytes in seen:
            raise UsageError(
                Problem(
                    code="export-twice",
                    message=f"{path} has the same rows as {seen[file_bytes]}",
                    next_step="give each file once: its costs would count twice",
                )
            )
        seen[file_bytes] = path
        charges += _file_charges(file_bytes, path, tags)
    if not charges:
        raise MissingError(
            Problem(
                code="export-stack",
                message=f"no row has the tag {tags.stack_tag}={tags.stack}",
                next_step="activate the tag for cost allocation, and export again a day later",
            )
        )
    return charges


def _file_charges(
    file_bytes: bytes, path: str, tags: StackTags
) -> Iterator[Charge]:
    source = read_table(file_bytes, path)
    known = format_of(source.columns, path)
    for row in source.rows:
        row_tags = _row_tags(row, known)
        # Rows of others are not read any further.
        if known.tag(row_tags, tags.stack_tag) == tags.stack:
            yield _charge(row, known, known.tag(row_tags, tags.pool_tag))


def _charge(row: ExportRow, known: ExportFormat, pool: str) -> Charge:
    currency_column = known.required_column(row, "currency")
    if row.cells[currency_column].strip() != CURRENCY:
        row.refuse(
            currency_column, f"is not {CURRENCY}, and no rate is known here"
        )
    start = _time_of(row, known.required_column(row, "start"))
    # A format without an end has a row for each day.
    end_s = start.s + SECONDS_PER_DAY
    if "end" in known.columns:
        end_column = known.required_column(row, "end")
        end_s = _time_of(row, end_column).s
        if end_s <= start.s:
            row.refuse(end_column, "is not after the start of its period")
    quantity_column = known.column(row, "quantity")
    return Charge(
        usd=_number(row, known.required_column(row, "cost"))
        + _credits(row, known),
        start=start,
        end_s=end_s,
        service=known.text(row, "service"),
        meter=known.all_text(row, "meter"),
        resource=known.text(row, "resource"),
        quantity=(
            _number(row, quantity_column)
            if row.cells.get(quantity_column)
            else None
        ),
        unit=known.text(row, "unit"),
        category=known.meaning("category", known.text(row, "category")),
        commitment=known.meaning("commitment", known.text(row, "commitment")),
        pool=pool,
    )


def _number(row: ExportRow, column: str) -> Decimal:
    try:
        number = finite_decimal(row.cells[column])
    except InvalidOperation:
        row.refuse(column, "is not a number")
    except ValueError as error:
        row.refuse(column, str(error))
    if abs(number) >= MOST:
        row.refuse(column, f"is not below {MOST:,}")
    return number


def _time_of(row: ExportRow, column: str) -> ExportTime:
    try:
        return parse_time(row.cells[column].strip())
    except ValueError as error:
        row.refuse(column, str(error))


def _credits(row: ExportRow, known: ExportFormat) -> Decimal:
    """Return the sum of the credits of a row, USD, which is not above 0."""
    text = known.text(row, "credits")
    if not text:
        return Decimal(0)
    column = known.column(row, "credits")
    pairs = _parsed(row, column, text)
    if not isinstance(pairs, list):
        row.refuse(column, "is not a list of credits")
    try:
        amounts = [finite_decimal(str(entry["amount"])) for entry in pairs]
    except (InvalidOperation, KeyError, TypeError, ValueError):
        row.refuse(column, "has a credit without an amount")
    if any(abs(amount) >= MOST for amount in amounts):
        row.refuse(column, f"has a credit that is not below {MOST:,}")
    return sum(amounts, Decimal(0))


def _row_tags(row: ExportRow, known: ExportFormat) -> dict[str, Any]:
    """Return the tags of a row: an object, one without its braces, or pairs of key and value."""
    text = known.text(row, "tags")
    if not text:
        return {}
    column = known.column(row, "tags")
    is_bare = text[0] not in "{["
    parsed = _parsed(row, column, f"{{{text}}}" if is_bare else text)
    if isinstance(parsed, list):
        try:
            parsed = {entry["key"]: entry["value"] for entry in parsed}
        except (KeyError, TypeError):
            row.refuse(column, "has a tag without key and value")
    if not isinstance(parsed, dict):
        row.refuse(column, "is not tags")
    return parsed


def _parsed(row: ExportRow, column: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        row.refuse(column, "is not JSON")
