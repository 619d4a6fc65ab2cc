"""Formats of weights that an engine serves on an accelerator, as far as rows say so."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from planner.facts import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.facts.accelerator import Accelerator


@cache
def _format_rows() -> tuple[table.TableRow, ...]:
    capability_column = table.real_between(1, 100)
    columns: table.Columns = {
        "engine": table.nonempty_text,
        "precision": table.nonempty_text,
        "from_capability": capability_column,
        "to_capability": capability_column,
        **table.SOURCE_COLUMNS,
    }
    return tuple(table.load_rows("planner.perf", "engine_formats.csv", columns))


def has_weight_format(
    engine: str, accelerator: Accelerator, precision: str
) -> bool:
    """Whether an engine serves weights of a precision on an accelerator.

    An engine without any row serves what the accelerator runs: its release is younger than all
    accelerators here.
    """
    own_rows = [row for row in _format_rows() if row["engine"] == engine]
    return not own_rows or any(
        accelerator.has_capability(row["from_capability"], row["to_capability"])
        for row in own_rows
        if row["precision"] == precision
    )


def served_formats(
    engine: str, accelerator: Accelerator, precisions: Sequence[str]
) -> tuple[str, ...]:
    """Return those of the precisions that engine and accelerator serve, in their order."""
    return accelerator.served_precisions(
        [
            precision
            for precision in precisions
            if has_weight_format(engine, accelerator, precision)
        ]
    )
