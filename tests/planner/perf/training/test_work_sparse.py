"""Sparse attention in training: pairs that are chosen, and an index that scores all pairs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from planner.perf.training.job import Job
from planner.perf.training.work import rank_work
from tests.planner.perf.test_training import made

LAYERS = 61
HEADS = 128
CHOSEN = 2048  # tokens
INDEX_WIDTH = 64 * 128


def job(sequence_tokens: int, **fields: int) -> Job:
    plain = made("deepseek-v3.2", ep=8)
    return plain._replace(
        llm=replace(plain.llm, **fields), sequence_tokens=sequence_tokens
    )


@pytest.mark.parametrize("tokens", [1024, 4096, 65_536])
def test_pairs_are_those_that_a_token_by_token_count_has(tokens: int) -> None:
    """Token i attends to i others or to 2,048, whichever is less, and scores all i."""
    chosen_pairs = sum(min(place, CHOSEN) for place in range(tokens))
    scored_pairs = sum(range(tokens))
    # Keys of 192 and values of 128.
    flop = LAYERS * 2 * chosen_pairs * HEADS * (192 + 128)
    flop += LAYERS * 2 * scored_pairs * INDEX_WIDTH
    assert rank_work(job(tokens)).attention_flop == pytest.approx(
        flop, rel=0.005
    )


def test_a_long_sequence_is_cheaper_for_its_choice() -> None:
    sparse = rank_work(job(65_536)).attention_flop
    full = rank_work(
        job(65_536, sparse=0, index_width=0, index_bytes=0)
    ).attention_flop
    # The index is a fifth as wide as keys and values, and a sixteenth of the pairs is chosen.
    assert sparse < 0.3 * full
