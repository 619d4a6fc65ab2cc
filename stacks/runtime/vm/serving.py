"""What a node of a service or a batch runs: vLLM, with the layout and the limits of the plan."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from planner.perf.serving.memory import vllm_constants
from planner.perf.serving.replica import SERVING_ENGINE
from stacks.runtime.vm.bench import bench_settings
from stacks.runtime.vm.container import (
    SERVE_IMAGE,
    container_settings,
    fabric_settings,
)
from stacks.spec.stack import HTTPS_PORT, ROUTED_PORT, SERVING_PORT
from stacks.spec.table import lookup_table
from stacks.spec.upload import model_upload

if TYPE_CHECKING:
    from planner.perf.common.layout import ReplicaLayout
    from planner.perf.serving.drafting import Drafting
    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.stack import StackSpec
    from stacks.spec.upload import UploadRule

# What vLLM calls formats that checkpoints are converted to when it loads them.
DTYPES: Final = {"fp16": "float16", "fp32": "float32"}


def serving_work(
    stack: StackSpec,
    fleet: FleetSpec,
    group: ScalingGroup,
    layout: ReplicaLayout,
) -> dict[str, Any]:
    """Return the settings of the work of a node that serves."""
    rule = model_upload(stack.model_name)
    folder = f"/{rule.prefix.rstrip('/')}"
    return {
        "container": container_settings(
            fleet, SERVE_IMAGE, ["vllm", "serve", folder]
        ),
        **fabric_settings(fleet),
        "words": server_words(stack, fleet, layout),
        # Requests of a batch come from the machine itself.
        **({"api_key": stack.api_key} if stack.api_key else {}),
        "port": _engine_port(stack),
        **_router(stack, fleet),
        "pool": group.name,
        **_seats(fleet, group),
        **_weights(stack, rule, folder),
        # Of a batch: requests at once, and whether it ends.
        "parallel": fleet.max_batch,
        "runs_once": fleet.runs_once,
        **bench_settings(stack, fleet, layout, folder),
    }


def _seats(fleet: FleetSpec, group: ScalingGroup) -> dict[str, Any]:
    """Return how many nodes are a replica, and how many of these groups there are.

    A node that serves alone need not know of the others: its settings stay when the pool grows,
    and so it is not made anew.
    """
    span = fleet.nodes_per_replica
    return {
        "span": span,
        "group_count": group.nodes // span if span > 1 else 1,
    }


def _weights(stack: StackSpec, rule: UploadRule, folder: str) -> dict[str, Any]:
    """Return where the weights come from: a bucket, or Hugging Face."""
    hub, place = stack.hub_weights, stack.weights_place
    if hub is None:
        return {
            "upload": {
                "prefix": rule.prefix if place is None else place.prefix,
                "is_elsewhere": place is not None,
                "folder": folder,
                "required": list(rule.required),
            }
        }
    return {
        "hub": {
            "repository": hub.repository,
            "revision": hub.revision,
            "folder": folder,
            "secret": hub.token,
        }
    }


def _engine_port(stack: StackSpec) -> int:
    return ROUTED_PORT if stack.has_router else SERVING_PORT


def _router(stack: StackSpec, fleet: FleetSpec) -> dict[str, Any]:
    """Return what a machine knows of the router, where the stack has one."""
    if not stack.has_router:
        return {}
    return {
        "router": {
            "image": lookup_table("images.csv", "image", "reference")["router"],
            "routing": stack.routing,
            "port": SERVING_PORT,
            "engine_port": ROUTED_PORT,
            "tls_port": HTTPS_PORT if stack.machine_certificate else 0,
            "certificate": stack.machine_certificate,
            "is_public": stack.is_public,
            **({"weight": fleet.weight} if fleet.weight else {}),
        }
    }


def server_words(
    stack: StackSpec, fleet: FleetSpec, layout: ReplicaLayout
) -> list[str]:
    """Return the arguments of the server: the layout, the steps and the memory of the plan."""
    gpu_memory_share = vllm_constants(SERVING_ENGINE.software_year)["share"]
    options = {
        "--served-model-name": stack.model_name,
        "--port": _engine_port(stack),
        "--tensor-parallel-size": layout.tp,
        "--pipeline-parallel-size": layout.pp,
        "--max-num-seqs": fleet.max_batch,
        # Stated also where it is the default, so that a later engine runs what was simulated.
        "--max-num-batched-tokens": fleet.token_budget,
        "--max-model-len": fleet.context_tokens,
        "--gpu-memory-utilization": f"{gpu_memory_share:g}",
    }
    if layout.precision in DTYPES:
        options["--dtype"] = DTYPES[layout.precision]
    if fleet.quantize_on_load:
        options["--quantization"] = layout.precision
    if layout.kv_precision == "fp8":
        options["--kv-cache-dtype"] = "fp8"
    data_parallel_size = fleet.instance.accelerators // layout.accelerators
    # A benchmark measures one replica, also on a machine that has room for more.
    measures_one = stack.benchmark is not None
    # Its prompts are random words, of which no guess is as right as of a text.
    if fleet.drafting is not None and not measures_one:
        options["--speculative-config"] = speculative_config(fleet.drafting)
    if not (fleet.spans_nodes or measures_one) and data_parallel_size > 1:
        options["--data-parallel-size"] = data_parallel_size
    return [
        *(f"{option}={value}" for option, value in options.items()),
        *(["--enable-expert-parallel"] if layout.ep > 1 else []),
    ]


def speculative_config(drafting: Drafting) -> str:
    """Return how vLLM is told to guess, in JSON. A draft with weights of its own is fetched."""
    settings: dict[str, object] = {
        "method": drafting.method,
        "num_speculative_tokens": drafting.draft_tokens,
    }
    if drafting.repository:
        settings["model"] = drafting.repository
    return json.dumps(settings, separators=(",", ":"))
