"""Work of scans against the products of the published algorithm, counted one by one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model
from planner.perf.training.coefficients import training_coefficients
from planner.perf.training.forward_pass import forward_time
from planner.perf.training.job import Job, ParallelLayout, Software
from planner.perf.training.scan import scan_work
from planner.perf.training.step import step_time
from planner.perf.training.work import rank_work

CHUNK = 128
# Of nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 config.json.
HEADS, HEAD_WIDTH, DEPTH, GROUPS = 64, 64, 128, 8


def job(model: str, layout: ParallelLayout | None = None) -> Job:
    return Job(
        llm=find_model(model),
        chip=accelerators()["gb200"],
        layout=layout or ParallelLayout(),
        software=Software(precision="mxfp8", parts_captured=True),
        sequence_tokens=8192,
        global_batch=512.0,
        network_bytes_s=50e9,
    )


def products_of_a_chunk() -> int:
    """FLOP of the four products of a chunk (arXiv:2405.21060, listing 1)."""
    shapes = [
        # Scores of a chunk's tokens, once for each group of heads.
        *[(CHUNK, CHUNK, DEPTH)] * GROUPS,
        *[(CHUNK, HEAD_WIDTH, CHUNK)] * HEADS,  # what they read of each other
        *[(DEPTH, HEAD_WIDTH, CHUNK)] * HEADS,  # what they leave
        *[(CHUNK, HEAD_WIDTH, DEPTH)] * HEADS,  # what they read of before
    ]
    return sum(2 * rows * columns * deep for rows, columns, deep in shapes)


def test_a_scan_has_the_products_of_the_published_algorithm() -> None:
    asked = job("nemotron-3-nano-30b-a3b")
    chunks = asked.micro_tokens / CHUNK * asked.llm.state_layers
    counted = products_of_a_chunk() * chunks
    # Scores of groups, which models.csv does not tell, are not counted.
    assert scan_work(asked)["scan_flop"] == pytest.approx(counted, rel=0.08)
    states = chunks * HEADS * HEAD_WIDTH * DEPTH * 4
    assert scan_work(asked)["scan_bytes"] == pytest.approx(4 * states, rel=0.02)


def test_ranks_share_a_scan_and_other_models_have_none() -> None:
    whole = scan_work(job("nemotron-3-nano-30b-a3b"))
    cut = job("nemotron-3-nano-30b-a3b", ParallelLayout(tp=2, pp=4))
    assert {name: 8 * work for name, work in scan_work(cut).items()} == whole
    assert not any(scan_work(job("qwen3-30b-a3b")).values())


def test_a_scan_takes_what_was_published_of_a_kernel() -> None:
    """flash-linear-attention: 96 heads of 128, 8,192 tokens, one GB200: 1.265 ms forward."""
    layer = replace(
        find_model("nemotron-3-nano-30b-a3b"),
        state_layers=1,
        state_bytes=96 * 128 * 128 * 4,
    )
    asked = job("nemotron-3-nano-30b-a3b")._replace(llm=layer)
    scan_s = forward_time(rank_work(asked), training_coefficients(asked)).scan
    assert scan_s == pytest.approx(1.265e-3, rel=0.1)


def test_a_step_takes_its_scans_longer() -> None:
    layout = ParallelLayout(ep=8, dp=8, micro=4.0)
    asked = job("nemotron-3-nano-30b-a3b", layout)
    work = rank_work(asked)
    without = replace(work, scan_flop=0.0, scan_bytes=0.0)
    coefficients = training_coefficients(asked)
    whole, rest = (step_time(x, coefficients) for x in (work, without))
    assert 0.05 < 1 - rest.total / whole.total < 0.2
