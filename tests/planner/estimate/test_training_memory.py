"""What a table says of a run that is counted beyond memory."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

import pytest

from planner.estimate.training_row import parse_job
from tests.accuracy.adapter import training_row
from tests.accuracy.training import APART, TRUTH
from tests.planner.estimate.rows import answered

ROW: Final = {
    "row_id": "one",
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm",
    "n_gpus": "8",
    "tp": "1",
    "framework": "torchtune",
    "sharding": "zero3",
    "seq_len": "8192",
    "micro_batch": "1",
}


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        # All states of Adam in 32 bit, and none of them elsewhere.
        ({"gpu": "rtx-4090", "n_gpus": "1", "sharding": "none"}, "does not"),
        ({"gpu": "rtx-4090", "n_gpus": "8", "micro_batch": "4"}, "may not"),
        ({"n_gpus": "8", "recompute": "none", "micro_batch": "8"}, "does not"),
        ({"n_gpus": "8", "micro_batch": "8"}, ""),
        ({"n_gpus": "64", "model": "llama-3.1-70b"}, ""),
    ],
)
def test_a_run_beyond_memory_says_so_and_by_how_much(
    cells: dict[str, str], says: str
) -> None:
    found = answered(ROW | cells)
    job = parse_job(ROW | cells).job
    assert found["status"] == "ok"
    assert found["reason"].startswith(says)
    assert bool(found["reason"]) == bool(says)
    if says:
        assert f"of {job.chip.memory_gib:,.1f} GiB on each" in found["reason"]
    else:
        # What is recomputed is as much as memory makes necessary.
        assert float(found["peak_mem_gib"]) <= job.chip.memory_gib
        stated = answered(ROW | cells | {"recompute": "none"})
        assert stated["reason"].startswith("does not fit: counted at")


@pytest.mark.parametrize("path", [TRUTH, APART])
def test_no_published_run_is_said_not_to_fit(path: Path) -> None:
    """All of them ran: what is counted beyond memory is within the band, of XLA, or of hybrids."""
    text = path.read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        found = answered({"sharding": "", **training_row(row)})
        assert found["status"] == "ok"
        assert not found["reason"].startswith("does not"), row["row_id"]
