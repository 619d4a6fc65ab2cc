"""How a training job is started by hand, or by Slurm: ranks, variables and arguments.

What the machines of a stack run by themselves is in `training`; this is the same as data, for
those who bring their own cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.plan.types import Launch
from stacks.runtime.vm.megatron import job_arguments
from stacks.runtime.vm.training import MASTER_PORT, nccl_environment
from stacks.stack_spec import lookup_table

if TYPE_CHECKING:
    from stacks.stack_spec import StackSpec

# Slurm tells only the batch shell of the coming end, so that shell passes it on to all ranks.
SLURM_SCRIPT: Final = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={each}
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --signal=B:TERM@{grace}
{exports}
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes="$SLURM_NNODES" --nproc-per-node={each} \\
  --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$head:{port}" train.py \\
  {arguments} &
trap 'kill -TERM %1; wait %1' TERM
wait %1
"""


def training_launch(stack_spec: StackSpec) -> Launch | None:
    """The launch of a training job; nothing for everything else."""
    if not stack_spec.is_training:
        return None
    ranks_per_node = stack_spec.instance.accelerators
    nccl_variables = nccl_environment(stack_spec)
    return Launch(
        world_size=stack_spec.working_nodes * ranks_per_node,
        nodes=stack_spec.working_nodes,
        ranks_per_node=ranks_per_node,
        environment=nccl_variables,
        arguments=job_arguments(stack_spec),
        slurm=SLURM_SCRIPT.format(
            name=stack_spec.name,
            nodes=stack_spec.working_nodes,
            each=ranks_per_node,
            port=MASTER_PORT,
            grace=lookup_table("notices.csv", "provider", "seconds")[
                stack_spec.provider
            ],
            exports="\n".join(
                f"export {variable_name}={variable_value}"
                for variable_name, variable_value in nccl_variables.items()
            ),
            arguments=" ".join(job_arguments(stack_spec)),
        ),
    )
