"""Predictions for the rows of a CSV table, or the reason why there is none."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final, TypeAlias

from planner.errors import Place, Problem, TonnageError, UsageError
from planner.estimate import memory, training
from planner.estimate.cell import read_cell
from planner.estimate.inference import COLUMNS, Estimate, predict_inference
from planner.estimate.inference_row import row_deployment
from planner.estimate.model_row import CONFIG_COLUMN, CONFIG_CONTENT
from planner.estimate.names import RefusedError
from planner.estimate.spelling import typed_row

RowPredictor: TypeAlias = Callable[[Mapping[str, str]], Estimate]
FileReader: TypeAlias = Callable[[str], bytes]
ConfigReader: TypeAlias = Callable[[str], str]
INFERENCE_HEADER: Final = frozenset(
    {"model", "gpu", "load_kind", "framework", "output_len"}
)
INTEGER_FROM: Final = 1e6  # numbers that would else be written with an exponent
TRAINING_HEADER: Final = frozenset(
    {"model", "gpu", "micro_batch", "seq_len", "framework", "sharding"}
)
MEMORY_HEADER: Final = frozenset(
    {"kind", "model", "gpu", "max_model_len", "gpu_memory_utilization"}
)


def predict_table(
    text: str, source_path: str, read_file: FileReader | None = None
) -> str:
    """Return the CSV table of predictions for a CSV table of configurations.

    The header decides whether the rows are deployments, memory or training runs. The order
    and `row_id` of rows do not change. Raises UsageError when the header is of no such table.
    `read_file` opens a config.json that a row names; without it such rows are refused.
    """
    try:
        csv_reader = csv.DictReader(io.StringIO(text, newline=""), restval="")
        header_columns = frozenset(csv_reader.fieldnames or ())
        table_rows = list(csv_reader)
    except csv.Error as csv_error:
        next_step = "write it as comma-separated values"
        problem = Problem(
            code="table",
            message=f"is no table: {csv_error}",
            place=Place(source_path),
            next_step=next_step,
        )
        raise UsageError(problem) from csv_error
    read_config = _config_reader(read_file)
    # More columns than required are allowed.
    for required_columns, row_predictor, estimate_columns in TABLE_KINDS:
        if header_columns >= required_columns:
            return _format_table(
                estimate_columns,
                [
                    _output_row(
                        table_row, read_config, row_predictor, estimate_columns
                    )
                    for table_row in table_rows
                ],
            )
    # The kind with the fewest missing columns is most likely meant.
    missing_columns: list[list[str]] = sorted(
        (
            sorted(kind_columns - header_columns)
            for kind_columns, _, _ in TABLE_KINDS
        ),
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


def _config_reader(read_file: FileReader | None) -> ConfigReader:
    """Return what gives the text of a config.json by its path, each file being read once."""

    @cache
    def read_config(config_path: str) -> str:
        if read_file is None:
            raise RefusedError(f"no file is read here: config '{config_path}'")
        try:
            return read_file(config_path).decode("utf-8-sig", "replace")
        except TonnageError as error:
            problem = error.problems[0]
            raise RefusedError(
                f"config '{config_path}': {problem.message}"
            ) from None
        except OSError as error:
            raise RefusedError(
                f"config '{config_path}': {error.strerror}"
            ) from None

    return read_config


def _with_config(
    table_row: Mapping[str, str], read_config: ConfigReader
) -> Mapping[str, str]:
    """Return a row with what the file holds that its column `config` names."""
    config_path = read_cell(table_row, CONFIG_COLUMN)
    content = read_config(config_path) if config_path else ""
    return {**table_row, CONFIG_CONTENT: content}


def _predict_memory(table_row: Mapping[str, str]) -> Estimate:
    return memory.predict_memory(typed_row("memory", table_row))


def _predict_inference(table_row: Mapping[str, str]) -> Estimate:
    return predict_inference(row_deployment(typed_row("inference", table_row)))


def _predict_training(table_row: Mapping[str, str]) -> Estimate:
    return training.predict_training(typed_row("training", table_row))


TABLE_KINDS: Final[
    Sequence[tuple[frozenset[str], RowPredictor, Sequence[str]]]
] = (
    (MEMORY_HEADER, _predict_memory, memory.COLUMNS),
    (INFERENCE_HEADER, _predict_inference, COLUMNS),
    (TRAINING_HEADER, _predict_training, training.COLUMNS),
)


def _output_row(
    table_row: Mapping[str, str],
    read_config: ConfigReader,
    row_predictor: RowPredictor,
    estimate_columns: Sequence[str],
) -> dict[str, str]:
    output_cells = {"row_id": table_row.get("row_id") or ""}
    try:
        row_estimate = row_predictor(_with_config(table_row, read_config))
    # One refused row must not stop the others.
    except RefusedError as refusal:
        return output_cells | {"status": "refused", "reason": str(refusal)}
    output_cells |= {
        "status": "ok",
        "reason": row_estimate.doubt,
        "basis": row_estimate.basis,
    }
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
                    if band_limit >= INTEGER_FROM
                    else f"{band_limit:.6g}"
                )
    return output_cells


def _format_table(
    estimate_columns: Sequence[str], output_rows: Sequence[Mapping[str, str]]
) -> str:
    header_names = ["row_id", "status", "reason", "basis"]
    # Each prediction has its value and the limits of its 90 % band.
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
