"""Sparse attention in serving: what is chosen is read, and the index is read to choose it."""

from __future__ import annotations

import math
import statistics

import pytest
from msgspec.structs import replace

from planner.facts.llm import Llm, find_model
from planner.perf.common.layout import ReplicaLayout
from planner.perf.serving.coefficients import SERVING
from planner.perf.serving.engine import coefficient_keys, find_engine
from planner.perf.serving.prompt import busy_timer
from planner.perf.serving.step import StepTimes, attention_time, step_times
from planner.perf.serving.work import profile_replica
from tests.accuracy.kept_apart import inside, ratios
from tests.accuracy.sparse import TABLE
from tests.planner.perf.test_serving import node

CHOSEN = 2048  # tokens, of DeepSeek V3.2, GLM-5 and MiniMax M3


LAYOUT = ReplicaLayout(precision="fp8", kv_precision="bf16", tp=8)
COEFFICIENTS = SERVING.select(
    coefficient_keys(LAYOUT, node("h200-sxm"), find_engine("vllm")), 2026.0
)


def times(llm: Llm) -> StepTimes:
    profile = profile_replica(llm, LAYOUT, node("h200-sxm"))
    return step_times(profile, COEFFICIENTS)


def read_bytes(llm: Llm, first: int, last: int) -> float:
    """Bytes that a step reads more with a context of `last` tokens than with `first`."""
    found = times(llm)
    bandwidth = profile_replica(
        llm, LAYOUT, node("h200-sxm")
    ).memory_bytes_per_s
    gained_s = attention_time(found, last) - attention_time(found, first)
    return gained_s * bandwidth * COEFFICIENTS.kv_bandwidth


@pytest.mark.parametrize(
    ("model", "token_bytes"),
    [
        # 128 values of 8 bit and one scale of 4 bytes in each layer.
        ("deepseek-v3.2", 61 * 132),
        ("glm-5", 78 * 132),
        # 128 values of 16 bit in 57 layers; one KV head of 128 on a rank in the other three.
        ("minimax-m3", 57 * 256 + 3 * 2 * 128 * 2),
    ],
)
def test_context_beyond_what_is_chosen_costs_its_index_alone(
    model: str, token_bytes: int
) -> None:
    grown = read_bytes(find_model(model), CHOSEN, 128_000)
    assert grown == pytest.approx((128_000 - CHOSEN) * token_bytes, rel=1e-6)


def test_a_rank_scores_every_pair_of_a_prompt_with_the_whole_index() -> None:
    """64 heads of 128 on each of eight ranks. Their 16 heads of attention are padded to 64."""
    llm = find_model("deepseek-v3.2")
    found = times(llm)
    assert found.index_pair_s / found.pair_s == pytest.approx(
        64 * 128 / (64 * (2 * 512 + 64))
    )
    prompt = 65_536
    gained = busy_timer(found)(prompt) - busy_timer(
        times(replace(llm, index_width=0))
    )(prompt)
    # Half of all pairs are causal.
    assert gained == pytest.approx(
        61 * prompt**2 / 2 * found.index_pair_s, rel=1e-6
    )


def test_a_choice_of_all_tokens_reads_what_full_attention_reads() -> None:
    llm = replace(
        find_model("minimax-m3"), sparse=10**6, index_bytes=0, index_width=0
    )
    full = replace(llm, sparse=0, sparse_layers=0)
    for tokens in (1, 4_096, 200_000):
        assert attention_time(times(llm), tokens) == pytest.approx(
            attention_time(times(full), tokens)
        )
        assert busy_timer(times(llm))(tokens) == pytest.approx(
            busy_timer(times(full))(tokens)
        )


def test_layers_that_attend_to_everything_grow_with_the_prompt() -> None:
    """Three of the sixty layers of MiniMax M3 have no limit."""
    llm = replace(find_model("minimax-m3"), index_width=0)
    all_sparse = replace(llm, sparse_layers=60)
    prompt = 100_000
    gained = busy_timer(times(llm))(prompt) - busy_timer(times(all_sparse))(
        prompt
    )
    assert gained == pytest.approx(
        3 * prompt * (prompt / 2 - CHOSEN) * times(llm).pair_s, rel=1e-6
    )


def test_published_runs_with_prompts_of_one_length_are_met() -> None:
    """No fit has these four of vLLM; without tiles they came out 1.6 times too fast."""
    samples = [
        sample
        for sample in TABLE.read()
        if sample.row["framework"] == "vLLM"
        and sample.row["len_kind"] == "fixed"
    ]
    assert len(samples) == 4
    errors = [abs(math.expm1(ratio)) for ratio in ratios(samples)]
    assert statistics.fmean(errors) < 0.2
    assert all(inside(samples))
