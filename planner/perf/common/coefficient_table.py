"""Tables of fitted coefficients: the share of peak performance that is reached.

    coefficient = base * product of factors whose key applies * yearly factor ^ years

`years` counts from mid-2025. The fit shrinks each value to its prior. A coefficient with
`prior_sigma` 0 is not fitted and stays at its physical value.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Final, Generic, TypeVar

from msgspec import Struct

from planner.facts import table

# Base values hold at this date; yearly factors count from it.
REFERENCE_YEAR: Final = 2025.5
MEASURED_YEARS: Final = (
    2023.5,
    2026.5,
)  # the span of the measurements; trends are not carried beyond it
YEARLY_KEY: Final = "year"
T = TypeVar("T", bound=Struct)


class CoefficientRow(Struct, frozen=True):
    """One factor of a coefficient.

    coefficient    the coefficient that the factor multiplies
    key            the key that selects the factor; empty for a base value, `year` for a trend
    fitted_factor  value after the fit: the coefficient's unit for a base value, else a ratio
    prior_factor   value before the fit, same unit
    prior_sigma    standard deviation of ln(fitted / prior); 0 excludes the factor from the fit
    """

    coefficient: str
    key: str
    fitted_factor: float
    prior_factor: float
    prior_sigma: float


def years_since(year: float) -> float:
    """Return years since the reference date, clamped to the measured years."""
    # No trend is extrapolated outside the measured years.
    return min(max(year, MEASURED_YEARS[0]), MEASURED_YEARS[1]) - REFERENCE_YEAR


class CoefficientTable(Generic[T]):
    """The coefficients of one model, read from one CSV file of planner/perf/data.

    Each field of `coefficient_type` is one coefficient.
    """

    def __init__(self, coefficient_type: type[T], file_name: str) -> None:
        self.coefficient_type = coefficient_type
        self.file_name = file_name
        # A search asks for the same few key sets many times.
        self.select = lru_cache(maxsize=4096)(self._select)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coefficients."""
        return self.coefficient_type.__struct_fields__

    @cached_property
    def rows(self) -> tuple[CoefficientRow, ...]:
        """Rows of the table; raises CatalogError on an invalid row."""
        columns: table.Columns = {
            "coefficient": table.one_of(*self.names),
            "key": table.any_text,
            "value": table.real_between(1e-9, 1e6),
            "prior": table.real_between(1e-9, 1e6),
            "spread": table.real_between(0, 1),
            "unit": table.nonempty_text,
            "meaning": table.nonempty_text,
            **table.SOURCE_COLUMNS,
        }
        keyed_rows = table.rows_by_key(
            table.load_rows("planner.perf", self.file_name, columns),
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
        """Return the coefficients for a set of keys and the year of the software.

        coefficient = product over its rows of
            fitted_factor                          if the key is empty or in `selected_keys`
            fitted_factor ^ years_since(`year`)    if the key is `year`
        """
        # The base value is the row with an empty key: the product starts at 1.
        factors = dict.fromkeys(self.names, 1.0)
        for coefficient_row in self.rows:
            if coefficient_row.key == YEARLY_KEY:
                factors[coefficient_row.coefficient] *= (
                    # Trend of software: a constant relative change each year.
                    coefficient_row.fitted_factor ** years_since(year)
                )
            elif (
                not coefficient_row.key or coefficient_row.key in selected_keys
            ):
                factors[coefficient_row.coefficient] *= (
                    coefficient_row.fitted_factor
                )
        return self.coefficient_type(**factors)
