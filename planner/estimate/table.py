"""Predicts every row of a table; a row that cannot be answered is refused with its reason."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from planner.errors import Place, Problem, UsageError
from planner.estimate import memory, trained
from planner.estimate.answer import COLUMNS, Answer, answer
from planner.estimate.names import RefusedError
from planner.estimate.row import setup

Asked: TypeAlias = Callable[[Mapping[str, str]], Answer]
INFERENCE: Final = frozenset(
    {"model", "gpu", "load_kind", "framework", "output_len"}
)
LARGE: Final = 1e6  # numbers that would else be written with an exponent
TRAINING: Final = frozenset(
    {"model", "gpu", "micro_batch", "seq_len", "framework", "sharding"}
)
MEMORY: Final = frozenset(
    {"kind", "model", "gpu", "max_model_len", "gpu_memory_utilization"}
)


def predict(text: str, source_path: str) -> str:
    """Return the table of answers to a table of configurations; raises UsageError.

    What kind of table it is, is told from its header. Rows keep their order and their row_id.
    """
    try:
        csv_reader = csv.DictReader(io.StringIO(text, newline=""), restval="")
        header_columns, table_rows = (
            frozenset(csv_reader.fieldnames or ()),
            list(csv_reader),
        )
    except csv.Error as csv_error:
        next_step = "write it as comma-separated values"
        problem = Problem(
            code="table",
            message=f"is no table: {csv_error}",
            place=Place(source_path),
            next_step=next_step,
        )
        raise UsageError(problem) from csv_error
    for required_columns, row_predictor, estimate_columns in KINDS:
        if header_columns >= required_columns:
            return _written(
                estimate_columns,
                [
                    _line(table_row, row_predictor, estimate_columns)
                    for table_row in table_rows
                ],
            )
    missing_columns: list[list[str]] = sorted(
        (sorted(kind_columns - header_columns) for kind_columns, _, _ in KINDS),
        key=len,
    )
    missing_names = ", ".join(missing_columns[0])
    problem = Problem(
        code="table",
        message=f"is no table of inference, training or memory: no column {missing_names}",
        place=Place(source_path, 1, 1),
        next_step="give the columns that docs/estimate.md lists",
    )
    raise UsageError(problem)


def _inference(table_row: Mapping[str, str]) -> Answer:
    return answer(setup(table_row))


KINDS: Final[Sequence[tuple[frozenset[str], Asked, Sequence[str]]]] = (
    (MEMORY, memory.answer, memory.COLUMNS),
    (INFERENCE, _inference, COLUMNS),
    (TRAINING, trained.answer, trained.COLUMNS),
)


def _line(
    table_row: Mapping[str, str],
    row_predictor: Asked,
    estimate_columns: Sequence[str],
) -> dict[str, str]:
    output_cells = {"row_id": table_row.get("row_id") or ""}
    try:
        row_estimate = row_predictor(table_row)
    except RefusedError as refusal:
        return output_cells | {"status": "refused", "reason": str(refusal)}
    output_cells |= {"status": "ok", "basis": row_estimate.basis}
    for column in estimate_columns:
        banded_value = row_estimate.columns.get(column)
        if banded_value is not None:
            band_limits = (
                banded_value.value,
                banded_value.low,
                banded_value.high,
            )
            for limit_suffix, band_limit in zip(
                ("", "_low", "_high"), band_limits, strict=True
            ):
                output_cells[column + limit_suffix] = (
                    f"{band_limit:.0f}"
                    if band_limit >= LARGE
                    else f"{band_limit:.6g}"
                )
    return output_cells


def _written(
    estimate_columns: Sequence[str], output_rows: Sequence[Mapping[str, str]]
) -> str:
    header_names = ["row_id", "status", "reason", "basis"]
    header_names += [
        column + limit_suffix
        for column in estimate_columns
        for limit_suffix in ("", "_low", "_high")
    ]
    csv_buffer = io.StringIO()
    csv_writer = csv.DictWriter(
        csv_buffer, header_names, restval="", lineterminator="\n"
    )
    csv_writer.writeheader()
    csv_writer.writerows(output_rows)
    return csv_buffer.getvalue()
