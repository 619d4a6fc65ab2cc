"""Arguments of a job, parsed by a parser with the published arguments of Megatron."""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from planner.facts.accelerator import accelerators
from planner.perf.training.job import ParallelLayout
from planner.solve.solution import TrainingRun
from providers.catalog.load import load_catalog
from stacks.runtime.vm.megatron import megatron_options
from stacks.runtime.vm.trainer import (
    job_commands,
    job_prelude,
    job_variables,
)
from tests.conftest import find, present
from tests.stacks.runtime.vm.arguments import parser_of

# Of the version in the training image, without meanings and defaults.
ARGUMENTS = "megatron_arguments.csv"
TEXT = """apiVersion: tonnage/v1
kind: Training
name: job
model: {name: MODEL}
data: {tokens: 20B, location: "s3://bucket/tokens"}
train: {method: pretrain, deadline: 30d}
"""


@cache
def run_of(model: str) -> TrainingRun:
    catalog = load_catalog()
    solution = find(catalog, TEXT.replace("MODEL", model), keep=0)
    return present(solution.training_run)


def parsed(run: TrainingRun) -> argparse.Namespace:
    options = megatron_options(run, "/data", "/checkpoints")
    words = [word for option in options for word in option.split(" ")]
    return parser_of(ARGUMENTS).parse_args(words)


def changed(
    run: TrainingRun, precision: str = "bf16", **layout: Any
) -> TrainingRun:
    first = run.layouts[0]
    job = first.job.with_layout(first.job.layout._replace(**layout))
    job = job._replace(software=replace(job.software, precision=precision))
    return replace(run, layouts=(replace(first, job=job),))


@pytest.mark.parametrize(
    "precision", ["bf16", "fp16", "fp8", "fp8row", "mxfp8", "nvfp4"]
)
@pytest.mark.parametrize("recompute", ["none", "attention", "layer", "full"])
@pytest.mark.parametrize("sharding", ["zero1", "zero2", "zero3"])
def test_every_layout_is_told_in_published_words(
    precision: str, recompute: str, sharding: str
) -> None:
    run = changed(
        run_of("llama-3.1-8b"),
        precision,
        tp=2,
        pp=2,
        vpp=2,
        dp=2,
        recompute=recompute,
        sharding=sharding,
    )
    known = parsed(run)
    assert known.bf16 or known.fp16
    assert bool(known.fp8_format) == (precision in ("fp8", "fp8row", "mxfp8"))
    assert bool(known.fp4_format) == (precision == "nvfp4")
    assert known.use_megatron_fsdp == (sharding != "zero1")
    granularity = {"none": None, "attention": "selective"}
    assert known.recompute_granularity == granularity.get(recompute, "full")
    if recompute == "layer":
        # Half of the layers of a chunk: 32 layers in 2 stages of 2 chunks.
        assert known.recompute_num_layers == 4


@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b"])
def test_a_planned_job_is_told_what_was_planned(model: str) -> None:
    run = run_of(model)
    layout: ParallelLayout = run.layouts[0].job.layout
    known = parsed(run)
    assert known.tensor_model_parallel_size == layout.tp
    assert known.pipeline_model_parallel_size == layout.pp
    assert known.context_parallel_size == layout.cp
    assert known.micro_batch_size == layout.micro
    assert known.global_batch_size == run.global_batch
    assert known.train_iters == run.optimizer_steps
    assert (known.expert_model_parallel_size or 1) == layout.ep
    sends_per_expert = known.moe_token_dispatcher_type == "alltoall"
    assert sends_per_expert == (layout.ep > 1)
    assert known.save == known.load == "/checkpoints"


# Modules of a layer of Megatron Core 0.16, and whether they are of routed experts.
MODULES = {
    "decoder.layers.3.mlp.experts.linear_fc1": True,
    "decoder.layers.3.mlp.experts.local_experts.1.linear_fc2": True,
    "decoder.layers.3.mlp.shared_experts.linear_fc1": False,
    "decoder.layers.3.self_attention.linear_qkv": False,
    "output_layer": False,
}


@pytest.mark.parametrize(
    ("precision", "of_experts"),
    [
        *itertools.permutations(["bf16", "fp8", "mxfp8", "nvfp4"], 2),
        ("fp16", "mxfp8"),
    ],
)
def test_experts_have_their_precision_in_a_file_that_the_job_finds(
    precision: str, of_experts: str, tmp_path: Path
) -> None:
    run = changed(run_of("mixtral-8x7b"), precision)
    first = run.layouts[0]
    software = replace(first.job.software, expert_precision=of_experts)
    job = first.job._replace(software=software)
    run = replace(run, layouts=(replace(first, job=job),))
    known = parsed(run)
    # Padding follows the precision of the whole model: experts in 8 or 4 bit decide.
    leading = precision if of_experts == "bf16" else of_experts
    assert bool(known.fp4_format) == (leading == "nvfp4")
    assert bool(known.fp8_format) == (leading in ("fp8", "mxfp8"))
    assert known.fp16 == (precision == "fp16")
    assert known.bf16 != known.fp16
    subprocess.run(
        ["bash", "-ec", "; ".join(job_prelude(run))],
        check=True,
        cwd=tmp_path,
        env=os.environ | job_variables(run),
    )
    told = yaml.safe_load(
        (tmp_path / known.te_precision_config_file).read_text()
    )
    recipes = {"fp8": "tensorwise", "mxfp8": "mxfp8", "nvfp4": "nvfp4"}
    for module, is_expert in MODULES.items():
        # The first pattern that matches decides (megatron/core/quantization/quant_config.py).
        matcher = next(
            x
            for x in told["matchers"].values()
            if x["enabled"] and fnmatch.fnmatch(module, x["pattern"])
        )
        recipe = told["configs"][matcher["config"]]["training_recipe"]
        wanted = of_experts if is_expert else precision
        kind = "fp4" if wanted == "nvfp4" else "fp8"
        assert recipe.get(f"{kind}_quantization_recipe") == recipes.get(wanted)
        assert bool(recipe) == (wanted not in ("bf16", "fp16"))


def test_a_job_is_started_by_hand_with_what_its_machines_set(
    tmp_path: Path,
) -> None:
    run = changed(run_of("mixtral-8x7b"), tp=2, cp=1, sharding="zero1")
    first = run.layouts[0]
    software = replace(first.job.software, expert_precision="mxfp8")
    job = first.job._replace(software=software, chip=accelerators()["h100-sxm"])
    run = replace(run, layouts=(replace(first, job=job),))
    shell = subprocess.run(
        ["bash", "-ec", "; ".join([*job_commands(run), "env -0"])],
        check=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    found = dict(x.split("=", 1) for x in shell.stdout.split("\0") if x)
    assert found.items() >= job_variables(run).items()
    assert found["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert (tmp_path / parsed(run).te_precision_config_file).is_file()


def test_a_job_in_one_precision_has_no_such_file() -> None:
    run = changed(run_of("mixtral-8x7b"), "nvfp4")
    assert parsed(run).te_precision_config_file is None
    assert job_prelude(run) == ()


@pytest.mark.parametrize(
    ("chip", "sharding", "cuts", "has_one_queue"),
    [
        ("h100-sxm", "zero1", {"tp": 2}, True),
        ("h100-sxm", "zero1", {"cp": 2}, True),
        ("h100-sxm", "zero1", {}, False),
        ("h100-sxm", "zero3", {"tp": 2}, False),
        ("b200-sxm", "zero1", {"tp": 2}, False),
    ],
)
def test_kernels_before_blackwell_have_one_queue(
    chip: str, sharding: str, cuts: dict[str, Any], has_one_queue: bool
) -> None:
    """What validate_args of Megatron Core 0.16 asserts."""
    whole: dict[str, Any] = {"tp": 1, "cp": 1, "pp": 1, "dp": 2}
    run = changed(
        run_of("llama-3.1-8b"), **(whole | cuts | {"sharding": sharding})
    )
    first = run.layouts[0]
    job = first.job._replace(chip=accelerators()[chip])
    variables = job_variables(replace(run, layouts=(replace(first, job=job),)))
    assert ("CUDA_DEVICE_MAX_CONNECTIONS" in variables) == has_one_queue
    assert variables.get("CUDA_DEVICE_MAX_CONNECTIONS", "1") == "1"


def test_words_that_megatron_does_not_know_are_refused() -> None:
    for words in (["--method", "pretrain"], ["--recompute-every", "2"]):
        with pytest.raises(ValueError, match="unrecognized"):
            parser_of(ARGUMENTS).parse_args(words)
