"""Constants of engines, formats and the field: rows with unit, meaning, source and date."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from planner.facts import table


@cache
def _rows() -> dict[tuple[str, str], float]:
    columns = {
        "constant": table.text, "key": table.free, "value": table.real(1e-9, 1e6),
        "unit": table.text, "meaning": table.text, **table.SOURCED,
    }  # fmt: skip
    text = files("planner.perf").joinpath("data", "constants.csv").read_text(encoding="utf-8")
    found: dict[tuple[str, str], float] = {}
    for row in table.rows(text, "constants.csv", columns):
        name = (row["constant"], row["key"])
        if name in found:
            table.refuse(row.place, f"{name[0]} {name[1]} is given twice")
        found[name] = row["value"]
    return found


@cache
def constant(name: str, *keys: str) -> float:
    """Return a constant: its base value times the factor of each key that has one.

    A constant without a base value is looked up by its first key alone.
    """
    rows = _rows()
    if (name, "") not in rows:
        return rows[name, keys[0]]
    value = rows[name, ""]
    for key in keys:
        value *= rows.get((name, key), 1.0) if key else 1.0
    return value
