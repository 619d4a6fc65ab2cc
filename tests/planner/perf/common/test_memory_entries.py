"""Caches whose entries hold several tokens, against what others published of DeepSeek V4."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from planner.facts.llm import Llm, find_model
from planner.perf.common.layout import ReplicaLayout
from planner.perf.common.memory import kv_bytes, kv_token_bytes

MIB = 2**20
MILLION = 2**20
ENTRY, INDEX_KEY = 512, 128  # elements
# Bytes of an element of llama.cpp's q8_0: 32 of 8 bit share a scale of 2 bytes.
Q8 = 34 / 32


def layout(kv_precision: str = "bf16") -> ReplicaLayout:
    return ReplicaLayout(precision="mxfp4", kv_precision=kv_precision, tp=8)


def test_entries_grow_as_another_program_allocates_them() -> None:
    """ik_llama.cpp, pull request 2266: 145.55 MiB at 32K, 547.27 at 128K, 3,225.39 at 768K."""
    flash = find_model("deepseek-v4-flash")
    token_bytes = (
        flash.whole_entries * ENTRY * Q8
        # Its index has 16 bit.
        + flash.choosing_entries * INDEX_KEY * 2
    )
    for tokens, mib in ((128, 547.27), (768, 3225.39)):
        grown = (tokens - 32) * 1024 * token_bytes
        assert grown / MIB == pytest.approx(mib - 145.55, rel=1e-3)


def test_windows_stay_as_they_are() -> None:
    flash = find_model("deepseek-v4-flash")
    windows = 43 * 128 * kv_token_bytes(flash, layout())
    for tokens in (1024, MILLION):
        whole = kv_bytes(flash, layout(), tokens)
        grown = kv_bytes(flash, layout(), 2 * tokens)
        assert 2 * whole - grown == pytest.approx(windows)


def test_a_million_tokens_of_pro_take_what_was_counted_elsewhere() -> None:
    """8.7 GiB in 16 bit; a tenth of those of DeepSeek V3.2 by its makers."""
    pro, before = find_model("deepseek-v4-pro"), find_model("deepseek-v3.2")
    size = kv_bytes(pro, layout(), MILLION)
    assert size / 2**30 == pytest.approx(8.7, rel=0.02)
    assert size / kv_bytes(before, layout(), MILLION) == pytest.approx(
        0.10, abs=0.02
    )


def test_a_token_after_a_million_takes_the_published_share_of_flop() -> None:
    """27 % of those of DeepSeek V3.2, by its makers."""

    def flop(llm: Llm, read: float, entry_flop: int, indexed: float) -> float:
        return 2 * (llm.active_params + read * entry_flop + indexed)

    pro, before = find_model("deepseek-v4-pro"), find_model("deepseek-v3.2")
    chosen = pro.sparse / pro.entry_tokens * pro.choosing_layers
    pooled = MILLION / pro.pooled_tokens * pro.pooled_layers
    windows = pro.window * pro.window_layers
    entries = MILLION * pro.choosing_entries
    now = flop(
        pro,
        chosen + pooled + windows,
        pro.heads * 2 * ENTRY,
        entries * pro.index_width,
    )
    then = flop(
        before,
        before.sparse * before.choosing_layers,
        before.heads * (2 * before.kv_lora_rank + before.qk_rope_dim),
        MILLION * before.choosing_layers * before.index_width,
    )
    assert now / then == pytest.approx(0.27, abs=0.02)


def test_an_entry_for_each_token_is_plain_attention() -> None:
    plain = find_model("deepseek-v3.2")
    shared = replace(plain, entry_tokens=4)
    assert plain.whole_entries == plain.attending_layers
    assert plain.choosing_entries == 61
    assert shared.choosing_entries == 61 / 4
