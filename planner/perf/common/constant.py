"""Constants of engines and formats; each row has unit, meaning, source and date."""

from __future__ import annotations

from functools import cache

from planner.facts import table


@cache
def _constant_values() -> dict[tuple[str, str], float]:
    columns = {
        "constant": table.nonempty_text,
        "key": table.any_text,
        "value": table.real_between(1e-9, 1e6),
        "unit": table.nonempty_text,
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    keyed_rows = table.rows_by_key(
        table.load_rows("planner.perf", "constants.csv", columns),
        "constant",
        "key",
    )
    return {
        (constant_name, key_name): csv_row["value"]
        # Unit and source serve the reader of the table; code needs the value.
        for (constant_name, key_name), csv_row in keyed_rows.items()
    }


@cache
def constant(constant_name: str, key_name: str = "") -> float:
    """Return the value of a constant in the unit of its row.

    `key_name` selects the variant of a constant with several. Raises KeyError on an unknown
    one.
    """
    # A constant without variants has an empty key.
    return _constant_values()[constant_name, key_name]
