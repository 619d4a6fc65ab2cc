"""What a charge is for: lines of a bill by service and meter, and units that compare."""

from __future__ import annotations

from decimal import Decimal  # noqa: TC003 - msgspec reads the annotations
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import Final

from msgspec import Struct

from planner.facts import table

PACKAGE: Final = "planner.plan.actual"
UNKNOWN: Final = "unknown"
# How many distinct meters are kept; an account has some thousand.
KEPT_METERS: Final = 16_384


class Meter(Struct, frozen=True, kw_only=True):
    """A row: charges of which service and meter are of which line.

    service, meter  patterns in small letters
    counted         units: the quantity is that of the line; accelerators: of these, of which a
                    machine has some; nothing: only the cost belongs to the line
    """

    service: str
    meter: str
    kind: str
    counted: str
    source: str
    as_of: str


class Measure(Struct, frozen=True):
    """What a unit measures, and how many of it are one of that: 3600 seconds an hour."""

    name: str
    per_measure: Decimal


@lru_cache(maxsize=KEPT_METERS)
def meter_of(service: str, meter: str) -> Meter | None:
    """Return the first row that a charge matches; None of an unknown one."""
    service_words, meter_words = service.casefold(), meter.casefold()
    return next(
        (
            row
            for row in _meters()
            if fnmatchcase(service_words, row.service)
            and fnmatchcase(meter_words, row.meter)
        ),
        None,
    )


def measure_of(unit: str) -> Measure | None:
    """Return what a unit of an export or of a bill measures; None of an unknown one."""
    return _measures().get(unit.casefold())


def line_of(kind: str) -> str:
    """Return the line that charges of a kind are compared in."""
    return _groups()[kind][0] if kind in _groups() else kind


def line_title(line: str) -> str:
    """Return the name of a line; that of an unknown service is its own."""
    return next(
        (title for group, title in _groups().values() if group == line), line
    )


@cache
def _meters() -> tuple[Meter, ...]:
    columns: table.Columns = {
        "service": table.nonempty_text,
        "meter": table.nonempty_text,
        "kind": table.one_of(*_groups()),
        "counted": table.one_of("units", "accelerators", "nothing"),
        **table.SOURCE_COLUMNS,
    }
    return tuple(
        Meter(**row.cells)
        for row in table.load_rows(PACKAGE, "meters.csv", columns)
    )


@cache
def _measures() -> dict[str, Measure]:
    columns: table.Columns = {
        "unit": table.nonempty_text,
        "measure": table.nonempty_text,
        "per_measure": table.finite_decimal,
        **table.SOURCE_COLUMNS,
    }
    return {
        row["unit"].casefold(): Measure(row["measure"], row["per_measure"])
        for row in table.load_rows(PACKAGE, "export_units.csv", columns)
    }


@cache
def _groups() -> dict[str, tuple[str, str]]:
    columns: table.Columns = {
        "kind": table.nonempty_text,
        "line": table.nonempty_text,
        "name": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return {
        row["kind"]: (row["line"], row["name"])
        for row in table.load_rows(PACKAGE, "line_groups.csv", columns)
    }
