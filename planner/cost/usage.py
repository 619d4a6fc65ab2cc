"""What is used where nothing is measured: rows of data/usage.csv; a spec may state some."""

from __future__ import annotations

from decimal import Decimal  # noqa: TC003 - msgspec reads the annotations
from functools import cache

from msgspec import Struct

from planner.facts import table


class UsageAssumption(Struct, frozen=True, kw_only=True):
    """A row: how much is used of something.

    workloads  kinds of workloads whose bills it is in; empty for all
    stated     whether a spec may state it; others are choices, which stacks are built by
    """

    usage: str
    value: Decimal
    unit: str
    workloads: tuple[str, ...]
    stated: bool
    meaning: str
    source: str
    as_of: str

    def applies(self, workload: str) -> bool:
        """Whether it is in the bill of a kind of workload."""
        return self.stated and (
            not self.workloads or workload in self.workloads
        )


@cache
def usage_assumptions() -> dict[str, UsageAssumption]:
    """Return all rows by their names."""
    columns: table.Columns = {
        "usage": table.nonempty_text,
        "value": table.finite_decimal,
        "unit": table.nonempty_text,
        "workloads": table.word_list,
        "stated": table.yes_or_no,
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    rows = table.load_rows("planner.cost", "usage.csv", columns)
    return {row["usage"]: UsageAssumption(**row.cells) for row in rows}


def usage_value(usage_name: str) -> Decimal:
    """Return an assumption in the unit of its row."""
    return usage_assumptions()[usage_name].value
