"""Arguments of a job, parsed by a parser with the published arguments of Megatron."""

from __future__ import annotations

import argparse
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from planner.perf.training.job import ParallelLayout
from planner.solve.solution import TrainingRun
from providers.catalog.load import load_catalog
from stacks.runtime.vm.megatron import megatron_options
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


def test_words_that_megatron_does_not_know_are_refused() -> None:
    for words in (["--method", "pretrain"], ["--recompute-every", "2"]):
        with pytest.raises(ValueError, match="unrecognized"):
            parser_of(ARGUMENTS).parse_args(words)
