"""Tables of exactly given configurations, against the rows that others measured."""

from __future__ import annotations

import contextlib
import csv
import statistics
from itertools import pairwise

import pytest

from planner.errors import UsageError
from planner.estimate import table
from planner.estimate.draft import read_draft
from planner.estimate.inference import Estimate, predict_inference
from planner.estimate.inference_row import row_deployment
from planner.estimate.memory import predict_memory
from planner.estimate.names import RefusedError, resolve_gpu, resolve_model
from planner.estimate.spelling import TableKind, typed_row
from planner.estimate.training import predict_training
from planner.facts.accelerator import accelerators
from planner.facts.llm import find_model
from planner.perf.common.layout import ReplicaLayout
from planner.perf.serving import memory as startup
from planner.perf.serving import tail
from planner.perf.serving.load import LengthDistribution, ServingLoad
from planner.perf.serving.replica import Replica
from planner.perf.serving.step import decode_time
from planner.units import BYTES_PER_GIB
from tests.accuracy import adapter
from tests.conftest import ROOT, present

TRUTH = ROOT / "tests" / "data" / "truth"
MEASURED = (
    "req_throughput_rps",
    "output_tok_s",
    "output_tok_s_per_gpu",
    "total_tok_s",
    "ttft_ms_mean",
    "ttft_ms_p50",
    "ttft_ms_p99",
    "tpot_ms_mean",
    "tpot_ms_p50",
    "tpot_ms_p99",
    "e2e_ms_mean",
    "derived_output_tok_s_per_gpu",
)
TRAINED = (
    "tokens_per_s_per_gpu",
    "model_tflops_per_gpu",
    "mfu_pct",
    "hfu_pct",
    "step_time_s",
    "time_to_train_min",
    "gpu_hours",
    "peak_mem_gib",
)
HELD = (
    "weights_gib_per_gpu",
    "non_torch_gib",
    "activation_peak_gib",
    "kv_cache_gib_per_gpu",
    "kv_tokens",
    "max_concurrency",
    "state_gib_per_gpu",
    "activation_gib_per_gpu",
    "peak_mem_gib",
    "checkpoint_gib",
)


def rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((TRUTH / name).read_text().splitlines()))


def predicted(found: list[dict[str, str]]) -> list[dict[str, str]]:
    return list(
        csv.DictReader(
            table.predict_table(adapter.written(found), "rows.csv").splitlines()
        )
    )


def row(**changes: str) -> dict[str, str]:
    base = {
        "row_id": "one",
        "model": "llama-3.1-8b",
        "gpu": "H100-SXM-80GB",
        "n_gpus": "1",
        "tp": "1",
        "weight_precision": "fp8",
        "framework": "vLLM",
        "load_kind": "concurrency",
        "concurrency": "16",
        "disagg_layout": "",
        "pp": "",
        "replicas": "1",
        "input_len": "1000",
        "output_len": "200",
        "request_rate_rps": "",
    }
    return base | changes


def told(truth: dict[str, str]) -> dict[str, str]:
    """A row of free text and measurements that would mislead whoever read it."""
    lies = "lora qlora compile async paged 8bit cpu offload interconnect: PCIe"
    return {
        "row_id": truth["row_id"],
        "notes": f"{lies}; max batch per engine=1",
        "arch_note": lies,
        "source_group": "mlperf_lora",
        "source_repo": lies,
        "source_path": lies,
        "source_commit_or_url": lies,
        "submitter": lies,
        "system": lies,
    }


class Watched(dict):
    """A row that remembers which of its columns were asked for."""

    def __init__(self, cells: dict[str, str], asked: set[str]) -> None:
        super().__init__(cells)
        self.asked = asked

    def get(self, column, default=None):
        self.asked.add(column)
        return super().get(column, default)

    def __getitem__(self, column):
        self.asked.add(column)
        return super().__getitem__(column)

    def __contains__(self, column):
        self.asked.add(column)
        return super().__contains__(column)


@pytest.mark.parametrize(
    "kind", [name.removesuffix(".csv") for name in adapter.ADAPTERS]
)
def test_only_documented_columns_are_read(kind: TableKind) -> None:
    page = (ROOT / "docs" / "estimate.md").read_text()
    documented = {
        cell
        for line in page.splitlines()
        if line.startswith("| `")
        for cell in line.split("|")[1]
        .replace("`", " ")
        .replace(",", " ")
        .split()
    }
    asked: set[str] = set()
    name = f"{kind}.csv"
    predictor = {
        "inference.csv": lambda r: predict_inference(row_deployment(r)),
        "training.csv": predict_training,
        "memory.csv": predict_memory,
    }[name]
    for published, cells in zip(
        rows(name), adapter.typed_rows(name), strict=True
    ):
        with contextlib.suppress(RefusedError):
            predictor(Watched(cells, asked))
        with contextlib.suppress(RefusedError):
            typed = typed_row(kind, Watched(published, asked))
            predictor(Watched(typed, asked))
    assert asked <= documented
    sources = {c for c in asked if c.startswith("source") or "note" in c}
    assert sources <= {"source_date"}
    assert "row_id" not in asked


@pytest.mark.parametrize(
    ("name", "measured"),
    [
        ("inference.csv", MEASURED),
        ("training.csv", TRAINED),
        ("memory.csv", HELD),
    ],
)
def test_neither_measurements_nor_free_text_are_read(
    name: str, measured: tuple[str, ...]
) -> None:
    found = adapter.typed_rows(name)
    expected = table.predict_table(adapter.written(found), "rows.csv")
    beside = [
        told(r) | dict.fromkeys(measured, "1") | cells
        for r, cells in zip(rows(name), found, strict=True)
    ]
    assert table.predict_table(adapter.written(beside), "rows.csv") == expected


def test_a_name_does_not_make_a_run_one_of_adapters() -> None:
    whole = adapter.typed_rows("training.csv")[0]
    named = whole | {"row_id": "lora", "notes": "lora"}
    tuned = whole | {"method": "lora"}
    answers = predicted([whole | {"notes": ""}, named, tuned | {"notes": ""}])
    peaks = [answer["peak_mem_gib"] for answer in answers]
    assert peaks[0] == peaks[1] != peaks[2]


def test_every_row_of_full_quality_is_answered_in_order() -> None:
    found = rows("inference.csv")
    answers = predicted(adapter.typed_rows("inference.csv"))
    assert [a["row_id"] for a in answers] == [r["row_id"] for r in found]
    refused = [
        a["reason"]
        for a, r in zip(answers, found, strict=True)
        if r["quality"] == "A" and a["status"] != "ok"
    ]
    assert refused == []
    other = [
        a["status"]
        for a, r in zip(answers, found, strict=True)
        if r["quality"] == "B"
    ]
    assert other.count("ok") / len(other) > 0.97


def test_a_band_holds_its_value_and_a_basis_is_named() -> None:
    for found in predicted(adapter.typed_rows("inference.csv")[::7]):
        if found["status"] != "ok":
            assert found["reason"]
            continue
        assert found["basis"] in ("measured", "calibrated", "physics", "spec")
        for name in (n for n in found if n + "_low" in found and found[n]):
            low, value, high = (
                float(found[name + x]) for x in ("_low", "", "_high")
            )
            assert 0 <= low <= value <= high
            assert value > 0


def test_models_and_accelerators_are_known_by_what_others_call_them() -> None:
    for given, name in (
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb-sxm"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("AMD Instinct MI300X", "mi300x"),
        ("Google TPU v5p", "tpu-v5p"),
        ("TPUv5e", "tpu-v5e"),
        ("Tesla T4", "t4"),
        ("V100-SXM2-32GB", "v100-32gb"),
        ("Intel Gaudi 3", "gaudi3"),
        ("Trn1", "trainium1"),
    ):
        assert resolve_gpu(given).accelerator == name
    for given, name in (
        ("Llama 3.1 405B", "llama-3.1-405b"),
        ("meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("Mixtral 8x22B", "mixtral-8x22b"),
        ("Qwen3 235B A22B", "qwen3-235b-a22b"),
        ("LLaMA-2 70B", "llama-2-70b"),
        ("GPT-3 175B", "gpt3-175b"),
        ("Llama3-8B", "llama-3-8b"),
    ):
        assert resolve_model(given).model == name


@pytest.mark.parametrize(
    ("column", "cell", "says"),
    [
        ("model", "lama-3.1-8b", "did you mean 'llama-3.1-8b'"),
        ("gpu", "H100-SXN-80GB", "did you mean 'h100-sxm-80gb'"),
        ("framework", "vLMM", "did you mean 'vllm'"),
        ("weight_precision", "fp9", "did you mean 'fp"),
        ("load_kind", "concurency", "did you mean 'concurrency'"),
        ("input_len", "-5", "not between"),
        ("input_len", "0", "not between"),
        ("output_len", "nan", "not between"),
        ("output_len", "1e12", "not between"),
        ("input_len", "many", "not a number"),
        ("concurrency", "", "concurrency is missing"),
        ("tp", "0", "not between"),
        ("gpu", "T4", "does not compute fp8"),
        ("gpu", "rtx-pro-4500-bse", "data sheet"),
        ("disagg_layout", "garbage", "not understood"),
        (
            "disagg_layout",
            "prefill 1 workers x 1 GPU (tp0 adp0 ep0); decode 1 workers x 1 GPU (tp1 adp1 ep1)",
            "not understood",
        ),
        ("n_gpus", "4", "is not n_gpus"),
        ("tp", "1.9", "not a whole number"),
        ("pp", "99", "not a multiple"),
        ("input_len", "900000", "context"),
        ("model", "llama-3.1-405b", "does not fit"),
        ("gpu", "H100-SXM-80GB 1g.11gb", "it has 1g.10gb"),
        ("gpu", "L4 1g.10gb", "it has none"),
        ("draft", "eagel", "did you mean 'eagle"),
        ("draft_tokens", "some", "not a whole number"),
        ("draft_acceptance", "1.3", "not between 0 and 1"),
        ("kv_precision", "fp16 (no flag)", "is none of auto, bf16, fp16, fp8"),
        ("version", "TensorRT 10.2.0, CUDA 12.4", "is no release"),
        ("date", "<=2026-07", "is no date"),
        ("date", "2025-13", "is no date"),
        ("backend", "pytorch", "backend is of trtllm"),
        ("benchmark", "mlperf", "did you mean 'mlperf_"),
        ("interconnect", "PCIe 4.0 x16", "is none of link, pcie"),
        ("length_spread", "uniform", "is none of fixed, narrow, wide"),
        ("serving_mode", "batch", "is none of agg, disagg"),
        ("max_sequences", "2048|128", "not a whole number"),
        ("request_count", "-1", "not between"),
        ("tp", "4|2|1", "not a whole number"),
    ],
)
def test_a_wrong_cell_refuses_its_row_and_no_other(
    column: str, cell: str, says: str
) -> None:
    first, wrong, last = predicted([row(), row(**{column: cell}), row()])
    assert (wrong["status"], first["status"], last["status"]) == (
        "refused",
        "ok",
        "ok",
    )
    assert says in wrong["reason"]
    assert first == last


def test_a_table_of_something_else_is_named_with_what_it_lacks() -> None:
    with pytest.raises(UsageError, match="no column"):
        table.predict_table("a,b\n1,2\n", "rows.csv")


def test_more_users_never_raise_the_pace_and_never_lower_the_flow() -> None:
    pace = 0.0
    flow = 0.0
    for users in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        found = predict_inference(
            row_deployment(row(concurrency=str(users)))
        ).columns
        assert found["tpot_ms_mean"].value >= pace
        assert found["output_tok_s"].value >= flow
        pace = found["tpot_ms_mean"].value
        flow = found["output_tok_s"].value


def test_a_loop_and_its_rate_agree() -> None:
    """Little's law: a closed loop's flow, offered as a rate, meets about the same batch."""
    closed = predict_inference(row_deployment(row(concurrency="32"))).columns
    rate = str(closed["req_throughput_rps"].value)
    opened = predict_inference(
        row_deployment(row(load_kind="rate", request_rate_rps=rate))
    ).columns
    assert opened["tpot_ms_mean"].value == pytest.approx(
        closed["tpot_ms_mean"].value, rel=0.1
    )


def test_weights_of_32_bits_are_read_for_twice_as_long() -> None:
    """A lone user waits for the weights; no run of the fit had such ones."""
    found = {
        precision: predict_inference(
            row_deployment(row(weight_precision=precision, concurrency="1"))
        )
        for precision in ("fp32", "bf16")
    }
    times = {
        precision: prediction.columns["tpot_ms_mean"]
        for precision, prediction in found.items()
    }
    assert 1.7 < times["fp32"].value / times["bf16"].value < 2.1
    assert found["fp32"].basis == "physics"
    assert (
        times["fp32"].high / times["fp32"].low
        > times["bf16"].high / times["bf16"].low
    )


def test_what_is_new_widens_the_band_and_weakens_the_basis() -> None:
    def width(**changes: str) -> tuple[float, str]:
        found = predict_inference(row_deployment(row(**changes)))
        number = found.columns["tpot_ms_mean"]
        return number.high / number.low, found.basis

    known, seen = width()
    family, new = width(model="gemma-2-9b", weight_precision="bf16")
    tpu = {"n_gpus": "4", "tp": "4", "weight_precision": "bf16"}
    vendor, alien = width(gpu="TPU-v5e", **tpu)
    # Of this one there are rows, which are kept apart from the fit.
    apart, kept = width(gpu="TPU-v6e", **tpu)
    assert 1.05 * known < family < vendor
    assert known < apart < vendor
    # vLLM was measured from August 2025 on.
    for version in ("0.6.0", "0.99.0"):
        release, unknown = width(version=version)
        assert 1.05 * known < release < vendor
        assert unknown == "physics"
    bases = ("calibrated", "physics", "physics", "spec")
    assert (seen, new, kept, alien) == bases


COMPLETE = [
    n
    for n, a in sorted(accelerators().items())
    if a.bandwidth_gb_s and a.bf16_tflops
]


@pytest.mark.parametrize("chip", COMPLETE)
def test_every_accelerator_with_a_data_sheet_is_predicted(chip: str) -> None:
    sheet = accelerators()[chip]
    cells = {"gpu": chip, "model": "llama-3.2-1b", "weight_precision": "bf16"}
    found = (
        predict_inference(row_deployment(row(**cells)))
        .columns["tpot_ms_mean"]
        .value
    )
    read = (
        2
        * find_model("llama-3.2-1b").params
        / (present(sheet.bandwidth_gb_s) * 1e9)
        * 1000
    )
    assert 0.9 * read < found < 25 * read + 10


def test_the_pool_matches_published_start_up_logs() -> None:
    """88 logs of vLLM 0.6 to 0.33, where they state what was to hold."""
    errors = []
    for r in rows("startup.csv"):
        try:
            model = find_model(r["model"])
            wide = int(r["tp"])
        except Exception:  # noqa: BLE001 - a model that is not in our table
            continue
        if (
            not (r["kv_gib"] and r["gpu_total_gib"] and r["max_num_seqs"])
            or "odd" in r["note"]
        ):
            continue
        card = startup.VllmAccelerator(
            total_gib=float(r["gpu_total_gib"]),
            software_year=when(r["date"]),
            memory_share=float(r["gpu_memory_utilization"] or 0.9),
        )
        step = startup.StepLimits(
            max_tokens=int(r["max_num_batched_tokens"] or 8192),
            max_sequences=int(r["max_num_seqs"]),
        )
        layout = ReplicaLayout(
            precision=r["precision"]
            if r["precision"] in ("bf16", "fp8", "mxfp4")
            else "bf16",
            kv_precision="fp8" if r["kv_precision"] == "fp8" else "bf16",
            tp=wide,
            pp=int(r["pp"] or 1),
        )
        found = startup.startup_memory(model, layout, card, step)
        if found.kv_gib > 10:
            errors.append(abs(found.kv_gib / float(r["kv_gib"]) - 1))
    assert len(errors) > 15
    assert statistics.median(errors) < 0.01


def when(date: str) -> float:
    year, month = [*date.split("-"), "6"][:2]
    return int(year) + (int(month) - 1) / 12


@pytest.mark.parametrize(
    ("name", "pool_gib", "year", "kv", "printed"),
    [
        ("gemma-3-27b", 109.86, 2026.0, "bf16", 205_696),
        ("llama-3.1-8b", 58.11, 2026.3, "bf16", 476_016),
        ("deepseek-r1", 41.60, 2026.3, "bf16", 635_648),
    ],
)
def test_the_tokens_of_a_pool_are_those_that_vllm_prints(
    name: str, pool_gib: float, year: float, kv: str, printed: int
) -> None:
    layout = ReplicaLayout(
        precision="bf16", kv_precision=kv, tp=8 if name == "deepseek-r1" else 1
    )
    found = startup.pool_tokens(
        find_model(name), layout, pool_gib * BYTES_PER_GIB, year
    )
    assert found == pytest.approx(printed, rel=0.001)


def test_a_rate_beyond_reach_is_refused_with_the_most_that_is() -> None:
    found = predicted([row(load_kind="rate", request_rate_rps="1000000")])[0]
    assert found["status"] == "refused"
    assert "cannot keep up" in found["reason"]


def most_offline() -> float:
    """Requests a second of a full batch of the usual row."""
    answer = predict_inference(row_deployment(row(load_kind="offline_max")))
    return answer.columns["req_throughput_rps"].value


def at_rate(rate: float, **cells: str) -> Estimate:
    given = row(load_kind="rate", request_rate_rps=str(rate), **cells)
    return predict_inference(row_deployment(given))


def test_a_rate_within_the_band_of_capacity_is_answered_with_a_doubt() -> None:
    most = most_offline()
    assert at_rate(0.9 * most).doubt == ""
    above = at_rate(1.2 * most)
    assert f"about {most:,.1f} requests a second" in above.doubt
    assert above.columns["req_throughput_rps"].value == pytest.approx(most)
    with pytest.raises(RefusedError, match="cannot keep up"):
        at_rate(2.0 * most)


def test_a_run_above_capacity_is_answered_by_a_full_batch_and_waits() -> None:
    most = most_offline()
    runs = [
        at_rate(load * most, n_requests="3000").columns
        for load in (0.5, 1.0, 1.2, 2.0, 20.0)
    ]
    reached = [run["req_throughput_rps"].value for run in runs]
    assert all(low <= high * 1.001 for low, high in pairwise(reached))
    assert reached[1:] == pytest.approx([reached[1]] * 4, rel=1e-6)
    assert reached[-1] <= most
    for column in ("ttft_ms_mean", "ttft_ms_p99", "e2e_ms_mean"):
        waits = [run[column].value for run in runs]
        assert waits == sorted(waits)
    # Sent all at once, half of the run is the mean wait.
    mean_s = runs[-1]["ttft_ms_mean"].value / 1000
    assert mean_s == pytest.approx(3000 / most / 2, rel=0.1)


def test_accelerators_beyond_their_link_talk_over_the_network() -> None:
    within = predict_inference(
        row_deployment(row(tp="8", n_gpus="8", model="llama-3.1-70b"))
    ).columns
    beyond = predict_inference(
        row_deployment(row(tp="16", n_gpus="16", model="llama-3.1-70b"))
    ).columns
    rack = predict_inference(
        row_deployment(
            row(tp="16", n_gpus="16", model="llama-3.1-70b", gpu="GB200")
        )
    ).columns
    assert beyond["ttft_ms_mean"].value > within["ttft_ms_mean"].value
    assert rack["tpot_ms_mean"].value < beyond["tpot_ms_mean"].value


@pytest.mark.parametrize("share", ["90", "-1", "many"])
def test_a_share_of_memory_that_cannot_be_is_refused(share: str) -> None:
    asked = {
        "row_id": "m",
        "kind": "inference_vllm_startup",
        "model": "llama-3.1-8b",
        "gpu": "H100-80GB",
        "max_model_len": "8192",
        "gpu_memory_utilization": share,
        "tp": "1",
    }
    assert predicted([asked])[0]["status"] == "refused"


def test_split_pools_pay_for_sending_the_cache_and_decode_undisturbed() -> None:
    """Decoding no longer waits for prompts; the first token waits for the cache on the network."""
    layout = "prefill 4 workers x 1 GPU (tp1 adp1 ep1); decode 1 workers x 1 GPU (tp1 adp1 ep1)"
    cells = {"input_len": "8000", "concurrency": "8"}
    together = predict_inference(row_deployment(row(**cells))).columns
    apart = predict_inference(
        row_deployment(row(disagg_layout=layout, **cells))
    ).columns
    assert apart["tpot_ms_mean"].value < together["tpot_ms_mean"].value
    alone = row_deployment(row(concurrency="1", input_len="8000"))
    sent = row_deployment(
        row(concurrency="1", input_len="8000", disagg_layout=layout)
    )
    model = alone.llm
    cache = 2 * model.layers * model.kv_heads * model.head_dim * 2 * 8000
    assert (
        sent.replica_rates().idle_prompt_s - alone.replica_rates().idle_prompt_s
        == pytest.approx(cache / (50e9 * 0.8), rel=0.01)
    )


@pytest.mark.parametrize(
    ("kind", "tokens", "acceptance", "gained", "passes"),
    [
        ("mtp", "1", "", 1.85, 1),
        ("mtp", "3", "0.5", 1.875, 3),
        ("ngram", "2", ".5", 1.75, 0),
        ("eagle3", "4", "1.0", 5, 4),
        ("eagle3", "4", "", 1, 0),
        ("mtp", "", "", 1, 0),
        ("unknown", "", "", 1, 0),
    ],
)
def test_the_gain_of_a_draft_is_the_sum_of_its_accepted_prefixes(
    kind: str, tokens: str, acceptance: str, gained: float, passes: int
) -> None:
    cells = {"draft": kind, "draft_tokens": tokens}
    found = read_draft(cells | {"draft_acceptance": acceptance})
    assert found is not None
    assert found.tokens_per_step == pytest.approx(gained)
    assert found.draft_passes == passes
    assert read_draft({"draft": "none"}) is read_draft({}) is None


def test_a_draft_speeds_up_a_small_batch_and_not_a_busy_one() -> None:
    """At batch 1 weights are read for several tokens at once; at 512 products are what counts."""

    def pace(users: int, acceptance: str = "") -> float:
        cells = {
            "concurrency": str(users),
            "gpu": "H200-SXM-141GB",
            "draft": "mtp" if acceptance else "none",
            "draft_tokens": "3",
            "draft_acceptance": acceptance,
        }
        return (
            predict_inference(row_deployment(row(**cells)))
            .columns["tpot_ms_mean"]
            .value
        )

    assert 1.7 < pace(1) / pace(1, "0.8") < 3
    assert pace(1) / pace(1, "1") < 4
    assert pace(1, "0") > pace(1)
    gain = [pace(n) / pace(n, "0.6") for n in (1, 16, 128, 512)]
    assert gain == sorted(gain, reverse=True)


def test_split_pools_at_saturation_are_as_fast_as_the_slower_one() -> None:
    def flow(workers: int, answer_len: str) -> float:
        layout = (
            f"prefill {workers} workers x 1 GPU (tp1 adp1 ep1); "
            "decode 2 workers x 1 GPU (tp1 adp1 ep1)"
        )
        cells = {
            "load_kind": "offline_max",
            "disagg_layout": layout,
            "output_len": answer_len,
        }
        return (
            predict_inference(row_deployment(row(**cells)))
            .columns["output_tok_s"]
            .value
        )

    assert flow(2, "10") == pytest.approx(
        2 * flow(1, "10"), rel=0.01
    )  # prompts are the limit
    assert flow(64, "800") == pytest.approx(flow(32, "800"))  # answers are


def test_a_slice_has_its_share_of_compute_memory_and_bandwidth() -> None:
    whole = resolve_gpu("A100-80GB-SXM")
    part = resolve_gpu("a100-80gb-sxm MIG 3g.40gb")
    assert part.memory_gib == whole.memory_gib / 2
    assert part.bandwidth_gb_s == present(whole.bandwidth_gb_s) / 2
    assert part.bf16_tflops == pytest.approx(present(whole.bf16_tflops) * 3 / 7)
    cells = {"weight_precision": "bf16", "concurrency": "1"}
    slow = predict_inference(
        row_deployment(row(gpu="a100-80gb-sxm 3g.40gb", **cells))
    )
    fast = predict_inference(row_deployment(row(gpu="a100-80gb-sxm", **cells)))
    ratio = (
        slow.columns["tpot_ms_mean"].value / fast.columns["tpot_ms_mean"].value
    )
    assert 1.5 < ratio < 2.05  # launches take as long
    assert slow.basis == "physics"
    width = [
        x.columns["tpot_ms_mean"].high / x.columns["tpot_ms_mean"].low
        for x in (slow, fast)
    ]
    assert width[0] > width[1]


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("H100 PCIe", "h100-pcie"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("H200 NVL", "h200-nvl"),
        ("L40S 48GB", "l40s"),
        ("A100 40GB", "a100-40gb-sxm"),
    ],
)
def test_accelerators_are_understood_with_spaces(
    spelled: str, name: str
) -> None:
    assert resolve_gpu(spelled).accelerator == name


def test_a_plan_and_a_table_find_the_same_room_and_pace() -> None:
    """One account of memory and one physics: Replica serves plans, Setup tables."""
    made = row_deployment(row(length_spread="wide", concurrency="1"))
    server = made.replica_rates()
    wanted = ServingLoad(
        prompt_lengths=LengthDistribution(mean_tokens=1000, p95_tokens=1000),
        answer_lengths=LengthDistribution(mean_tokens=200, p95_tokens=200),
        concurrency=1,
    )
    one = Replica(made.llm, made.layout, made.node, wanted)
    assert one.max_batch == pytest.approx(
        server.max_batch, rel=0.02
    )  # plans count whole pages
    assert decode_time(one.step_times, 8, 0.0) == pytest.approx(
        decode_time(server.step_times, 8, 0.0)
    )


def test_late_first_tokens_grow_with_the_load() -> None:
    """The 99th percentile over the mean, at a tenth and at nine tenths of capacity."""

    def far(rate: float) -> float:
        found = predict_inference(
            row_deployment(row(load_kind="rate", request_rate_rps=str(rate)))
        ).columns
        return found["ttft_ms_p99"].value / found["ttft_ms_mean"].value

    most = (
        predict_inference(row_deployment(row(load_kind="offline_max")))
        .columns["req_throughput_rps"]
        .value
    )
    assert 1 < far(0.1 * most) < far(0.9 * most)


@pytest.mark.parametrize(
    ("freedom", "share", "printed"),
    [
        (10, 0.95, 18.307),
        (10, 0.99, 23.209),
        (4, 0.99, 13.277),
        (2, 0.99, 9.210),
        (30, 0.9, 40.256),
    ],
)
def test_gamma_quantiles_match_the_printed_table_of_chi_square(
    freedom: int, share: float, printed: float
) -> None:
    assert tail.gamma_quantile(freedom, 2 * freedom, share) == pytest.approx(
        printed, rel=0.01
    )


def test_bands_of_loaded_servers_hold_what_was_measured() -> None:
    """MLPerf Server rows: near saturation a time per token is ill-conditioned."""
    found = [
        r
        for r in rows("inference.csv")
        if r["quality"] == "A" and r["scenario"] == "Server"
    ]
    for column in (
        "tpot_ms_mean",
        "ttft_ms_p99",
        "tpot_ms_p99",
        "output_tok_s",
    ):
        inside = []
        for r in found:
            number = predict_inference(
                row_deployment(adapter.serving_row(r))
            ).columns[column]
            inside.append(number.low <= float(r[column]) <= number.high)
        assert sum(inside) >= 0.85 * len(inside)


def test_late_first_tokens_of_short_loops_are_those_that_were_measured() -> (
    None
):
    """Ten requests a user: the latest hundredth is of the wave with which the run began."""
    errors = []
    inside = []
    for r in rows("inference.csv"):
        late_ms = float(r["ttft_ms_p99"] or 0)
        if r["quality"] == "A" and r["load_kind"] == "concurrency" and late_ms:
            number = predict_inference(
                row_deployment(adapter.serving_row(r))
            ).columns["ttft_ms_p99"]
            errors.append(abs(number.value / late_ms - 1))
            inside.append(number.low <= late_ms <= number.high)
    assert len(errors) == 32
    assert statistics.median(errors) < 0.3
    assert sum(inside) >= 0.85 * len(inside)


def test_every_doubling_beyond_the_measurements_widens_the_band_and_too_many_refuse() -> (
    None
):
    widths = []
    for length in (2000, 32_768, 65_536, 131_072):
        cells = {
            "model": "llama-4-scout",
            "tp": "8",
            "n_gpus": "8",
            "input_len": str(length),
            "concurrency": "1",
        }
        found = predict_inference(row_deployment(row(**cells))).columns[
            "tpot_ms_mean"
        ]
        widths.append(found.high / found.low)
    assert widths[0] == pytest.approx(widths[1])
    assert widths[1] < widths[2] < widths[3]
    far = predicted([row(concurrency="9000000")])
    assert far[0]["status"] == "refused"
    assert "far outside what was measured" in far[0]["reason"]
