"""What a training job is told: its layout, in the words of Megatron."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.perf.train.job import SIXTEEN

if TYPE_CHECKING:
    from planner.perf.train.job import Spread
    from planner.solve.solution import Run

SHARDING: Final = {"zero2": "optim_grads", "zero3": "optim_grads_params"}


def arguments(run: Run, data: str, checkpoints: str) -> tuple[str, ...]:
    """The arguments of a job whose data and checkpoints lie there."""
    job = run.layouts[0].job
    s, step = job.spread, run.layouts[0].step.total
    words = {
        "tensor-model-parallel-size": s.tp,
        "pipeline-model-parallel-size": s.pp,
        "context-parallel-size": s.cp,
        "micro-batch-size": int(s.micro),
        "global-batch-size": run.batch,
        "seq-length": run.sequence,
        "train-iters": run.steps,
        "save-interval": max(1, round(run.interval / step)),
        "save": checkpoints,
        "load": checkpoints,
        "data-path": data,
        "optimizer": job.optimizer,
        "method": run.method,
    }
    if s.vpp > 1:
        words["num-virtual-stages-per-pipeline-rank"] = s.vpp
    if s.ep > 1:
        words["expert-model-parallel-size"] = s.ep
    precision = job.software.precision
    flags = [precision] if precision in SIXTEEN else [f"{precision}-format"]
    flags += _sharding(s)
    flags += ["sequence-parallel"] if s.tp > 1 else []
    every = {"full": 1, "layer": 2}.get(
        s.recompute
    )  # layers of which one is recomputed
    flags += (
        [f"recompute-granularity full --recompute-every {every}"]
        if every
        else []
    )
    return (
        *(f"--{name} {value}" for name, value in words.items()),
        *(f"--{f}" for f in flags),
    )


def _sharding(s: Spread) -> list[str]:
    """How states are sharded: Megatron's FSDP in the stages beyond the first."""
    flags, strategy = ["use-distributed-optimizer"], SHARDING.get(s.sharding)
    if strategy:
        flags += [
            "use-megatron-fsdp",
            f"data-parallel-sharding-strategy {strategy}",
            "no-gradient-accumulation-fusion",
            "ckpt-format fsdp_dtensor",
        ]
    if s.shard:
        flags.append(
            f"num-distributed-optimizer-instances {s.copies // s.shard}"
        )
    return flags
