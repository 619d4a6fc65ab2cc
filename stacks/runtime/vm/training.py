"""What a node of a training job runs: torchrun over all machines, and checkpoints that outlive it.

The job is train.py in the stack's bucket. It is told its layout in the words of Megatron, saves to
/models/checkpoints and starts again from the newest checkpoint there. A notice that the machine is
taken back, and the end of the service, reach it as SIGTERM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stacks.runtime.vm.megatron import job_arguments
from stacks.stack_spec import lookup_table

if TYPE_CHECKING:
    from stacks.cloud import NodeCommands
    from stacks.stack_spec import StackSpec

MASTER_PORT: Final = 29500
RDMA_FABRICS: Final = ("efa", "infiniband", "roce")
TRAIN_SCRIPT: Final = """cat > /opt/tonnage/train.sh <<'TONNAGE_TRAIN'
#!/bin/bash
until [ -f /models/train.py ]; do
  {fetch} || true
  [ -f /models/train.py ] || sleep 30
done
rank=0 leader=127.0.0.1
{meet}{shared}mkdir -p {checkpoints}
(while sleep 60; do {keep}; done) &
{watch}docker run --rm --name train --gpus all --network=host --ipc=host --ulimit memlock=-1 \\
  --stop-timeout {grace} --cap-add=IPC_LOCK {devices}-v /models:/models {volume}\\
  {environment} {image} \\
  torchrun --nnodes={nodes} --nproc-per-node={each} --node-rank=$rank \\
  --master-addr=$leader --master-port={port} /models/train.py \\
  {arguments}
done=$?
{keep}
exit $done
TONNAGE_TRAIN
cat > /etc/systemd/system/tonnage-train.service <<'TONNAGE_UNIT'
[Unit]
Description=trains the model
After=docker.service network-online.target
[Service]
ExecStart=/bin/bash /opt/tonnage/train.sh
ExecStop=/usr/bin/docker stop train
Restart=on-failure
RestartSec=15
TimeoutStopSec=120
[Install]
WantedBy=multi-user.target
TONNAGE_UNIT
systemctl daemon-reload && systemctl enable --now tonnage-train
"""
# Every node waits for all, and takes its place in the order of their addresses; the first leads,
# and those beyond the number that trains stand by until one of the others is gone.
RENDEZVOUS_SCRIPT: Final = """while :; do
  peers=$({peers}) || peers=
  rank=0 leader=$(echo "$peers" | head -n 1)
  for peer in $peers; do
    hostname -I | grep -qw "$peer" && break
    rank=$((rank + 1))
  done
  [ "$(echo "$peers" | wc -w)" -ge {nodes} ] && [ $rank -lt {nodes} ] && break
  sleep 15
done
"""
# The first node brings data and older checkpoints into the file system; the others wait for it.
SHARED_FILES_SCRIPT: Final = """mkdir -p /data
until mountpoint -q /data; do
  {mount} || true
  mountpoint -q /data || sleep 30
done
if [ "$rank" = 0 ] && [ ! -f /data/.filled ]; then
  until {fill}; do sleep 60; done
  [ ! -d /models/checkpoints ] || cp -rn /models/checkpoints /data/
  touch /data/.filled
fi
until [ -f /data/.filled ]; do sleep 15; done
"""
# The machine is taken back soon: the job saves, its checkpoint is kept, and others start again.
NOTICE_SCRIPT: Final = (
    "(until {notice}; do sleep 5; done; docker stop train; {keep}) &\n"
)


def train_script(stack_spec: StackSpec, commands: NodeCommands) -> str:
    """Return the part of the first-boot script that trains.

    Shared checkpoints are kept by the first node alone.
    """
    shares_files = stack_spec.file_system is not None
    keep_command = (
        f"[ $rank != 0 ] || {commands.save_checkpoints}"
        if shares_files
        else commands.save_checkpoints
    )
    notice_script = (
        NOTICE_SCRIPT.format(notice=commands.notice, keep=keep_command)
        if stack_spec.is_spot
        else ""
    )
    rendezvous_script = (
        RENDEZVOUS_SCRIPT.format(
            peers=commands.list_peers, nodes=stack_spec.working_nodes
        )
        if stack_spec.working_nodes > 1
        else ""
    )
    uses_rdma = (
        stack_spec.fabric_attached
        and stack_spec.instance.fabric in RDMA_FABRICS
    )
    return TRAIN_SCRIPT.format(
        fetch=commands.fetch_models,
        meet=rendezvous_script,
        keep=keep_command,
        watch=notice_script,
        checkpoints=stack_spec.checkpoint_dir,
        shared=_shared_files(stack_spec, commands) if shares_files else "",
        volume="-v /data:/data " if shares_files else "",
        nodes=stack_spec.working_nodes,
        each=stack_spec.instance.accelerators,
        port=MASTER_PORT,
        grace=lookup_table("notices.csv", "provider", "seconds")[
            stack_spec.provider
        ],
        devices="--device=/dev/infiniband " if uses_rdma else "",
        environment=" ".join(
            f"-e {variable_name}={variable_value}"
            for variable_name, variable_value in nccl_environment(
                stack_spec
            ).items()
        ),
        image=lookup_table("images.csv", "image", "reference")["train"],
        arguments=" ".join(job_arguments(stack_spec)),
    )


def _shared_files(stack_spec: StackSpec, commands: NodeCommands) -> str:
    fill_command = commands.fill_files if stack_spec.dataset_linked else "true"
    return SHARED_FILES_SCRIPT.format(
        mount=commands.mount_files.strip(), fill=fill_command
    )


def nccl_environment(stack_spec: StackSpec) -> dict[str, str]:
    """The variables of NCCL on the fabric of the site, and what makes a hang an error."""
    column_names = ["any"] + (
        [stack_spec.instance.fabric]
        if stack_spec.working_nodes > 1 and stack_spec.fabric_attached
        else []
    )
    variable_pairs = [
        variable_pair
        for column_name in column_names
        for variable_pair in lookup_table(
            "nccl.csv", "variable", column_name
        ).items()
    ]
    return {
        column_name: variable_value
        for column_name, variable_value in sorted(variable_pairs)
        if variable_value
    }
