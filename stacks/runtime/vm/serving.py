"""What a node of a service or a batch runs: an engine with the layout and limits of the plan."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from planner.facts.mig import chip_profiles, placed
from planner.facts.serving_engine import DEFAULT_ENGINE
from stacks.runtime.vm.bench import bench_settings
from stacks.runtime.vm.container import container_settings, fabric_settings
from stacks.runtime.vm.serving_engine import (
    FIXED,
    KEY,
    engine_launches,
    expert_kernels,
)
from stacks.spec.stack import HTTPS_PORT, ROUTED_PORT, SERVING_PORT
from stacks.spec.table import lookup_table, stack_error
from stacks.spec.upload import model_upload

if TYPE_CHECKING:
    from planner.perf.common.layout import ReplicaLayout
    from planner.perf.serving.drafting import Drafting
    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.service import FleetService
    from stacks.spec.stack import StackSpec
    from stacks.spec.upload import UploadRule

# What engines call formats that checkpoints are converted to when they load them.
DTYPES: Final = {"fp16": "float16", "fp32": "float32"}
SHARE_STEPS: Final = 1000
# A share that was written in thousandths is told as it was.
ROUNDING: Final = 1e-6


def serving_work(
    stack: StackSpec,
    fleet: FleetSpec,
    group: ScalingGroup,
    layout: ReplicaLayout,
) -> dict[str, Any]:
    """Return the settings of the work of a node that serves."""
    rule = model_upload(stack.model_name)
    folder = f"/{rule.prefix.rstrip('/')}"
    launch = engine_launches()[fleet.engine]
    settings = _settings(stack, fleet, layout, _engine_port(stack))
    # An engine that asks nobody for a key leaves that to the proxy.
    api_key = "" if stack.checks_keys else stack.api_key
    return {
        "container": container_settings(
            fleet,
            fleet.engine,
            launch.program(folder),
            prelude=launch.prelude(dict(settings), has_key=bool(api_key)),
            environment=launch.environment,
        ),
        # Nodes take the engine for granted that is taken by itself.
        **({} if fleet.engine == DEFAULT_ENGINE else {"engine": fleet.engine}),
        **fabric_settings(fleet),
        "words": launch.words(settings),
        # Requests of a batch come from the machine itself.
        **({"api_key": api_key} if api_key else {}),
        "port": _engine_port(stack),
        **_router(stack, fleet),
        # Engines that hand caches over tell each other where they are.
        **({"hands_over": True} if _hands_over(stack, fleet) else {}),
        "pool": group.name,
        **_seats(fleet, group),
        **_weights(stack, rule, folder),
        # Of a batch: requests at once, and whether it ends.
        "parallel": fleet.max_batch,
        "runs_once": fleet.runs_once,
        **bench_settings(stack, fleet, layout, folder),
        **_beside(stack, fleet),
    }


def _beside(stack: StackSpec, fleet: FleetSpec) -> dict[str, Any]:
    """Return the engines beside that of the stack, and the slices of all, that first."""
    if not fleet.services:
        return {}
    engines = [
        _beside_engine(stack, fleet, service, _engine_port(stack) + number)
        for number, service in enumerate(fleet.services, 1)
    ]
    if not fleet.profile:
        return {"beside": engines}
    return {"beside": engines, "slices": _slices(fleet)}


def _slices(fleet: FleetSpec) -> list[dict[str, Any]]:
    """Return the slice of each engine, that of the stack first, at places where all fit."""
    known = {
        profile.profile: profile
        for profile in chip_profiles(fleet.instance.accelerator)
    }
    profiles = [
        known[profile]
        for profile in (
            fleet.profile,
            *(service.profile for service in fleet.services),
        )
    ]
    starts = placed(profiles)
    if starts is None:
        raise stack_error(
            "slices of the plan do not fit beside each other",
            "plan again",
        )
    return [
        {"profile": profile.profile, "start": start}
        for profile, start in zip(profiles, starts, strict=True)
    ]


def _beside_engine(
    stack: StackSpec, fleet: FleetSpec, service: FleetService, port: int
) -> dict[str, Any]:
    """Return one engine as the node starts it: as that of a stack of its own, at its port."""
    own_stack = replace(
        stack,
        model_name=service.model_name,
        hub_weights=service.hub_weights,
        weights_place=None,
    )
    own_fleet = replace(
        fleet,
        layout=service.layout,
        max_batch=service.max_batch,
        context_tokens=service.context_tokens,
        token_budget=service.token_budget,
        memory_share=service.memory_share,
        quantize_on_load=service.quantize_on_load,
    )
    rule = model_upload(service.model_name)
    folder = f"/{rule.prefix.rstrip('/')}"
    launch = engine_launches()[fleet.engine]
    settings = _settings(own_stack, own_fleet, service.layout, port)
    return {
        "name": service.name,
        "port": port,
        "container": container_settings(
            own_fleet,
            fleet.engine,
            launch.program(folder),
            prelude=launch.prelude(dict(settings), has_key=bool(stack.api_key)),
            environment=launch.environment,
        ),
        "words": launch.words(settings),
        **_weights(own_stack, rule, folder),
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


def _hands_over(stack: StackSpec, fleet: FleetSpec) -> bool:
    """Whether caches go from one pool to another; a benchmark measures a replica by itself."""
    return bool(fleet.part) and stack.benchmark is None


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
            **({"body_limit": fleet.body_limit} if fleet.body_limit else {}),
            **({"part": fleet.part} if _hands_over(stack, fleet) else {}),
            **({"key": stack.api_key} if stack.checks_keys else {}),
            **_paths(fleet),
        }
    }


def _paths(fleet: FleetSpec) -> dict[str, Any]:
    """Return the ports of the engines beside the first one, by the names in their paths."""
    if not fleet.services:
        return {}
    return {
        "beside": {
            service.name: ROUTED_PORT + number
            for number, service in enumerate(fleet.services, 1)
        }
    }


def server_words(
    stack: StackSpec, fleet: FleetSpec, layout: ReplicaLayout
) -> list[str]:
    """Return the arguments of the server: the layout, the steps and the memory of the plan."""
    settings = _settings(stack, fleet, layout, _engine_port(stack))
    return engine_launches()[fleet.engine].words(settings)


def _settings(
    stack: StackSpec, fleet: FleetSpec, layout: ReplicaLayout, port: int
) -> list[tuple[str, object]]:
    """Return all that the server is told, by the names of its launch; `port` is its own."""
    return [
        *((name, "") for name in FIXED),
        ("name", stack.model_name),
        ("port", port),
        ("tensor", layout.tp),
        ("stages", layout.pp),
        ("sequences", fleet.max_batch),
        # Stated also where it is the default, so that a later engine runs what was simulated.
        ("step", fleet.token_budget),
        ("context", fleet.context_tokens),
        ("memory", _told_share(fleet.memory_share)),
        *_format_settings(fleet, layout),
        *_replica_settings(stack, fleet, layout),
        # How caches are handed over.
        *([(fleet.part, "")] if _hands_over(stack, fleet) else []),
        *([(KEY, "")] if stack.api_key else []),
    ]


def _told_share(memory_share: float) -> str:
    """Return a share as an engine is told it: never more than the plan counts on."""
    thousandths = math.floor(memory_share * SHARE_STEPS + ROUNDING)
    return f"{thousandths / SHARE_STEPS:g}"


def _format_settings(
    fleet: FleetSpec, layout: ReplicaLayout
) -> list[tuple[str, object]]:
    """Return the formats of weights and cache."""
    settings: list[tuple[str, object]] = []
    if layout.precision in DTYPES:
        settings.append(("dtype", DTYPES[layout.precision]))
    if fleet.quantize_on_load:
        settings.append(("quantization", layout.precision))
    # What is not quantized is kept as activations are, which that format then decides.
    if layout.kv_precision == "fp8" or layout.precision not in DTYPES:
        settings.append((f"cache-{layout.kv_precision}", ""))
    # Of what is not told so the engine decides by itself.
    is_small = layout.kv_precision == "fp8"
    settings.append(("cache", layout.kv_precision if is_small else "auto"))
    kernels = expert_kernels(
        fleet.engine, layout.precision, fleet.instance.chip
    )
    settings.append(("kernels", kernels))
    return settings


def _replica_settings(
    stack: StackSpec, fleet: FleetSpec, layout: ReplicaLayout
) -> list[tuple[str, object]]:
    """Return what a machine does with its accelerators beside tensor parallelism."""
    settings: list[tuple[str, object]] = []
    data_parallel_size = fleet.instance.accelerators // layout.accelerators
    # A benchmark measures one replica, also on a machine that has room for more.
    measures_one = stack.benchmark is not None
    # Its prompts are random words, of which no guess is as right as of a text.
    if fleet.drafting is not None and not measures_one:
        settings.append(("guesses", speculative_config(fleet.drafting)))
    if not (fleet.spans_nodes or measures_one) and data_parallel_size > 1:
        settings.append(("replicas", data_parallel_size))
    if layout.ep > 1:
        settings.append(("experts", layout.ep))
    return settings


def speculative_config(drafting: Drafting) -> str:
    """Return how vLLM is told to guess, in JSON. A draft with weights of its own is fetched."""
    settings: dict[str, object] = {
        "method": drafting.method,
        "num_speculative_tokens": drafting.draft_tokens,
    }
    if drafting.repository:
        settings["model"] = drafting.repository
    return json.dumps(settings, separators=(",", ":"))
