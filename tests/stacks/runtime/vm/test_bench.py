"""Words of the benchmark client, parsed by a parser with the published arguments of vLLM."""

from __future__ import annotations

import pytest

from planner.facts.cloud import clouds
from stacks.runtime.vm.node.bench import PREFIX
from stacks.spec.stack import BENCH_FOLDER
from tests.stacks.runtime.vm.arguments import parser_of
from tests.stacks.runtime.vm.sandbox import SWEEP, settings_of, stack_of

# Arguments that versions before and after that of the image have in common.
ARGUMENTS = "vllm_bench_arguments.csv"


@pytest.mark.parametrize("provider", sorted(clouds()))
def test_vllm_reads_the_words_of_every_load(provider: str) -> None:
    work = settings_of(provider, "bench")["work"]
    container, runs = work["bench"]["container"], work["bench"]["runs"]
    assert container["lead"][-3:] == ["vllm", "bench", "serve"]
    assert container["image"] == work["container"]["image"]
    assert len(runs) == len(SWEEP.steps)
    for run, step in zip(runs, SWEEP.steps, strict=True):
        options = parser_of(ARGUMENTS).parse_args(run["words"])
        assert options.port == work["port"]
        assert f"--served-model-name={options.model}" in work["words"]
        assert options.tokenizer == work["container"]["lead"][-1]
        assert options.dataset_name == "random"
        assert options.random_input_len == SWEEP.prompt_tokens
        assert options.random_output_len == SWEEP.answer_tokens
        assert options.max_concurrency == step.user_count
        assert options.num_prompts == step.request_count
        assert options.ignore_eos
        assert options.save_result
        assert options.result_filename == run["name"]
        assert options.result_dir == work["bench"]["folder"]
        assert "gpu=l4" in options.metadata
    # The same prompts again would be answered from the prefix cache.
    seeds = [parser_of(ARGUMENTS).parse_args(run["words"]).seed for run in runs]
    assert len(set(seeds)) == len(seeds)


def test_only_a_benchmark_may_write_results() -> None:
    assert f"{BENCH_FOLDER}/" == PREFIX
    assert BENCH_FOLDER in stack_of("aws", "bench").written_folders
    assert BENCH_FOLDER not in stack_of("aws", "batch").written_folders
    assert "bench" not in settings_of("aws", "batch")["work"]
    assert settings_of("aws", "bench")["role"] == "bench"


def test_a_benchmark_measures_one_replica_of_a_larger_machine() -> None:
    work = settings_of("aws", "bench")["work"]
    assert not any("--data-parallel-size" in word for word in work["words"])
