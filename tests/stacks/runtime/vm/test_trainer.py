"""Arguments of a job, parsed by parsers with the published arguments of each framework."""

from __future__ import annotations

import csv
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from planner.solve.solution import JobLoader, TrainingRun
from providers.catalog.load import load_catalog
from stacks.runtime.vm.trainer import TRAINERS, job_variables, trainer_options
from stacks.runtime.vm.training import run_on_base
from tests.conftest import ROOT, find, present
from tests.stacks.runtime.vm.arguments import (
    TYPES,
    StrictParser,
    parser_of,
)

ARGUMENTS = ROOT / "tests" / "data" / "trainer_arguments.csv"
TEXT = """apiVersion: tonnage/v1
kind: Training
name: job
model: {name: MODEL}
data: {tokens: 1B, location: "s3://bucket/tokens"}
train: {method: METHOD, framework: FRAMEWORK, sequence: 4k, deadline: 60d}
"""


def truth(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


@cache
def parser(framework: str) -> StrictParser:
    """The parser of a framework, as its published classes make it, without defaults.

    A truth of Transformers takes a word or none; those of the others are flags.
    """
    made = StrictParser(allow_abbrev=False)
    with ARGUMENTS.open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            if row["framework"] != framework:
                continue
            name = row["argument"]
            if row["kind"] == "bool" and framework == "hf":
                made.add_argument(name, type=truth, nargs="?", const=True)
            elif row["kind"] == "bool":
                made.add_argument(name, action="store_true")
            else:
                choices = row["choices"].split("|") if row["choices"] else None
                made.add_argument(
                    name,
                    type=TYPES[row["type"]],
                    nargs="*" if row["kind"] == "values" else None,
                    # Axolotl's truths that may also be words are read as such.
                    choices=None if framework == "axolotl" else choices,
                )
    return made


@cache
def run_of(model: str, method: str, framework: str) -> TrainingRun:
    text = TEXT.replace("MODEL", model).replace("METHOD", method)
    solution = find(
        load_catalog(), text.replace("FRAMEWORK", framework), keep=0
    )
    return present(solution.training_run)


def parsed(run: TrainingRun) -> dict[str, Any]:
    options = trainer_options(run, "/data", "/checkpoints")
    words = [word for option in options for word in option.split(" ")]
    framework = run.layouts[0].job.software.framework
    return vars(parser(framework).parse_args(words))


def test_torchtitan_is_told_what_was_planned() -> None:
    run = run_of("llama-3.1-70b", "pretrain", "torchtitan")
    job = run.layouts[0].job
    known = parsed(run)
    degrees = {
        name: known[f"parallelism.{name}_degree"] or 1
        for name in (
            "data_parallel_shard",
            "data_parallel_replicate",
            "tensor_parallel",
            "context_parallel",
            "pipeline_parallel",
        )
    }
    product = 1
    for degree in degrees.values():
        product *= degree
    assert product == job.layout.accelerators
    assert degrees["tensor_parallel"] == job.layout.tp
    assert known["training.seq_len"] == 4096
    assert known["training.global_batch_size"] == run.global_batch
    assert known["training.steps"] == run.optimizer_steps
    assert known["checkpoint.enable"]
    assert known["compile.enable"]


def test_torchtitan_is_told_its_expert_parallelism() -> None:
    run = run_of("qwen3-30b-a3b", "pretrain", "torchtitan")
    layout = run.layouts[0].job.layout
    known = parsed(run)
    assert layout.ep > 1
    assert known["parallelism.expert_parallel_degree"] == layout.ep
    assert known["parallelism.expert_tensor_parallel_degree"] == 1
    # DeepEP has kernels of its own, which no image is known to have.
    assert known["parallelism.expert_parallel_comm_backend"] == "standard"
    assert run.layouts[0].job.software.sends_per_expert
    dense = parsed(run_of("llama-3.1-70b", "pretrain", "torchtitan"))
    assert dense["parallelism.expert_parallel_degree"] is None


@pytest.mark.parametrize("method", ["finetune", "lora", "qlora", "dpo-lora"])
@pytest.mark.parametrize("framework", ["hf", "axolotl"])
def test_trainers_of_hugging_face_are_told_the_same_batch(
    method: str, framework: str
) -> None:
    run = run_of("llama-3.1-8b", method, framework)
    job = run.layouts[0].job
    known = parsed(run)
    micro = (
        known.get("per_device_train_batch_size") or known["micro_batch_size"]
    )
    sequences = 2 if method.startswith("dpo") else 1
    step = micro * known["gradient_accumulation_steps"] * job.layout.dp
    assert step * sequences == run.global_batch
    assert known["max_steps"] == run.optimizer_steps
    assert bool(known["load_in_4bit"]) == (method == "qlora")
    assert (known["lora_r"] == 16) == (method != "finetune")
    assert known["output_dir"] == "/checkpoints"


WORKER_WORDS = {
    "megatron": "num_workers",
    "torchtitan": "training.dataloader.num_workers",
    "hf": "dataloader_num_workers",
    "axolotl": "dataloader_num_workers",
}


@pytest.mark.parametrize("framework", sorted(WORKER_WORDS))
def test_loaders_are_told_their_workers_in_published_words(
    framework: str,
) -> None:
    method = "pretrain" if framework == "megatron" else "finetune"
    run = run_of("llama-3.1-8b", method, framework)
    word = WORKER_WORDS[framework]
    assert "workers" not in " ".join(trainer_options(run, "/d", "/c"))
    loader = JobLoader(
        form="images", cores=88.0, workers=11, wanted_s=1.0, given_s=2.0
    )
    fed = replace(run, loader=loader)
    if framework == "megatron":
        options = trainer_options(fed, "/data", "/checkpoints")
        known = vars(
            parser_of("megatron_arguments.csv").parse_args(
                " ".join(options).split()
            )
        )
    else:
        known = parsed(fed)
    assert known[word] == 11


def test_a_job_is_told_its_framework() -> None:
    for framework in TRAINERS:
        method = (
            "pretrain" if framework in ("megatron", "torchtitan") else "lora"
        )
        run = run_of("llama-3.1-8b", method, framework)
        assert job_variables(run)["TONNAGE_FRAMEWORK"] == framework


def test_words_of_one_framework_are_refused_by_another() -> None:
    words = trainer_options(
        run_of("llama-3.1-8b", "lora", "hf"), "/data", "/checkpoints"
    )
    split = [word for option in words for word in option.split(" ")]
    for other in ("torchtitan", "axolotl"):
        with pytest.raises(ValueError, match=r"unrecognized|expected"):
            parser(other).parse_args(split)


# What fewer machines change: the batch of each rank, what is recomputed, how many ranks share.
OF_A_SIZE = (
    "batch",
    "accumulation",
    "checkpointing",
    "activation_checkpoint",
    "recompute",
    "selective",
    "save",
    "interval",
    "shard",
    "replicate",
    "fsdp",
)
FRAMEWORKS = {
    "megatron": ("llama-3.1-70b", "pretrain"),
    "torchtitan": ("llama-3.1-70b", "pretrain"),
    "hf": ("llama-3.1-8b", "finetune"),
    "axolotl": ("llama-3.1-8b", "lora"),
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_base_is_told_the_same_job_over_fewer_ranks(framework: str) -> None:
    """The states of an optimizer are read by other replicas, and by no other stages."""
    model, method = FRAMEWORKS[framework]
    text = TEXT.replace("MODEL", model).replace("METHOD", method)
    text = text.replace("FRAMEWORK", framework).replace("60d", "300d")
    mixed = "buy: {on_demand_base: 50%}\nwhere: {clouds: [aws]}\n"
    solution = find(load_catalog(), text + mixed, keep=0)
    run = present(solution.training_run)
    base = present(run.base)
    [pool] = solution.pools
    assert [part.nodes for part in pool.purchases] == [
        base.nodes,
        pool.nodes - base.nodes,
    ]
    whole, alone = run.layouts[0].job.layout, base.layout.job.layout
    assert alone.accelerators * pool.nodes == whole.accelerators * base.nodes
    assert (alone.tp, alone.pp, alone.cp, alone.ep, alone.vpp) == (
        (whole.tp, whole.pp, whole.cp, whole.ep, whole.vpp)
    )
    told, told_base = words_of(run), words_of(run_on_base(run, base))
    assert told_base != told
    for name in told.keys() | told_base.keys():
        if told.get(name) != told_base.get(name):
            assert any(word in name for word in OF_A_SIZE), name
    global_batches = {
        name: value for name, value in told.items() if "global" in name
    }
    assert all(told_base[name] == told[name] for name in global_batches)


def words_of(run: TrainingRun) -> dict[str, Any]:
    """What a job is told, as its framework reads it."""
    if run.layouts[0].job.software.framework == "megatron":
        options = trainer_options(run, "/data", "/checkpoints")
        words = [word for option in options for word in option.split(" ")]
        return vars(parser_of("megatron_arguments.csv").parse_args(words))
    return parsed(run)
