"""The script that a node runs at first boot, as text. It holds no secret."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from planner.cost.lifetime import release_time
from planner.perf.serving.memory import vllm_constants
from planner.perf.serving.replica import SERVING_ENGINE
from stacks.runtime.vm.training import BUSY_FILE, rdma_devices, train_script
from stacks.shell import fill_script, read_script, write_file
from stacks.spec.stack import SERVING_PORT
from stacks.spec.table import lookup_table

if TYPE_CHECKING:
    from stacks.cloud import NodeCommands
    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.stack import StackSpec

PACKAGE: Final = "stacks.runtime.vm"
# What vLLM calls formats that checkpoints are converted to when it loads them.
DTYPES: Final = {"fp16": "float16", "fp32": "float32"}


def boot_script(
    stack: StackSpec,
    fleet: FleetSpec,
    group: ScalingGroup,
    commands: NodeCommands,
) -> str:
    """Return the first-boot script, with the service or the training job when there is one.

    The agent counts a TTL from the boot of its node; the cloud enforces the deadline of the whole
    stack from outside.
    """
    script_parts = [read_script(PACKAGE, "scripts/setup.sh")]
    if stack.idle_s or stack.ttl_s:
        script_parts += [
            write_file(
                "/opt/tonnage/agent.py", read_script(PACKAGE, "agent.py")
            ),
            write_file(
                "/etc/tonnage/agent.json",
                _agent_settings(stack, fleet, commands.give_back),
            ),
            _start_service("tonnage-agent"),
        ]
    if fleet.is_training:
        script_parts += [
            write_file(
                "/opt/tonnage/retention.py",
                read_script(PACKAGE, "retention.py"),
            ),
            write_file(
                "/opt/tonnage/train.sh",
                train_script(stack, fleet, group, commands),
            ),
            _start_service("tonnage-train"),
        ]
    elif fleet.layout is not None:
        script_parts += [
            write_file(
                "/opt/tonnage/serve.sh", _serve_script(stack, fleet, commands)
            ),
            _start_service("tonnage-serve"),
        ]
    return "".join(script_parts)


def _agent_settings(stack: StackSpec, fleet: FleetSpec, give_back: str) -> str:
    # Only one node of a group listens, so the others would look idle or broken by its port.
    has_port = fleet.is_serving and not fleet.spans_nodes
    agent_settings = {
        "idle": stack.idle_s or 0,
        "ttl": stack.ttl_s or 0,
        # The bill counts with the same times.
        "grace": int(release_time("boot_grace_s")),
        "poll": int(release_time("poll_s")),
        "port": SERVING_PORT if has_port else 0,
        "busy_file": BUSY_FILE if fleet.is_training else "",
        "give_back": give_back,
    }
    return json.dumps(agent_settings, indent=1, sort_keys=True)


def _start_service(unit: str) -> str:
    """The shell that installs a unit of systemd, and starts it now and after every boot."""
    unit_text = read_script(PACKAGE, f"scripts/{unit}.service")
    return (
        write_file(f"/etc/systemd/system/{unit}.service", unit_text)
        + f"systemctl daemon-reload && systemctl enable --now {unit}\n"
    )


def _serve_script(
    stack: StackSpec, fleet: FleetSpec, commands: NodeCommands
) -> str:
    return fill_script(
        PACKAGE,
        "scripts/serve.sh",
        {
            "model": stack.model_name,
            "image": lookup_table("images.csv", "image", "reference")["vllm"],
            "nodes_per_replica": fleet.nodes_per_replica,
            "options": rdma_devices(fleet),
            "arguments": _server_arguments(stack, fleet),
        },
        code={
            "fetch_models": commands.fetch_models,
            "list_peers": commands.list_peers,
        },
    )


def _server_arguments(stack: StackSpec, fleet: FleetSpec) -> list[str]:
    """The arguments of the server: the layout, the steps and the memory that were planned."""
    serving_layout = fleet.layout
    if serving_layout is None:
        return []
    gpu_memory_share = vllm_constants(SERVING_ENGINE.software_year)["share"]
    options = {
        "--served-model-name": stack.model_name,
        "--port": SERVING_PORT,
        "--tensor-parallel-size": serving_layout.tp,
        "--pipeline-parallel-size": serving_layout.pp,
        "--max-num-seqs": fleet.max_batch,
        # Stated also where it is the default, so that a later engine runs what was simulated.
        "--max-num-batched-tokens": fleet.token_budget,
        "--max-model-len": fleet.context_tokens,
        "--gpu-memory-utilization": f"{gpu_memory_share:g}",
    }
    if serving_layout.precision in DTYPES:
        options["--dtype"] = DTYPES[serving_layout.precision]
    if fleet.quantize_on_load:
        options["--quantization"] = serving_layout.precision
    if serving_layout.kv_precision == "fp8":
        options["--kv-cache-dtype"] = "fp8"
    data_parallel_size = (
        fleet.instance.accelerators // serving_layout.accelerators
    )
    if not fleet.spans_nodes and data_parallel_size > 1:
        options["--data-parallel-size"] = data_parallel_size
    words = [
        str(word)
        for option_and_value in options.items()
        for word in option_and_value
    ]
    if serving_layout.ep > 1:
        words.append("--enable-expert-parallel")
    return [f"/models/{stack.model_name}", *words]
