"""Cores behind the vCPUs of a machine: rows of data/cpu_threads.csv."""

from __future__ import annotations

from functools import cache
from typing import Final

from planner.facts import table

# A cloud or a family that has no row of its own.
ANY: Final = "*"


@cache
def _threads() -> dict[tuple[str, str, str], int]:
    columns = {
        "cloud": table.nonempty_text,
        "family": table.nonempty_text,
        "arch": table.nonempty_text,
        "threads": table.integer_between(1, 8),
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    keyed_rows = table.rows_by_key(
        table.load_rows("planner.facts", "cpu_threads.csv", columns),
        "cloud",
        "family",
        "arch",
    )
    return {
        (cloud, family, arch): row["threads"]
        for (cloud, family, arch), row in keyed_rows.items()
    }


def threads_per_core(cloud: str, family: str, arch: str) -> int:
    """Return the vCPUs of a core: those of the family, else the usual ones of the processor.

    Raises KeyError for an architecture without a row.
    """
    threads = _threads()
    return threads.get((cloud, family, arch)) or threads[ANY, ANY, arch]
