"""Memory of engines that are told which share they may fill: SGLang and TensorRT-LLM."""

from __future__ import annotations

import pytest

from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model
from planner.perf.common import memory
from planner.perf.common.layout import Node, ReplicaLayout
from planner.perf.serving import fitted_memory
from planner.perf.serving.engine import find_engine
from planner.perf.serving.load import LengthDistribution, ServingLoad
from planner.perf.serving.load_shape import TokenCounts, memory_capacity
from planner.perf.serving.replica import Replica
from planner.perf.serving.work import profile_replica
from planner.units import BYTES_PER_GIB

LENGTHS = LengthDistribution(mean_tokens=1000, p95_tokens=2000)
MODEL = find_model("llama-3.1-8b")
LAYOUT = ReplicaLayout(precision="bf16", kv_precision="bf16", tp=1)


def node(chip: str) -> Node:
    accelerator = accelerators()[chip]
    return Node(
        accelerator=accelerator,
        accelerator_count=8,
        memory_gib=accelerator.memory_gib,
        compute_fraction=1.0,
        scaleup_link="nvlink4",
        network_gb_s=400.0,
    )


def replica(
    engine: str = "sglang", chip: str = "h100-sxm", budget: int = 0
) -> Replica:
    load = ServingLoad(
        prompt_lengths=LENGTHS,
        answer_lengths=LENGTHS,
        rate_per_s=1.0,
        max_context_tokens=4000,
        token_budget=budget,
        engine=engine,
    )
    return Replica(MODEL, LAYOUT, node(chip), load)


# mem_fraction_static in logs of servers that were started without it: notebooks of the
# documentation, sgl-project/sgl-project.github.io, SGLang 0.5.7 to 0.5.8, on these GPUs.
@pytest.mark.parametrize(
    ("chip", "share"), [("h100-sxm", 0.835), ("h200-sxm", 0.907)]
)
def test_an_engine_sets_aside_what_its_logs_say(
    chip: str, share: float
) -> None:
    memory_gib = node(chip).memory_gib
    tokens = fitted_memory.step_tokens("sglang", memory_gib)
    aside_gib = fitted_memory.set_aside_gib(
        "sglang", memory_gib, LAYOUT, tokens
    )
    assert tokens == 8192
    assert 1 - aside_gib / memory_gib == pytest.approx(share, abs=0.004)


@pytest.mark.parametrize("chip", ["l4", "l40s", "a100-80gb-sxm", "b200-sxm"])
def test_a_pool_is_within_the_fit_and_within_the_rule_of_the_engine(
    chip: str,
) -> None:
    one = replica(chip=chip)
    found = one.startup_memory
    fitted_gib = (
        one.coefficients.memory_share * found.total_gib
        - one.coefficients.reserve_gib
    )
    aside_gib = fitted_memory.set_aside_gib(
        "sglang", found.total_gib, LAYOUT, found.max_step_tokens
    )
    filled_gib = found.weights_gib + found.kv_gib
    assert filled_gib == pytest.approx(
        min(fitted_gib, found.total_gib - aside_gib)
    )
    assert found.told_share == pytest.approx(filled_gib / found.total_gib)
    assert 0 < found.told_share < 1
    assert found.weights_gib == pytest.approx(
        memory.weight_bytes(MODEL, LAYOUT) / BYTES_PER_GIB
    )


def test_longer_steps_leave_less_for_the_cache() -> None:
    pools = [
        replica(budget=budget).startup_memory.kv_gib
        for budget in (8192, 16_384, 32_768)
    ]
    assert pools == sorted(pools, reverse=True)
    assert pools[0] > pools[-1]


def test_a_step_is_whole_pages() -> None:
    assert replica(budget=5000).startup_memory.max_step_tokens == 4992


def test_engines_have_their_own_times_and_slots() -> None:
    vllm, sglang = replica("vllm"), replica("sglang")
    assert (vllm.engine.kind, sglang.engine.kind) == ("vllm", "sglang")
    assert vllm.coefficients != sglang.coefficients
    assert sglang.startup_memory.max_sequences == sglang.engine.max_sequences
    # The fixed time before a first token is that of its own fit.
    assert sglang.start_delay(1) > vllm.start_delay(1)


def test_all_tokens_of_windowed_layers_take_room() -> None:
    """SGLang keeps them for gpt-oss: what vLLM drops fills its pool."""
    llm = find_model("gpt-oss-20b")
    vllm, sglang = (find_engine(name) for name in ("vllm", "sglang"))
    assert vllm.stored(llm) is llm
    layout = ReplicaLayout(precision="mxfp4", kv_precision="bf16", tp=1)
    whole = memory.kv_bytes(sglang.stored(llm), layout, 8192)
    assert whole == 8192 * llm.attending_layers * memory.kv_token_bytes(
        llm, layout
    )
    assert whole > memory.kv_bytes(llm, layout, 8192)


def test_an_engine_that_measures_what_is_free_is_told_a_share_of_that() -> None:
    """TensorRT-LLM: its argument has a default of 0.9, and measured servers were told less."""
    made = replica("trtllm")
    told = made.startup_memory
    free_gib = told.total_gib - told.weights_gib - made.coefficients.reserve_gib
    assert told.told_share == pytest.approx(0.75)
    assert told.told_share < made.coefficients.memory_share
    assert told.kv_gib == pytest.approx(told.told_share * free_gib)
    assert 0 < told.kv_gib < free_gib


def test_what_does_not_fit_has_no_pool() -> None:
    large = Replica(
        find_model("llama-3.1-70b"),
        LAYOUT,
        node("h100-sxm"),
        replica("trtllm").load,
    )
    assert large.startup_memory.kv_gib < 0
    assert large.max_batch == 0


def test_its_pool_is_that_of_predictions() -> None:
    """Plans and `estimate --table` size the pool of TensorRT-LLM alike, but for the share."""
    made = replica("trtllm")
    demand = TokenCounts(LENGTHS.mean_tokens, LENGTHS.mean_tokens)
    predicted = memory_capacity(
        profile_replica(MODEL, LAYOUT, made.node),
        made.coefficients,
        made.engine.pool_rule,
        made.coefficients.reserve_gib,
        demand,
    )
    share = made.startup_memory.told_share / made.coefficients.memory_share
    assert made.max_batch == pytest.approx(predicted * share, abs=1)


def test_steps_are_whole_blocks() -> None:
    memory_gib = node("h100-sxm").memory_gib
    assert fitted_memory.step_tokens("trtllm", memory_gib) == 8192
    assert fitted_memory.step_tokens("trtllm", memory_gib, 1000) == 992


def test_no_more_requests_are_planned_than_graphs_are_shown_for() -> None:
    small = Replica(
        find_model("llama-3.2-1b"),
        LAYOUT,
        node("h200-sxm"),
        replica("trtllm").load,
    )
    assert small.max_batch == 1024
