"""The script that a node runs at first boot, as text. It holds no secret."""

from __future__ import annotations

import base64
import json
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from stacks.site import PORT, table

if TYPE_CHECKING:
    from stacks.site import Site

VLLM_PRECISION: Final = {"fp8": "fp8", "int4": "awq", "int8": "compressed-tensors"}

HEAD: Final = """#!/bin/bash
set -euo pipefail
exec > >(tee -a /var/log/tonnage.log) 2>&1
mkdir -p /etc/tonnage /opt/tonnage /models
printf '* - memlock unlimited\\n* - nofile 1048576\\n' > /etc/security/limits.d/99-tonnage.conf
disks=$(lsblk -dnpo NAME,MODEL | awk '/Instance Storage|nvme_card|NVMe Direct/ {print $1}')
if [ -n "$disks" ] && ! mountpoint -q /models; then
  count=$(echo "$disks" | wc -w)
  if [ "$count" -gt 1 ]; then
    mdadm --create /dev/md0 --level=0 --raid-devices="$count" $disks --run
    disks=/dev/md0
  fi
  mkfs.ext4 -q -F $disks && mount $disks /models
fi
"""
AGENT: Final = """cat > /opt/tonnage/agent.py <<'TONNAGE_AGENT'
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
SERVE: Final = """{fetch}
docker run -d --restart=always --name serve --gpus all --network=host --ipc=host \\
  --ulimit memlock=-1 --cap-add=IPC_LOCK {devices}-v /models:/models \\
  {image} {arguments}
"""
RAY: Final = """{fetch}
peers=$({peers})
leader=$(echo "$peers" | head -n 1)
run="docker run -d --restart=always --gpus all --network=host --ipc=host --ulimit memlock=-1
  --cap-add=IPC_LOCK {devices}-v /models:/models --entrypoint /bin/bash {image} -c"
if hostname -I | grep -qw "$leader"; then
  $run "ray start --head --port=6379 && vllm serve {arguments}"
else
  $run "ray start --block --address=$leader:6379"
fi
"""


def script(site: Site, cloud: dict[str, str]) -> str:
    """Return the first-boot script.

    `cloud` holds the commands that differ by cloud: give_back (end this node), fetch (weights to
    /models), peers (addresses of the fleet, the leader first). The agent counts a TTL from the
    boot of its node; the cloud enforces the deadline of the whole stack from outside.
    """
    settings = {
        "idle": site.idle or 0,
        "ttl": site.ttl or 0,
        "port": PORT if site.served else 0,
        "give_back": cloud["give_back"],
    }
    parts = [HEAD]
    if site.idle or site.ttl:
        source = files("stacks.node").joinpath("agent.py").read_text(encoding="utf-8")
        body = json.dumps(settings, indent=1, sort_keys=True)
        parts.append(AGENT.format(agent=source, settings=body))
    if site.layout is not None:
        parts.append(_serve(site, cloud))
    return "".join(parts)


def encoded(text: str) -> str:
    """Encode a script as AWS and Azure want it."""
    return base64.b64encode(text.encode()).decode()


def _serve(site: Site, cloud: dict[str, str]) -> str:
    devices = "--device=/dev/infiniband " if site.fabric and site.instance.gpudirect_rdma else ""
    template = RAY if site.together else SERVE
    return template.format(
        fetch=cloud["fetch"], peers=cloud["peers"], devices=devices,
        image=table("images.csv", "image", "reference")["vllm"],
        arguments=" ".join(_arguments(site)),
    )  # fmt: skip


def _arguments(site: Site) -> list[str]:
    """The arguments of the server, from the layout that was planned."""
    layout = site.layout
    if layout is None:
        return []
    found = [
        f"--model /models/{site.model}", f"--served-model-name {site.model}", f"--port {PORT}",
        f"--tensor-parallel-size {layout.tp}", f"--pipeline-parallel-size {layout.pp}",
        f"--max-num-seqs {site.max_batch}",
    ]  # fmt: skip
    if layout.precision in VLLM_PRECISION:
        found.append(f"--quantization {VLLM_PRECISION[layout.precision]}")
    if layout.kv_precision == "fp8":
        found.append("--kv-cache-dtype fp8")
    if layout.ep > 1:
        found.append("--enable-expert-parallel")
    if site.context:
        found.append(f"--max-model-len {site.context}")
    copies = site.instance.accelerators // layout.accelerators
    if not site.together and copies > 1:
        found.append(f"--data-parallel-size {copies}")
    return found
