"""How long an engine compiles before it serves, on accelerators that need compiled programs."""

from __future__ import annotations

from functools import cache

from planner.facts import table


@cache
def _compile_times() -> dict[str, float]:
    columns = {
        "vendor": table.nonempty_text,
        "compile_s": table.real_between(0, 1e5),
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    keyed_rows = table.rows_by_key(
        table.load_rows("planner.facts", "compilers.csv", columns), "vendor"
    )
    return {vendor: row["compile_s"] for (vendor,), row in keyed_rows.items()}


def compile_time_s(vendor: str) -> float:
    """Return the seconds that an engine compiles at its first start on a new machine.

    0 of vendors without a row: what their engines compile is in the time of a boot.
    """
    return _compile_times().get(vendor, 0.0)
