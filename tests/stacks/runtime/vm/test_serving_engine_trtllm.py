"""The launch of TensorRT-LLM, held against what its release publishes."""

from __future__ import annotations

import csv
import subprocess
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.facts.accelerator import accelerators
from planner.perf.serving.weight_format import has_weight_format
from providers.catalog.load import load_catalog
from stacks.runtime.vm.serving_engine import engine_launches, expert_kernels
from stacks.spec.stack import ROUTED_PORT, SERVING_PORT
from tests.conftest import ROOT, chat, find, only
from tests.stacks.runtime.vm.arguments import parser_of
from tests.stacks.test_build import built, node_of

ARGUMENTS = "trtllm_arguments.csv"
TRTLLM = "serving: {engine: tensorrt-llm}\n"
MACHINE = "g6e.xlarge"
OPTION_TYPES = {"bool": bool, "int": int, "float": float, "text": str}


def settings_of(text: str, machine: str = MACHINE) -> dict[str, Any]:
    return node_of(built(text, machine))


def work_of(text: str, machine: str = MACHINE) -> dict[str, Any]:
    work: dict[str, Any] = settings_of(text, machine)["work"]
    return work


def parsed(work: dict[str, Any]) -> Namespace:
    """The arguments as the server reads them."""
    *_, program, command, _ = work["container"]["lead"]
    assert (program, command) == ("trtllm-serve", "serve")
    options: Namespace = parser_of(ARGUMENTS).parse_args(work["words"])
    return options


def options_file(work: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The settings that the commands before the server write, run by a shell."""
    path = folder / "options.yaml"
    script = work["container"]["lead"][1]
    named = parsed(work).extra_llm_api_options
    assert f">{named}" in script
    subprocess.run(
        ["/bin/bash", "-c", script.replace(named, str(path)), "shell", "true"],
        check=True,
    )
    read: dict[str, Any] = yaml.safe_load(path.read_text())
    return read


def published_options() -> dict[str, str]:
    path = ROOT / "tests" / "data" / "trtllm_options.csv"
    with path.open(encoding="utf-8") as stream:
        return {row["option"]: row["type"] for row in csv.DictReader(stream)}


def flat(options: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def test_every_argument_is_published() -> None:
    launch = engine_launches()["trtllm"]
    named = {
        word.partition("=")[0]
        for template in launch.options.values()
        for word in template.split()
    }
    assert len(named) > 8
    assert named <= set(parser_of(ARGUMENTS)._option_string_actions)


@pytest.mark.parametrize("kv_precision", ["auto", "fp8"])
def test_every_setting_of_the_file_is_published(
    tmp_path: Path, kv_precision: str
) -> None:
    text = chat(precision=f"bf16, kv_precision: {kv_precision}", extra=TRTLLM)
    options = flat(options_file(work_of(text), tmp_path))
    known = published_options()
    assert len(options) > 4
    for name, value in options.items():
        assert type(value) is OPTION_TYPES[known[name]], name


def test_the_server_is_told_what_was_planned(tmp_path: Path) -> None:
    text = chat(extra=TRTLLM)
    catalog = only(
        load_catalog(), lambda o: o.instance.instance_type == MACHINE
    )
    [pool] = find(catalog, text, keep=0).pools
    work = work_of(text)
    options = parsed(work)
    layout = pool.layout
    assert layout is not None
    assert (options.tp_size, options.pp_size) == (layout.tp, layout.pp)
    assert options.max_batch_size == pool.max_batch
    assert options.max_seq_len == pool.context_tokens
    assert options.max_num_tokens == pool.token_budget
    share = pool.memory_share
    told = options.kv_cache_free_gpu_memory_fraction
    assert share - 0.001 < told <= share
    assert options.backend == "pytorch"
    # Balancers, routers and other machines ask it too.
    assert options.host == "0.0.0.0"
    assert options.port == work["port"] == SERVING_PORT
    assert work["engine"] == "trtllm"
    settings = options_file(work, tmp_path)
    # The block of the file stands in place of arguments: it must not undo them.
    assert settings["kv_cache_config"] == {
        "dtype": "auto",
        "free_gpu_memory_fraction": told,
    }
    assert settings["cuda_graph_config"] == {
        "enable_padding": True,
        "max_batch_size": pool.max_batch,
    }


@pytest.mark.parametrize(
    ("precision", "chip", "kernels"),
    [
        ("bf16", "l40s", "CUTLASS"),
        ("fp8", "h200-sxm", "CUTLASS"),
        ("fp8", "b200-sxm", "DEEPGEMM"),
        ("fp4", "b200-sxm", "TRTLLM"),
        ("mxfp4", "b300-sxm", "TRTLLM"),
    ],
)
def test_experts_have_the_kernels_of_the_accelerator(
    precision: str, chip: str, kernels: str
) -> None:
    accelerator = accelerators()[chip]
    assert expert_kernels("trtllm", precision, accelerator) == kernels
    assert expert_kernels("vllm", precision, accelerator) == ""


def test_whatever_is_planned_has_kernels_for_experts() -> None:
    planned = 0
    for accelerator in accelerators().values():
        for precision in ("bf16", "fp8", "fp4", "mxfp4"):
            if has_weight_format("trtllm", accelerator, precision):
                planned += 1
                assert expert_kernels("trtllm", precision, accelerator)
    assert planned > 10


def test_clients_call_the_model_by_the_name_of_its_folder() -> None:
    """The release has no argument for the name: it takes that of the folder."""
    work = work_of(chat(extra=TRTLLM))
    *_, folder = work["container"]["lead"]
    assert folder == work["upload"]["folder"]
    assert Path(folder).name == "llama-3.1-8b"


@pytest.mark.parametrize(
    ("model", "precision", "machine", "dtype"),
    [
        ("llama-3.1-8b", "bf16", "g6e.xlarge", "auto"),
        ("llama-3.1-8b", "bf16, kv_precision: fp8", "g6e.xlarge", "fp8"),
        ("deepseek-r1", "fp8", "p5en.48xlarge", "fp8"),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "auto", "p5.4xlarge", "fp8"),
    ],
)
def test_a_cache_is_asked_for_as_it_was_planned(
    tmp_path: Path, model: str, precision: str, machine: str, dtype: str
) -> None:
    text = chat(
        model=model, precision=precision, sla="ttft_p95: 9s", extra=TRTLLM
    )
    work = work_of(text, machine)
    assert options_file(work, tmp_path)["kv_cache_config"]["dtype"] == dtype
    # Nothing asks the server to make other weights of them.
    assert not any("quant" in word for word in work["words"])


def test_the_proxy_asks_for_the_key_that_the_engine_does_not_ask_for() -> None:
    endpoint = "endpoint: {api_key: 'secret://key'}\nwhere: {clouds: [aws]}\n"
    closed = work_of(chat(extra=TRTLLM + endpoint))
    assert closed["router"]["key"] == "key"
    assert closed["router"]["port"] == SERVING_PORT
    # No client comes to this port: the network lets in those of the proxy alone.
    assert closed["port"] == ROUTED_PORT
    assert "api_key" not in closed
    assert not any("key" in word for word in closed["container"]["lead"])
    asked = work_of(chat(extra=endpoint))
    assert asked["api_key"] == "key"
    assert "router" not in asked
    assert "router" not in work_of(chat(extra=TRTLLM))
