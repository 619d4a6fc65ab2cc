"""Laws of pools, bursts and waits, which need no measurement."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model
from planner.perf.common.layout import Node, ReplicaLayout
from planner.perf.serving import tail
from planner.perf.serving.deployment import Demand, Deployment
from planner.perf.serving.engine import find_engine
from planner.perf.serving.load_shape import (
    ReplicaRates,
    burst_latency,
    closed_latency,
    offline_throughput,
)

H100 = accelerators()["h100-sxm"]
NODE = Node(
    accelerator=H100,
    accelerator_count=8,
    memory_gib=H100.memory_gib,
    compute_fraction=1.0,
    scaleup_link="nvlink",
    network_gb_s=400.0,
)
LAYOUT = ReplicaLayout(precision="bf16", kv_precision="bf16", tp=1)


def deployment(engine: str, model: str = "llama-3.1-8b") -> Deployment:
    return Deployment(
        llm=find_model(model),
        layout=LAYOUT,
        node=NODE,
        engine=find_engine(engine),
        demand=Demand(
            load_kind="offline", prompt_tokens=1000, answer_tokens=200
        ),
    )


def rates(**fields: float) -> ReplicaRates:
    return replace(deployment("trtllm").replica_rates(), **fields)


def test_an_idle_server_lets_no_prompt_wait_for_a_step() -> None:
    alone = rates().start_wait(0.02, 0.0)
    assert alone == pytest.approx(0.0)
    waits = [rates().start_wait(0.02, others) for others in (0.1, 1, 10)]
    assert alone < waits[0] < waits[1] < waits[2]
    most = rates().coefficients.step_wait * 0.02
    assert waits[2] == pytest.approx(most, rel=1e-3)


def test_a_first_message_waits_for_its_tokens_where_an_engine_fills_it() -> (
    None
):
    for engine, waits in (("sglang", True), ("vllm", False)):
        one = deployment(engine).replica_rates()
        many = replace(one, message_tokens=10.0)
        late = closed_latency(many, 4).ttft_s - closed_latency(one, 4).ttft_s
        step = closed_latency(one, 4).tpot_s
        assert (late > 5 * step) == waits


def test_the_latest_of_a_short_run_are_the_last_of_its_first_wave() -> None:
    replica = replace(deployment("sglang").replica_rates(), first_share=0.1)
    steady = closed_latency(replica, 64)

    def quantile(probability: float, users: float = 64.0) -> float:
        return tail.first_wave_quantile(replica, steady, users, probability)

    # Nine in ten requests come after it.
    assert quantile(0.89) == quantile(0.5) == 0.0
    late = [quantile(p) for p in (0.91, 0.95, 0.99, 0.999)]
    assert late == sorted(late)
    assert late[0] > replica.coefficients.first_wave
    wave = [quantile(0.99, users) for users in (1.0, 16.0, 64.0, 256.0)]
    assert wave == sorted(wave)
    endless = replace(replica, first_share=0.0)
    assert tail.first_wave_quantile(endless, steady, 64.0, 0.99) == 0.0


def test_a_burst_is_a_lone_request_or_a_saturated_run_at_its_ends() -> None:
    replica = rates()
    assert burst_latency(replica, 1.0).ttft_s < 1.0
    count = 200 * replica.max_batch
    long_run = burst_latency(replica, count)
    full = offline_throughput(replica) / replica.answer_tokens
    steady = full * replica.coefficients.run_time
    assert count / long_run.run_s == pytest.approx(steady, rel=0.05)
    assert long_run.ttft_s == pytest.approx(long_run.run_s / 2, rel=0.05)
    runs = [burst_latency(replica, n).run_s for n in (1, 10, 100, 1000, 1e4)]
    assert runs == sorted(runs)


def test_a_small_token_budget_makes_prompts_wait_for_steps() -> None:
    waits = [
        closed_latency(rates(budget_tokens=tokens), 64).ttft_s
        for tokens in (1_000.0, 4_000.0, 16_000.0)
    ]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] > waits[2]


def test_windows_are_kept_whole_in_a_pool_of_what_is_free() -> None:

    free = deployment("trtllm").engine.pool_rule
    total = deployment("sglang").engine.pool_rule
    assert (free.of_free, total.of_free) == (1.0, 0.0)
    windowed = deployment("trtllm", "gpt-oss-20b")
    kept = replace(windowed, engine=find_engine("sglang"))
    assert (
        windowed.replica_rates().max_batch * 1.3
        < kept.replica_rates().max_batch
    )
