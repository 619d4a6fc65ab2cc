"""What a row of a table says of a training run: its framework, its release and its cores."""

from __future__ import annotations

import math
from typing import Final

import pytest

from planner.estimate.software import FRAMEWORK_KERNELS, row_software
from planner.estimate.training_row import parse_job
from planner.perf.training.error_band import (
    NEWER,
    half_widths,
    is_newer_release,
)
from planner.perf.training.framework import frameworks
from planner.perf.training.measured import (
    MIXTURE_KERNELS,
    covered_names,
    is_unseen_task,
)
from planner.spec.field import Choice
from planner.spec.field_table import block_fields
from tests.accuracy.training import (
    Batch,
    covered,
    leave,
    load,
    newer_half,
    releases,
)
from tests.planner.estimate.rows import answered

ROW: Final = {
    "row_id": "one",
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm",
    "n_gpus": "128",
    "tp": "1",
    "framework": "",
    "sharding": "zero3",
    "seq_len": "8192",
    "micro_batch": "1",
}
SHAPES: Final[tuple[dict[str, str], ...]] = (
    {},
    {"model": "llama-3.1-70b", "tp": "8", "pp": "2", "n_gpus": "64"},
    {"model": "qwen3-30b-a3b", "ep": "8"},
    {"gpu": "a100-80gb-sxm", "n_gpus": "8", "sharding": ""},
    {"gpu": "mi300x", "precision": "fp8"},
    {"gpu": "tpu-v5p", "tp": ""},
    {"gpu": "b200-sxm", "method": "lora", "n_gpus": "8"},
)


def answer(**cells: str) -> dict[str, str]:
    return answered(ROW | cells)


def speed(**cells: str) -> float:
    return float(answer(**cells)["tokens_per_s_per_gpu"])


def half_ln(**cells: str) -> float:
    found = answer(**cells)
    return math.log(
        float(found["tokens_per_s_per_gpu_high"])
        / float(found["tokens_per_s_per_gpu"])
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_a_framework_that_nobody_knows_is_never_the_best_and_wider(
    shape: dict[str, str],
) -> None:
    measured = [
        name
        for name in FRAMEWORK_KERNELS
        if ("framework", name) in covered_names()
    ]
    known = {
        name: answer(**shape, framework=name)
        for name in measured
        # Of one vendor's compiler.
        if name != "neuronx"
    }
    best = max(
        float(found["tokens_per_s_per_gpu"])
        for found in known.values()
        if found["status"] == "ok"
    )
    unknown = answer(**shape)
    assert unknown["status"] == "ok"
    assert float(unknown["tokens_per_s_per_gpu"]) < best / 1.05
    assert unknown["basis"] != "calibrated"
    assert half_ln(**shape) >= max(
        half_ln(**shape, framework=name) for name in ("nemo", "torchtitan")
    )
    # Named or not, it is as unknown.
    assert answer(**shape, framework="somebody's trainer") == unknown


@pytest.mark.parametrize(
    "framework", ["transformers", "torchtitan", "torchtune", "llm-foundry"]
)
@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_mixture_is_as_unknown_as_its_kernels_and_dense_models_are_not(
    framework: str, method: str
) -> None:
    """Of experts that run in a loop: QwenLM/Qwen3 736, where a mixture ran 5.6 times slower."""
    mixture = {"model": "qwen3-30b-a3b", "method": method}
    found = answer(**mixture, framework=framework)
    assert found["basis"] == "physics"
    # Answers have six digits.
    assert (
        half_ln(**mixture, framework=framework) > half_widths()["unseen"] - 1e-5
    )
    best = max(
        speed(**mixture, framework=name) for name in ("nemo", "megatron-lm")
    )
    assert speed(**mixture, framework=framework) < best / 1.05
    software = parse_job(ROW | mixture | {"framework": framework}).job.software
    known = parse_job(ROW | {"framework": framework}).job.software
    assert software.is_unseen
    assert not known.is_unseen
    # Fused kernels of other frameworks ran mixtures.
    assert answer(**mixture, framework="megatron-lm")["basis"] == "calibrated"


@pytest.mark.parametrize(
    ("framework", "unseen", "seen"),
    [
        ("megatron-bridge", "qlora", "lora"),
        ("transformers", "full", "lora"),
        ("llm-foundry", "lora", "full"),
    ],
)
def test_a_task_that_nobody_ran_with_such_kernels_is_unknown(
    framework: str, unseen: str, seen: str
) -> None:
    """Whoever ran another task with the same kernels has not shown this one."""
    known = answer(framework=framework, method=seen)
    unknown = answer(framework=framework, method=unseen)
    assert (known["basis"], unknown["basis"]) == ("calibrated", "physics")
    assert (
        half_ln(framework=framework, method=unseen)
        > half_widths()["unseen"] - 1e-5
    )


def test_what_is_covered_is_what_the_fitted_rows_ran() -> None:
    runs, _ = load()
    rows = {
        (row["kind"], row["name"]): row["rows"] for row in covered(Batch(runs))
    }
    assert rows.keys() == covered_names()
    mixtures = [
        run.read.job.software.kernels
        for run in runs
        if run.read.job.llm.experts and run.row["quality"] != "C"
    ]
    assert {
        name for kind, name in covered_names() if kind == MIXTURE_KERNELS
    } == set(mixtures)
    # No row that was fitted is of a task that is said to be unknown.
    assert not any(
        is_unseen_task(run.read.job.task, run.read.job.software.kernels)
        for run in runs
        if run.row["quality"] != "C"
    )


def test_a_framework_of_specs_is_as_known_in_a_table_as_in_a_plan() -> None:
    for framework in frameworks().values():
        row = ROW | {"framework": framework.trainer, "compiled": "yes"}
        job = parse_job(row).job
        software = row_software(row, job.llm, job.chip)
        assert software.kernels == framework.kernels
        assert software.is_unseen == (
            ("framework", framework.trainer) not in covered_names()
        )


@pytest.mark.parametrize("name", ["torchtitna", "Megatron-Brigde", "deepsped"])
def test_a_slip_of_the_pen_is_refused_with_the_name_that_was_meant(
    name: str,
) -> None:
    found = answer(framework=name)
    assert found["status"] == "refused"
    assert "did you mean" in found["reason"]


def test_every_method_of_a_spec_is_answered_in_a_table() -> None:
    [method_type] = [
        field.field_type
        for field in block_fields("training", "train")
        if field.name == "method"
    ]
    assert isinstance(method_type, Choice)
    methods = method_type.choices
    speeds = {
        method: speed(framework="transformers", method=method)
        for method in methods
    }
    for column in ("method", "task"):
        for method in methods:
            assert answer(framework="trl", **{column: method})["status"] == "ok"
    # A second model costs a forward pass; adapters spare gradients of weights.
    assert speeds["dpo"] < speeds["finetune"] == speeds["pretrain"]
    assert speeds["dpo-lora"] < speeds["lora"]
    assert half_ln(framework="pytorch", method="dpo") > half_ln(
        framework="pytorch"
    )
    refused = answer(framework="trl", method="grpo")
    assert refused["status"] == "refused"
    assert "dpo" in refused["reason"]


def test_a_release_after_all_measured_ones_is_as_fast_as_the_newest_and_wider() -> (
    None
):
    for shape in SHAPES[:3]:
        cells = shape | {"framework": "megatron-bridge"}
        newest = answer(**cells, version="26.08")
        later = answer(**cells, version="27.10")
        assert later["tokens_per_s_per_gpu"] == newest["tokens_per_s_per_gpu"]
        assert half_ln(**cells, version="27.10") > half_ln(
            **cells, version="26.08"
        )
        assert later["basis"] == "physics"
        # A date says nothing where the release is stated, and all where none is.
        assert answer(**cells, version="26.08", date="2027-01") == newest
    torchtitan = {"framework": "torchtitan", "compiled": "yes"}
    assert half_ln(**torchtitan, date="2027-01") > half_ln(
        **torchtitan, date="2025-06"
    )
    assert half_ln(**torchtitan) == half_ln(**torchtitan, date="2025-06")
    # No run of it that was measured states a release.
    assert half_ln(**torchtitan, version="9.9") > half_ln(**torchtitan)
    assert half_ln(**torchtitan, version="9.9", date="2025-06") == half_ln(
        **torchtitan
    )


def test_no_measured_run_is_of_a_newer_release_and_the_width_is_measured() -> (
    None
):
    runs, _ = load()
    assert not any(
        run.read.job.software.is_newer
        for run in runs
        if run.row["quality"] != "C"
    )
    for row in releases():
        if row["version"]:
            assert not is_newer_release(row["name"], "te", row["version"], 0.0)
            assert is_newer_release(
                row["name"], "te", f"{row['version']}.1", 0.0
            )
    batch = Batch(runs)
    half, rows = newer_half(batch, {"family": leave(batch, "family")})
    assert half_widths()[NEWER] == pytest.approx(half, abs=5e-4)
    assert rows > 100


@pytest.mark.parametrize(
    ("gpu", "tp", "chips"),
    [
        ("trainium1", "32", 16),
        ("trainium2", "64", 16),
        ("trainium2", "4", 1),
        ("trainium3", "64", 16),
        ("h100-sxm", "8", 8),
    ],
)
def test_tensor_parallelism_of_neuron_chips_counts_their_cores(
    gpu: str, tp: str, chips: int
) -> None:
    cells = {"gpu": gpu, "tp": tp, "framework": "neuronx", "n_gpus": "16"}
    assert parse_job(ROW | cells).job.layout.tp == chips
    assert answer(**cells)["status"] == "ok"
    # Without a count the layout says how many chips there are.
    blank = parse_job(ROW | cells | {"n_gpus": "", "dp": "2"}).job.layout
    assert blank.accelerators == 2 * chips
    # Where all degrees make up the accelerators they count these.
    whole = {"tp": "2", "dp": "8", "n_gpus": "16"}
    assert parse_job(ROW | cells | whole).job.layout.tp == 2


# What AI-Hypercomputer/tpu-recipes tells of MaxText on TPU7x in bf16: chips, batch, sequence, and
# tokens a second of a chip.
TPU7X = [
    ("deepseek-v3", 128, 2048, 4096, 2425.8),
    ("qwen3-235b-a22b", 256, 8192, 4096, 4245.9),
    ("llama-3.1-405b", 256, 1536, 8192, 499.8),
    ("llama-3.1-70b", 64, 256, 8192, 2687.0),
]


@pytest.mark.parametrize(
    ("model", "chips", "batch", "sequence", "published"), TPU7X
)
def test_a_batch_of_tpus_is_one_step(
    model: str, chips: int, batch: int, sequence: int, published: float
) -> None:
    """Nothing is accumulated unless that is stated, and then a step takes longer."""
    cells = {
        "model": model,
        "gpu": "tpu7x",
        "framework": "maxtext",
        "sharding": "zero3",
        "n_gpus": str(chips),
        "global_batch": str(batch),
        "seq_len": str(sequence),
        "precision": "bf16",
        "tp": "",
    }
    at_once = answer(**cells, micro_batch="")
    assert at_once == answer(**cells, micro_batch=str(batch // chips))
    speed = float(at_once["tokens_per_s_per_gpu"])
    assert published / 1.3 < speed < published * 1.3
    many = answer(**cells, micro_batch="", grad_accum=str(batch // chips))
    assert float(many["tokens_per_s_per_gpu"]) < speed
