"""How a training job is started by hand, or by Slurm: ranks, variables and arguments.

What the machines of a stack run by themselves is in `training`; this is the same as data, for
those who bring their own cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.plan.types import Launch
from stacks.runtime.shell import fill_script
from stacks.runtime.vm.container import nccl_environment
from stacks.runtime.vm.trainer import (
    exports,
    job_arguments,
    job_prelude,
    job_variables,
)
from stacks.runtime.vm.training import (
    MASTER_PORT,
    argument_words,
    notice_seconds,
)

if TYPE_CHECKING:
    from stacks.spec.stack import StackSpec


def training_launch(stack: StackSpec) -> Launch | None:
    """The launch of a training job; nothing for everything else."""
    job_fleet = stack.job_fleet
    if job_fleet is None:
        return None
    ranks_per_node = job_fleet.instance.accelerators
    variables = nccl_environment(job_fleet)
    prelude: tuple[str, ...] = ()
    if stack.training_run is not None:
        variables |= job_variables(stack.training_run)
        prelude = job_prelude(stack.training_run)
    return Launch(
        world_size=job_fleet.working_nodes * ranks_per_node,
        nodes=job_fleet.working_nodes,
        ranks_per_node=ranks_per_node,
        environment=variables,
        arguments=job_arguments(stack),
        slurm=fill_script(
            "stacks.runtime.vm",
            "scripts/slurm.sh",
            {
                "name": stack.name,
                "nodes": job_fleet.working_nodes,
                "ranks_per_node": ranks_per_node,
                "master_port": MASTER_PORT,
                "grace_s": notice_seconds(stack),
                "arguments": argument_words(stack),
            },
            code={
                # The folder of the job, which has train.py, is that of all machines.
                "exports": "\n".join([*exports(variables), *prelude])
            },
        ),
    )
