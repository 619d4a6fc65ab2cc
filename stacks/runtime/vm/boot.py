"""The script that a node runs at first boot, as text. It holds no secret."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from planner.perf.serving.memory import vllm_constants
from planner.perf.serving.replica import SERVING_ENGINE
from stacks.runtime.vm.training import train_script
from stacks.stack_spec import SERVING_PORT, lookup_table

if TYPE_CHECKING:
    from stacks.cloud import NodeCommands
    from stacks.stack_spec import StackSpec

SETUP_SCRIPT: Final = """#!/bin/bash
set -euo pipefail
exec > >(tee -a /var/log/tonnage.log) 2>&1
mkdir -p /etc/tonnage /opt/tonnage /models
printf '* - memlock unlimited\\n* - nofile 1048576\\n' > /etc/security/limits.d/99-tonnage.conf
if ! command -v docker >/dev/null; then
  apt-get update -q && apt-get install -qy docker.io
fi
if ! command -v nvidia-ctk >/dev/null; then
  base=https://nvidia.github.io/libnvidia-container
  curl -fsSL $base/gpgkey | gpg --dearmor -o /usr/share/keyrings/nvidia-container.gpg
  curl -fsSL $base/stable/deb/nvidia-container-toolkit.list \\
    | sed 's#deb #deb [signed-by=/usr/share/keyrings/nvidia-container.gpg] #' \\
    > /etc/apt/sources.list.d/nvidia-container.list
  apt-get update -q && apt-get install -qy nvidia-container-toolkit
  nvidia-ctk runtime configure --runtime=docker && systemctl restart docker
fi
if mountpoint -q /opt/dlami/nvme; then
  mkdir -p /opt/dlami/nvme/models && mount --bind /opt/dlami/nvme/models /models
elif ! mountpoint -q /models; then
  # Local NVMe by its exact model; else a data disk: a whole disk without partitions or a mount.
  disks=$(lsblk -dnpo NAME,MODEL | awk '
    $2 == "nvme_card" || /Amazon EC2 NVMe Instance Storage/ || /Microsoft NVMe Direct Disk/ {
      print $1
    }')
  if [ -z "$disks" ]; then
    for disk in $(lsblk -dnpo NAME,TYPE | awk '$2 == "disk" {print $1}'); do
      if [ "$(lsblk -no NAME "$disk" | wc -l)" = 1 ] && [ -z "$(lsblk -dno FSTYPE "$disk")" ]; then
        disks=$disk
      fi
    done
  fi
  if [ "$(echo $disks | wc -w)" -gt 1 ]; then
    mdadm --create /dev/md0 --level=0 --raid-devices="$(echo $disks | wc -w)" $disks --run
    disks=/dev/md0
  fi
  if [ -n "$disks" ]; then
    mkfs.ext4 -q -F $disks && mount $disks /models
  fi
fi
"""
AGENT_SCRIPT: Final = """cat > /opt/tonnage/agent.py <<'TONNAGE_AGENT'
{agent}TONNAGE_AGENT
cat > /etc/tonnage/agent.json <<'TONNAGE_SETTINGS'
{settings}
TONNAGE_SETTINGS
cat > /etc/systemd/system/tonnage-agent.service <<'TONNAGE_UNIT'
[Unit]
Description=gives this node back when it is idle or past its deadline
[Service]
ExecStart=/usr/bin/python3 /opt/tonnage/agent.py /etc/tonnage/agent.json
Restart=always
[Install]
WantedBy=multi-user.target
TONNAGE_UNIT
systemctl daemon-reload && systemctl enable --now tonnage-agent
"""
# Weights come when somebody has uploaded them, so fetching is tried until they are there.
SERVE_SCRIPT: Final = """cat > /opt/tonnage/serve.sh <<'TONNAGE_SERVE'
#!/bin/bash
until [ -f /models/{model}/config.json ]; do
  {fetch} || true
  [ -f /models/{model}/config.json ] || sleep 30
done
run="docker run --rm --gpus all --network=host --ipc=host --ulimit memlock=-1 --cap-add=IPC_LOCK
  {devices}-v /models:/models --entrypoint /bin/bash {image} -c"
{launch}
TONNAGE_SERVE
cat > /etc/systemd/system/tonnage-serve.service <<'TONNAGE_UNIT'
[Unit]
Description=serves the model
After=docker.service network-online.target
[Service]
ExecStart=/bin/bash /opt/tonnage/serve.sh
Restart=always
RestartSec=15
[Install]
WantedBy=multi-user.target
TONNAGE_UNIT
systemctl daemon-reload && systemctl enable --now tonnage-serve
"""
SINGLE_NODE: Final = """exec $run "vllm serve {arguments}\""""
# Nodes are cut into groups of the span in the order of their addresses; the first leads.
MULTI_NODE: Final = """while :; do
  peers=$({peers}) && [ "$(echo "$peers" | wc -w)" -ge {span} ] && break
  sleep 15
done
rank=0
for peer in $peers; do
  [ $((rank % {span})) = 0 ] && leader=$peer
  hostname -I | grep -qw "$peer" && break
  rank=$((rank + 1))
done
if hostname -I | grep -qw "$leader"; then
  exec $run "ray start --head --port=6379 \\
    && until [ \\$(ray status | grep -c node_) -ge {span} ]; do sleep 5; done; \\
    vllm serve {arguments} --distributed-executor-backend ray"
fi
exec $run "ray start --block --address=$leader:6379"
"""


def boot_script(stack_spec: StackSpec, commands: NodeCommands) -> str:
    """Return the first-boot script, with the service or the training job when there is one.

    The agent counts a TTL from the
    boot of its node; the cloud enforces the deadline of the whole stack from outside.
    """
    agent_settings = {
        "idle": stack_spec.idle_s or 0,
        "ttl": stack_spec.ttl_s or 0,
        # Only one node of a group listens, so the others would look idle or broken by its port.
        "port": SERVING_PORT
        if stack_spec.is_serving and not stack_spec.spans_nodes
        else 0,
        "give_back": commands.give_back,
    }
    script_parts = [SETUP_SCRIPT]
    if stack_spec.idle_s or stack_spec.ttl_s:
        agent_source = (
            files("stacks.runtime.vm")
            .joinpath("agent.py")
            .read_text(encoding="utf-8")
        )
        settings_json = json.dumps(agent_settings, indent=1, sort_keys=True)
        script_parts.append(
            AGENT_SCRIPT.format(agent=agent_source, settings=settings_json)
        )
    if stack_spec.is_training:
        script_parts.append(train_script(stack_spec, commands))
    elif stack_spec.layout is not None:
        script_parts.append(_serve_script(stack_spec, commands))
    return "".join(script_parts)


def _serve_script(stack_spec: StackSpec, commands: NodeCommands) -> str:
    uses_rdma = stack_spec.fabric_attached and stack_spec.instance.fabric in (
        "efa",
        "infiniband",
        "roce",
    )
    launch_command = (
        MULTI_NODE if stack_spec.spans_nodes else SINGLE_NODE
    ).format(
        peers=commands.list_peers,
        span=stack_spec.nodes_per_replica,
        arguments=" ".join(_server_arguments(stack_spec)),
    )
    return SERVE_SCRIPT.format(
        model=stack_spec.model_name,
        fetch=commands.fetch_models,
        launch=launch_command,
        devices="--device=/dev/infiniband " if uses_rdma else "",
        image=lookup_table("images.csv", "image", "reference")["vllm"],
    )


def _server_arguments(stack_spec: StackSpec) -> list[str]:
    """The arguments of the server: the layout and the memory that were planned."""
    serving_layout = stack_spec.layout
    if serving_layout is None:
        return []
    server_arguments = [
        f"/models/{stack_spec.model_name}",
        f"--served-model-name {stack_spec.model_name}",
        f"--port {SERVING_PORT}",
        f"--tensor-parallel-size {serving_layout.tp}",
        f"--pipeline-parallel-size {serving_layout.pp}",
        f"--max-num-seqs {stack_spec.max_batch}",
        f"--max-model-len {stack_spec.context_tokens}",
        f"--gpu-memory-utilization {vllm_constants(SERVING_ENGINE.software_year)['share']:g}",
    ]
    if stack_spec.quantize_on_load:
        server_arguments.append(f"--quantization {serving_layout.precision}")
    if serving_layout.kv_precision == "fp8":
        server_arguments.append("--kv-cache-dtype fp8")
    if serving_layout.ep > 1:
        server_arguments.append("--enable-expert-parallel")
    data_parallel_size = (
        stack_spec.instance.accelerators // serving_layout.accelerators
    )
    if not stack_spec.spans_nodes and data_parallel_size > 1:
        server_arguments.append(f"--data-parallel-size {data_parallel_size}")
    return server_arguments
