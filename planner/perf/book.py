"""Books of coefficients: what hardware and software reach of what they could.

A coefficient is its base value times the factor of every key that applies, and its yearly factor
to the power of the years since mid-2025. Values are fitted, shrunk to their priors; a spread of 0
holds a coefficient at its physical value.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any, Final, Generic, TypeVar

from planner.facts import table

REFERENCE: Final = 2025.5
YEARS: Final = (
    2023.5,
    2026.5,
)  # the span of the measurements; trends are not carried beyond it
YEARLY: Final = "year"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Row:
    """One factor of a coefficient, with what it was before the fit and how far it may move."""

    coefficient: str
    key: str
    value: float
    prior: float
    spread: float


def years(year: float) -> float:
    """Years since the reference date, held to the span of the measurements."""
    return min(max(year, YEARS[0]), YEARS[1]) - REFERENCE


class Book(Generic[T]):
    """The coefficients of one model, each a field of `kind`, from a file of planner/perf/data."""

    def __init__(self, kind: type[T], file: str) -> None:
        self.kind, self.file = kind, file
        self.at = lru_cache(maxsize=4096)(self._at)

    @property
    def names(self) -> tuple[str, ...]:
        """What the coefficients are called."""
        return tuple(field.name for field in fields(self.kind))  # type: ignore[arg-type]

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The table; raises CatalogError on a bad row."""
        columns: dict[str, Any] = {
            "coefficient": table.one_of(*self.names),
            "key": table.free,
            "value": table.real(1e-9, 1e6),
            "prior": table.real(1e-9, 1e6),
            "spread": table.real(0, 1),
            "unit": table.text,
            "meaning": table.text,
            **table.SOURCED,
        }
        text = (
            files("planner.perf")
            .joinpath("data", self.file)
            .read_text(encoding="utf-8")
        )
        found = table.keyed(
            table.rows(text, self.file, columns), "coefficient", "key"
        )
        return tuple(
            Row(name, key, row["value"], row["prior"], row["spread"])
            for (name, key), row in found.items()
        )

    def _at(self, keys: frozenset[str], year: float = REFERENCE) -> T:
        """Return the coefficients for a set of keys and the year of the software."""
        found = dict.fromkeys(self.names, 1.0)
        for row in self.rows:
            if row.key == YEARLY:
                found[row.coefficient] *= row.value ** years(year)
            elif not row.key or row.key in keys:
                found[row.coefficient] *= row.value
        return self.kind(**found)
