"""Launches of engines, parsed by a parser with the published arguments of SGLang."""

from __future__ import annotations

import json
import shlex
import subprocess
from argparse import Namespace
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from planner.estimate.benchmark import read_benchmark
from planner.facts.serving_engine import DEFAULT_ENGINE
from providers.catalog.load import load_catalog
from stacks.build import build_stack
from stacks.runtime.vm.serving import serving_work
from stacks.runtime.vm.serving_engine import engine_launches
from stacks.spec.table import lookup_table
from tests.conftest import ROOT, chat, find, only, present, spec_of
from tests.stacks.runtime.vm.arguments import parser_of
from tests.stacks.runtime.vm.sandbox import stack_of
from tests.stacks.test_build import LARGE, built, node_of

ARGUMENTS = "sglang_arguments.csv"
SGLANG = "serving: {engine: sglang}\n"


def work_of(text: str, machine: str = "g6e.xlarge") -> dict[str, Any]:
    work: dict[str, Any] = node_of(built(text, machine))["work"]
    return work


def parsed(work: dict[str, Any]) -> Namespace:
    """The arguments as the server of SGLang reads them."""
    *_, program, _, module, model = work["container"]["lead"]
    assert (program, module) == ("python3", "sglang.launch_server")
    options: Namespace = parser_of(ARGUMENTS).parse_args(
        [model, *work["words"]]
    )
    return options


def test_every_argument_of_sglang_is_published() -> None:
    launch = engine_launches()["sglang"]
    templates = [*launch.options.values(), launch.server]
    named = {
        word.partition("=")[0]
        for template in templates
        for word in template.split()
        if word.startswith("--")
    }
    known = parser_of(ARGUMENTS)._option_string_actions
    assert named
    assert named <= set(known)


def test_every_engine_has_an_image() -> None:
    images = lookup_table("images.csv", "image", "reference")
    assert set(engine_launches()) <= set(images)
    # A tag that moves would be another engine than was planned.
    assert all(
        "latest" not in images[engine] and ":" in images[engine]
        for engine in engine_launches()
    )


def test_the_server_is_told_what_was_planned() -> None:
    text = chat(extra=SGLANG)
    catalog_pool = solve_pool(text, "g6e.xlarge")
    work = work_of(text)
    options = parsed(work)
    layout = catalog_pool.layout
    assert (options.tp_size, options.pp_size) == (layout.tp, layout.pp)
    assert options.max_running_requests == catalog_pool.max_batch
    assert options.context_length == catalog_pool.context_tokens
    assert options.chunked_prefill_size == catalog_pool.token_budget
    assert options.max_prefill_tokens == catalog_pool.token_budget
    # Told in thousandths, and never more than the plan counts on.
    share = catalog_pool.memory_share
    assert share - 0.001 < options.mem_fraction_static <= share
    assert options.model_path == work["upload"]["folder"]
    assert options.served_model_name == "llama-3.1-8b"
    assert options.port == work["port"]
    # Balancers, routers and other machines ask it too.
    assert options.host == "0.0.0.0"
    assert options.enable_metrics
    assert options.api_key is None


def solve_pool(text: str, machine: str) -> Any:
    catalog = only(
        load_catalog(), lambda o: o.instance.instance_type == machine
    )
    return find(catalog, text, keep=0).pools[0]


@pytest.mark.parametrize(
    ("machine", "precision", "kv_precision", "expected"),
    [
        ("g6e.xlarge", "fp8", "bf16", (None, "fp8", "bf16")),
        ("g6e.xlarge", "bf16", "bf16", (None, None, "bf16")),
        ("g6e.xlarge", "fp8", "fp8", (None, "fp8", "fp8_e4m3")),
        # The cache has the format of activations, which is that of the weights.
        ("g6e.xlarge", "fp16", "auto", ("float16", None, None)),
    ],
)
def test_formats_are_named_as_sglang_names_them(
    machine: str,
    precision: str,
    kv_precision: str,
    expected: tuple[str | None, ...],
) -> None:
    text = chat(
        model="llama-3.2-3b",
        precision=precision,
        sla="ttft_p95: 9s",
        extra=SGLANG,
    ).replace("precision:", f"kv_precision: {kv_precision}, precision:", 1)
    options = parsed(work_of(text, machine))
    assert (
        options.dtype,
        options.quantization,
        options.kv_cache_dtype,
    ) == expected


@pytest.mark.parametrize(
    "machine", ["p5.48xlarge", "a3-megagpu-8g", "Standard_ND96isr_H100_v5"]
)
def test_a_replica_over_machines_has_the_libraries_of_their_fabric(
    machine: str,
) -> None:
    vllm, sglang = (work_of(LARGE + more, machine) for more in ("", SGLANG))
    assert parsed(sglang).pp_size > 1
    assert sglang["span"] == vllm["span"] > 1
    # The image of vLLM for EFA has them; SGLang takes them from the machine.
    mounts = {
        word
        for word in sglang["container"]["options"]
        if word not in vllm["container"]["options"]
    }
    is_efa = machine.startswith("p5")
    assert bool(mounts) == is_efa
    assert all(word.startswith("--volume=/opt/amazon/") for word in mounts)


def test_a_question_for_health_is_no_request() -> None:
    environment = work_of(chat(extra=SGLANG))["container"]["environment"]
    name = "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"
    assert environment[name] == "false"
    assert name not in work_of(chat())["container"]["environment"]


@pytest.mark.parametrize("key", ["sk-1", "0123", "yes", "a'b\"c$d #e", "'"])
def test_the_server_reads_the_key_that_clients_have(key: str, tmp_path) -> None:
    """The commands before the server, run by a shell; the file read as the server reads it."""
    endpoint = "endpoint: {api_key: 'secret://key'}\nwhere: {clouds: [aws]}\n"
    text = chat(extra=SGLANG + endpoint)
    work = work_of(text)
    options = parsed(work)
    assert work["api_key"]
    assert options.log_level == "warning"
    script = work["container"]["lead"][1]
    assert options.config in script
    path = tmp_path / "key.yaml"
    script = script.replace(options.config, str(path))
    subprocess.run(
        ["/bin/bash", "-c", script, "shell", "true"],
        env={"SGLANG_API_KEY": key},
        check=True,
    )
    assert yaml.safe_load(path.read_text()) == {"api-key": key}
    assert path.stat().st_mode & 0o077 == 0


def test_auto_is_the_engine_that_is_taken_by_itself(catalog) -> None:
    graphs = []
    for more in ("", "serving: {engine: auto}", "serving: {engine: vllm}"):
        text = chat(extra=more)
        solution = find(catalog, text, keep=0)
        assert solution.pools[0].engine == DEFAULT_ENGINE
        spec = spec_of(text)
        graphs.append(build_stack(spec, solution, spec.name).graph)
    assert graphs[0] == graphs[1] == graphs[2]


def test_a_word_of_a_launch_is_one_word() -> None:
    """No value is split or expanded on its way to the server."""
    for launch in engine_launches().values():
        [word] = launch.words([("port", "a b $c")])
        assert word.endswith("=a b $c")
        assert launch.program("/models/x")[-1].endswith("/models/x")
        assert shlex.split(launch.server) == launch.server.split()


def test_a_benchmark_says_which_engine_it_measured() -> None:
    """The client is that of vLLM; what it writes is read back with the engine of the words."""
    stack = stack_of("aws", "bench")
    sweep = present(stack.benchmark)
    fleet, group = stack.scaling_groups[0]
    for engine in engine_launches():
        measured = replace(stack, benchmark=replace(sweep, engine=engine))
        work = serving_work(
            measured,
            replace(fleet, engine=engine),
            group,
            present(fleet.layout),
        )
        client = work["bench"]["container"]
        assert client["lead"][-3:] == ["vllm", "bench", "serve"]
        metadata = dict(
            word.split("=")
            for word in work["bench"]["runs"][0]["words"]
            if not word.startswith("--")
        )
        path = ROOT / "tests" / "data" / "benchmarks" / "vllm_bench_serve.json"
        report = json.loads(path.read_text()) | metadata
        [point] = read_benchmark(json.dumps(report), "bench.json")
        assert point.framework == engine
