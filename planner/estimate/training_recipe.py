"""The shortest run of a planned training that is worth measuring: few machines, few steps."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.numeric import EVEN_ODDS
from planner.perf.common.constant import constant
from planner.perf.training.coefficients import training_coefficients
from planner.perf.training.framework import frameworks
from planner.perf.training.memory import memory_room_gib, peak_gib
from planner.perf.training.step import step_time
from planner.perf.training.work import rank_work
from planner.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE

if TYPE_CHECKING:
    from planner.perf.training.job import Job
    from planner.solve.solution import SizedPool, Solution, TrainingRun

STEPS: Final = 30  # steps of a run, of which the first ten warm up
# Methods that a table names as a spec does; the others train all weights.
METHODS: Final = ("lora", "qlora", "dpo", "dpo-lora")


class TrainingRecipe(Struct, frozen=True, kw_only=True):
    """A short run of a planned job.

    run      the run on fewer machines, for so many steps
    nodes    machines
    minutes  boot and steps
    row      its row of a table of runs, the measured cell left blank
    """

    run: TrainingRun
    instance_type: str
    nodes: int
    minutes: float
    usd: Decimal
    row: dict[str, str]


def shortest_run(solution: Solution) -> TrainingRecipe | None:
    """Return the planned job on as few machines as its layout fits; None without a job.

    Tensor, pipeline, context and expert parallelism stay as planned, and each rank has as many
    micro-batches, so what is learned holds for the plan.
    """
    run = solution.training_run
    pool = next((x for x in solution.pools if x.role == "train"), None)
    if run is None or pool is None:
        return None
    small_job = _fewest_ranks(run.layouts[0].job, pool)
    step_s = step_time(
        rank_work(small_job), training_coefficients(small_job)
    ).total
    nodes = small_job.layout.accelerators // pool.instance.accelerators
    minutes = (constant("boot") + STEPS * step_s) / SECONDS_PER_MINUTE
    node_hours = nodes * minutes * SECONDS_PER_MINUTE / SECONDS_PER_HOUR
    dearest_usd = max(part.usd_hour for part in pool.purchases)
    return TrainingRecipe(
        run=replace(
            run,
            layouts=(replace(run.layouts[0], job=small_job),),
            optimizer_steps=STEPS,
            global_batch=int(small_job.global_batch),
        ),
        instance_type=pool.instance.instance_type,
        nodes=nodes,
        minutes=minutes,
        usd=dearest_usd * Decimal(node_hours),
        row=_table_row(small_job, run.method),
    )


def _fewest_ranks(job: Job, pool: SizedPool) -> Job:
    """Return the job with the least data parallelism that fills machines and fits memory."""
    layout = job.layout
    batch_per_rank = job.global_batch / layout.dp
    for dp in range(1, layout.dp):
        small = job.with_layout(layout._replace(dp=dp, shard_size=0))._replace(
            global_batch=batch_per_rank * dp
        )
        stage_ranks = layout.tp * layout.cp * dp
        if (
            layout.dp % dp == 0
            and small.layout.accelerators % pool.instance.accelerators == 0
            and stage_ranks % layout.ep == 0
            and peak_gib(small) <= memory_room_gib(small, EVEN_ODDS)
        ):
            return small
    return job


def _table_row(job: Job, method: str) -> dict[str, str]:
    layout = job.layout
    framework = frameworks()[job.software.framework]
    cells: dict[str, object] = {
        "model": job.llm.model,
        "gpu": job.chip.accelerator,
        "framework": framework.trainer,
        "compiled": "yes" if framework.kernels == "compiled" else "",
        "method": method if method in METHODS else "full",
        "precision": job.software.precision,
        "expert_precision": job.software.expert_precision,
        "n_gpus": layout.accelerators,
        "tp": layout.tp,
        "pp": layout.pp,
        "vpp": layout.vpp,
        "cp": layout.cp,
        "ep": layout.ep,
        "dp": layout.dp,
        "sharding": layout.sharding,
        "recompute": layout.recompute,
        "optimizer": job.optimizer,
        "seq_len": job.sequence_tokens,
        "micro_batch": int(layout.micro),
        "global_batch": math.ceil(job.global_batch),
        "step_time_s": "",
    }
    return {column: str(cell) for column, cell in cells.items()}
