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


def predict(text: str, path: str) -> str:
    """Return the table of answers to a table of configurations; raises UsageError.

    What kind of table it is, is told from its header. Rows keep their order and their row_id.
    """
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), restval="")
        header, lines = frozenset(reader.fieldnames or ()), list(reader)
    except csv.Error as error:
        step = "write it as comma-separated values"
        problem = Problem(
            code="table",
            message=f"is no table: {error}",
            place=Place(path),
            next_step=step,
        )
        raise UsageError(problem) from error
    for wanted, ask, columns in KINDS:
        if header >= wanted:
            return _written(
                columns, [_line(row, ask, columns) for row in lines]
            )
    absent: list[list[str]] = sorted(
        (sorted(x - header) for x, _, _ in KINDS), key=len
    )
    missing = ", ".join(absent[0])
    problem = Problem(
        code="table",
        message=f"is no table of inference, training or memory: no column {missing}",
        place=Place(path, 1, 1),
        next_step="give the columns that docs/estimate.md lists",
    )
    raise UsageError(problem)


def _inference(row: Mapping[str, str]) -> Answer:
    return answer(setup(row))


KINDS: Final[Sequence[tuple[frozenset[str], Asked, Sequence[str]]]] = (
    (MEMORY, memory.answer, memory.COLUMNS),
    (INFERENCE, _inference, COLUMNS),
    (TRAINING, trained.answer, trained.COLUMNS),
)


def _line(
    row: Mapping[str, str], ask: Asked, columns: Sequence[str]
) -> dict[str, str]:
    found = {"row_id": row.get("row_id") or ""}
    try:
        answered = ask(row)
    except RefusedError as error:
        return found | {"status": "refused", "reason": str(error)}
    found |= {"status": "ok", "basis": answered.basis}
    for name in columns:
        number = answered.numbers.get(name)
        if number is not None:
            parts = (number.value, number.low, number.high)
            for suffix, part in zip(("", "_low", "_high"), parts, strict=True):
                found[name + suffix] = (
                    f"{part:.0f}" if part >= LARGE else f"{part:.6g}"
                )
    return found


def _written(columns: Sequence[str], lines: Sequence[Mapping[str, str]]) -> str:
    header = ["row_id", "status", "reason", "basis"]
    header += [
        name + suffix for name in columns for suffix in ("", "_low", "_high")
    ]
    out = io.StringIO()
    writer = csv.DictWriter(out, header, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()
