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

REFERENCE_YEAR: Final = 2025.5
MEASURED_YEARS: Final = (
    2023.5,
    2026.5,
)  # the span of the measurements; trends are not carried beyond it
YEARLY_KEY: Final = "year"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CoefficientRow:
    """One factor of a coefficient, with what it was before the fit and how far it may move."""

    coefficient: str
    key: str
    fitted_factor: float
    prior_factor: float
    prior_sigma: float


def years_since(year: float) -> float:
    """Years since the reference date, held to the span of the measurements."""
    return min(max(year, MEASURED_YEARS[0]), MEASURED_YEARS[1]) - REFERENCE_YEAR


class CoefficientTable(Generic[T]):
    """The coefficients of one model, each a field of `coefficient_type`, from a file of planner/perf/data."""

    def __init__(self, coefficient_type: type[T], file_name: str) -> None:
        self.coefficient_type = coefficient_type
        self.file_name = file_name
        self.select = lru_cache(maxsize=4096)(self._select)

    @property
    def names(self) -> tuple[str, ...]:
        """What the coefficients are called."""
        table_fields = fields(self.coefficient_type)  # type: ignore[arg-type]
        return tuple(field.name for field in table_fields)

    @cached_property
    def rows(self) -> tuple[CoefficientRow, ...]:
        """The table; raises CatalogError on a bad row."""
        columns: dict[str, Any] = {
            "coefficient": table.one_of(*self.names),
            "key": table.any_text,
            "value": table.real_between(1e-9, 1e6),
            "prior": table.real_between(1e-9, 1e6),
            "spread": table.real_between(0, 1),
            "unit": table.nonempty_text,
            "meaning": table.nonempty_text,
            **table.SOURCE_COLUMNS,
        }
        csv_text = (
            files("planner.perf")
            .joinpath("data", self.file_name)
            .read_text(encoding="utf-8")
        )
        keyed_rows = table.rows_by_key(
            table.read_rows(csv_text, self.file_name, columns),
            "coefficient",
            "key",
        )
        return tuple(
            CoefficientRow(
                coefficient,
                key_name,
                csv_row["value"],
                csv_row["prior"],
                csv_row["spread"],
            )
            for (coefficient, key_name), csv_row in keyed_rows.items()
        )

    def _select(
        self, selected_keys: frozenset[str], year: float = REFERENCE_YEAR
    ) -> T:
        """Return the coefficients for a set of keys and the year of the software."""
        factors = dict.fromkeys(self.names, 1.0)
        for coefficient_row in self.rows:
            if coefficient_row.key == YEARLY_KEY:
                factors[coefficient_row.coefficient] *= (
                    coefficient_row.fitted_factor ** years_since(year)
                )
            elif (
                not coefficient_row.key or coefficient_row.key in selected_keys
            ):
                factors[coefficient_row.coefficient] *= (
                    coefficient_row.fitted_factor
                )
        return self.coefficient_type(**factors)
