"""Attention to entries that tokens share, token by token."""

from __future__ import annotations

import pytest

from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model
from planner.perf.training.job import Job, ParallelLayout, Software
from planner.perf.training.mfu import flop_per_token
from planner.perf.training.work import rank_work

TOKENS = 16_384


def job(model: str) -> Job:
    return Job(
        llm=find_model(model),
        chip=accelerators()["gb200"],
        layout=ParallelLayout(),
        software=Software(),
        sequence_tokens=TOKENS,
        global_batch=1.0,
        network_bytes_s=50e9,
    )


def test_every_token_attends_to_the_entries_before_it_and_its_window() -> None:
    """DeepSeek V4 Flash: 21 layers choose 512 entries of 4 tokens, 20 read all those of 128."""
    flash = job("deepseek-v4-flash")
    pairs = indexed = 0
    for token in range(TOKENS):
        few, many, window = token // 4, token // 128, min(token, 128)
        pairs += 21 * min(few, 512) + 20 * many + 43 * window
        indexed += 21 * few
    flop = 2 * (64 * (512 + 512) * pairs + 64 * 128 * indexed)
    assert rank_work(flash).attention_flop == pytest.approx(flop, rel=0.01)


def test_flop_of_a_token_are_mostly_those_of_its_weights() -> None:
    flash = job("deepseek-v4-flash")
    share = 6 * flash.llm.active_params / flop_per_token(flash)
    assert share > 0.3
    everything = 12 * 43 * 64 * 512 * TOKENS
    assert flop_per_token(flash) < 6 * flash.llm.active_params + everything / 4
