"""Constants of engines, formats and the field: rows with unit, meaning, source and date."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from planner.facts import table


@cache
def _rows() -> dict[tuple[str, str], float]:
    columns = {
        "constant": table.text,
        "key": table.free,
        "value": table.real(1e-9, 1e6),
        "unit": table.text,
        "meaning": table.text,
        **table.SOURCED,
    }
    text = (
        files("planner.perf")
        .joinpath("data", "constants.csv")
        .read_text(encoding="utf-8")
    )
    found = table.keyed(
        table.rows(text, "constants.csv", columns), "constant", "key"
    )
    return {(name, key): row["value"] for (name, key), row in found.items()}


@cache
def constant(name: str, key: str = "") -> float:
    """Return a constant, of a kind where there are several; KeyError when there is none."""
    return _rows()[name, key]
