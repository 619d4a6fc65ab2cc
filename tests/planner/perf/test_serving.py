"""Memory and time against what others measured and published."""

from __future__ import annotations

import csv
import math
import statistics

import pytest
from msgspec.structs import replace

from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model, models
from planner.perf.common import coefficient_table, memory
from planner.perf.common.layout import Node, ReplicaLayout, can_shard
from planner.perf.serving import coefficients
from planner.perf.serving.load import (
    BIN_SHARES,
    LengthDistribution,
    ServingLoad,
    bin_mean,
    percentile_bin,
)
from planner.perf.serving.replica import Replica
from planner.units import BYTES_PER_GIB
from tests.conftest import ROOT, present

DATA = ROOT / "tests" / "data"


def rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((DATA / name).read_text().splitlines()))


SCALEUP = {"h100-sxm": "nvswitch", "h200-sxm": "nvswitch"}


def node(name: str, count: int = 8) -> Node:
    chip = accelerators()[name]
    return Node(
        accelerator=chip,
        accelerator_count=count,
        memory_gib=chip.memory_gib,
        compute_fraction=1.0,
        scaleup_link=SCALEUP.get(name, "pcie"),
        network_gb_s=400.0,
    )


def load(
    prompt: float = 1000, answer: float = 200, rate: float = 1.0
) -> ServingLoad:
    return ServingLoad(
        prompt_lengths=LengthDistribution(
            mean_tokens=prompt, p95_tokens=prompt * 3
        ),
        answer_lengths=LengthDistribution(
            mean_tokens=answer, p95_tokens=answer * 3
        ),
        rate_per_s=rate,
    )


@pytest.mark.parametrize(
    "row", rows("vllm_startup.csv"), ids=lambda r: r["row_id"]
)
def test_weights_match_vllm_startup_logs(row: dict[str, str]) -> None:
    layout = ReplicaLayout(
        precision=row["precision"], kv_precision="bf16", tp=int(row["tp"])
    )
    found = (
        memory.weight_bytes(find_model(row["model"]), layout) / BYTES_PER_GIB
    )
    assert found == pytest.approx(float(row["weights_gib_per_gpu"]), rel=0.005)


def test_kv_tokens_match_a_vllm_startup_log() -> None:
    row = next(r for r in rows("vllm_startup.csv") if r["kv_tokens"])
    layout = ReplicaLayout(precision="bf16", kv_precision="bf16", tp=1)
    model = find_model(row["model"])
    pool = float(row["kv_cache_gib_per_gpu"]) * BYTES_PER_GIB
    tokens = pool / (memory.kv_token_bytes(model, layout) * model.layers)
    assert tokens == pytest.approx(float(row["kv_tokens"]), rel=0.005)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("llama-3.1-8b", 131_072),
        ("llama-3.1-70b", 327_680),
        ("qwen2.5-32b", 262_144),
        ("gemma-2-27b", 376_832),
        ("deepseek-r1", 70_272),
    ],
)
def test_kv_bytes_of_a_token_match_the_published_architecture(
    name: str, published: int
) -> None:
    layout = ReplicaLayout(precision="bf16", kv_precision="bf16", tp=1)
    model = find_model(name)
    assert memory.kv_token_bytes(model, layout) * model.layers == published


def test_sixteen_bits_are_sixteen_bits_and_fp32_takes_twice_as_many() -> None:
    model = find_model("llama-3.1-8b")
    halves = [
        ReplicaLayout(precision=name, kv_precision="bf16", tp=1)
        for name in ("bf16", "fp16")
    ]
    first, second = (
        Replica(model, layout, node("h100-sxm"), load()) for layout in halves
    )
    assert first.tpot(8) == second.tpot(8)
    assert first.max_batch == second.max_batch
    full = ReplicaLayout(precision="fp32", kv_precision="fp32", tp=1)
    single = Replica(model, full, node("h100-sxm"), load())
    for count in (memory.weight_bytes, memory.kv_token_bytes):
        assert count(model, full) == 2 * count(model, halves[0])
    # Decoding is bound by the bytes that are read.
    assert single.tpot(1) == pytest.approx(2 * first.tpot(1), rel=0.15)
    assert single.max_batch < first.max_batch


def test_sliding_layers_keep_no_more_than_their_window() -> None:
    model = find_model("gemma-3-27b")
    layout = ReplicaLayout(precision="bf16", kv_precision="bf16", tp=1)
    each = memory.kv_token_bytes(model, layout)
    full = model.layers - model.window_layers
    assert memory.kv_bytes(model, layout, 32_768) == each * (
        full * 32_768 + model.window_layers * 1024
    )


def test_latent_attention_is_not_divided_by_tensor_parallelism() -> None:
    model = find_model("deepseek-r1")
    one, eight = (
        memory.kv_bytes(
            model,
            ReplicaLayout(precision="fp8", kv_precision="bf16", tp=t),
            4096,
        )
        for t in (1, 8)
    )
    assert one == eight


@pytest.mark.parametrize("name", sorted(models()))
def test_weights_of_all_accelerators_add_up_to_the_model(name: str) -> None:
    model = find_model(name)
    for tp in (1, 2, 4, 8):
        layout = ReplicaLayout(precision="bf16", kv_precision="bf16", tp=tp)
        assert memory.weight_bytes(model, layout) * tp == pytest.approx(
            2 * model.params, rel=0.001
        )


def test_quantization_scales_are_counted() -> None:
    model = find_model("llama-3.1-70b")
    plain = model.dense_params * 0.5 + model.embedding_params * 2
    with_scales = memory.weight_bytes(
        model, ReplicaLayout(precision="int4", kv_precision="bf16", tp=1)
    )
    assert 1.02 < with_scales / plain < 1.05


def test_heads_decide_how_a_model_may_be_cut() -> None:
    assert can_shard(find_model("llama-3.1-70b"), 8)
    assert can_shard(find_model("qwen2.5-7b"), 4)
    assert not can_shard(find_model("qwen2.5-7b"), 8)  # 28 heads
    assert not can_shard(find_model("qwen2.5-14b"), 3)


def test_tpot_is_near_published_closed_loop_measurements() -> None:
    """152 vLLM rows of InferenceX on H100 and H200, at the lengths that it draws."""
    errors = []
    for row in rows("inferencex_closed_loop.csv"):
        # Lengths of this source are uniform in 0.8 to 1.0 of the nominal ones.
        prompt, answer = (
            float(row[key]) * 0.9 for key in ("input_len", "output_len")
        )
        lengths = (
            LengthDistribution(mean_tokens=x, p95_tokens=x * 1.1)
            for x in (prompt, answer)
        )
        traffic = ServingLoad(
            prompt_lengths=next(lengths), answer_lengths=next(lengths)
        )
        precision = (
            "mxfp4" if row["model"].startswith("gpt-oss") else row["precision"]
        )
        layout = ReplicaLayout(
            precision=precision, kv_precision="bf16", tp=int(row["tp"])
        )
        replica = Replica(
            find_model(row["model"]), layout, node(row["accelerator"]), traffic
        )
        in_flight = min(replica.max_batch, int(row["concurrency"]))
        errors.append(
            abs(replica.tpot(in_flight) * 1000 / float(row["tpot_ms"]) - 1)
        )
    assert len(errors) == 152
    assert statistics.median(errors) < 0.12
    assert sorted(errors)[int(0.9 * len(errors))] < 0.25


def replica(rate: float = 1.0, **words: float) -> Replica:
    layout = ReplicaLayout(precision="fp8", kv_precision="bf16", tp=1)
    return Replica(
        find_model("llama-3.1-8b"),
        layout,
        node("h100-sxm"),
        load(rate=rate, **words),
    )


def test_a_busier_replica_is_never_quicker() -> None:
    subject = replica()
    full = subject.completion_rate(subject.max_batch)
    before = dict.fromkeys(("ttft", "tpot", "e2e"), 0.0)
    for share in (0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95):
        service = subject.open_service(full * share)
        assert service is not None
        for metric, last in before.items():
            found = service.quantile(metric, 95)
            assert found >= last * 0.999
            before[metric] = found


def test_percentiles_are_ordered_and_checked_as_they_are_shown() -> None:
    service = replica().open_service(2.0)
    assert service is not None
    for metric in ("ttft", "tpot", "e2e"):
        values = [service.quantile(metric, p) for p in (50, 90, 95, 99)]
        assert values == sorted(values)
        assert service.meets(metric, 95, values[2] * 1.001)
        if metric != "tpot":
            assert not service.meets(metric, 95, values[2] * 0.99)


@pytest.mark.parametrize("variation", [1.0, 4.0, 16.0])
@pytest.mark.parametrize("rate", [1.0, 10.0, 30.0])
@pytest.mark.parametrize("percentile", [50, 90, 95, 99])
def test_a_limit_is_met_exactly_when_the_quantile_is_within_it(
    variation: float, rate: float, percentile: int
) -> None:
    """Also for the median, of which bursts make the mean of others part."""
    steady = replica(rate)
    bursty = Replica(
        steady.llm,
        steady.layout,
        steady.node,
        replace(steady.load, arrival_variation=variation),
    )
    service = present(bursty.open_service(rate))
    for metric in ("ttft", "tpot", "e2e"):
        reached_s = service.quantile(metric, percentile)
        # Finely below the quantile: a limit between it and the mean is not met either.
        for share in (0.5, *(0.9 + step / 400 for step in range(39))):
            assert not service.meets(metric, percentile, share * reached_s)
        for share in (1.005, 1.1, 2.0):
            assert service.meets(metric, percentile, share * reached_s)


def test_little_s_law_holds_in_the_birth_death_model() -> None:
    subject = replica()
    service = subject.open_service(
        subject.completion_rate(subject.max_batch) * 0.5
    )
    assert service is not None
    served = sum(
        p * subject.completion_rate(n)
        for n, p in enumerate(service.probabilities)
        if n
    )
    assert served == pytest.approx(service.rate_per_s, rel=0.01)


def test_too_much_load_is_no_service() -> None:
    subject = replica()
    assert (
        subject.open_service(subject.completion_rate(subject.max_batch) * 1.01)
        is None
    )


def test_the_bound_is_above_every_rate_that_keeps_the_pace() -> None:
    subject = replica()
    for limit in (0.006, 0.01, 0.02, 0.05):
        bound = subject.rate_bound(limit)
        for share in (0.5, 0.9, 0.99, 1.2, 2.0):
            service = subject.open_service(bound * share)
            if service is not None and service.tpot(95) <= limit:
                assert service.rate_per_s <= bound


def test_bursts_and_long_tails_make_waits_longer() -> None:
    calm = replica(prompt=4000).open_service(4.0)
    layout = ReplicaLayout(precision="fp8", kv_precision="bf16", tp=1)
    burst = ServingLoad(
        prompt_lengths=LengthDistribution(mean_tokens=4000, p95_tokens=12_000),
        answer_lengths=LengthDistribution(mean_tokens=200, p95_tokens=600),
        rate_per_s=4,
        arrival_variation=9.0,
    )
    wild = Replica(
        find_model("llama-3.1-8b"), layout, node("h100-sxm"), burst
    ).open_service(4.0)
    assert calm is not None
    assert wild is not None
    assert wild.ttft(95) > calm.ttft(95)


def test_lengths_reproduce_their_mean_and_percentiles() -> None:
    lengths = LengthDistribution(mean_tokens=1200, p95_tokens=4000)
    points = lengths.bin_lengths()
    assert bin_mean(points) == pytest.approx(1200)
    assert sum(BIN_SHARES) == pytest.approx(1)
    assert points[percentile_bin(95)] == pytest.approx(4000, rel=0.03)
    p99 = 4000 * math.exp(lengths.sigma * (2.3263 - 1.6449))
    assert points[percentile_bin(99)] == pytest.approx(p99, rel=0.03)


def test_the_99th_percentile_sees_the_long_answers() -> None:
    service = replica().open_service(0.01)
    assert service is not None
    assert service.e2e(99) > 1.5 * service.e2e(95)


def test_coefficients_are_the_product_of_the_rows_that_apply() -> None:
    for name in ("flops", "kv_bandwidth", "layer_overhead"):
        applied = [
            r.fitted_factor
            for r in coefficients.SERVING.rows
            if r.coefficient == name and r.key in ("", "vllm", "fp8", "HBM3")
        ]
        found = coefficients.SERVING.select(
            frozenset({"vllm", "fp8", "HBM3"}), coefficient_table.REFERENCE_YEAR
        )
        assert getattr(found, name) == pytest.approx(math.prod(applied))


def test_trends_are_not_carried_beyond_the_measurements() -> None:
    first, last = coefficient_table.MEASURED_YEARS
    keys = frozenset({"vllm"})
    assert coefficients.SERVING.select(
        keys, last
    ) == coefficients.SERVING.select(keys, last + 10)
    assert coefficients.SERVING.select(
        keys, first
    ) == coefficients.SERVING.select(keys, 1990)
