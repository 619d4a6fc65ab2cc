"""What a training job would do on a cluster, each number with its band and what it rests on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from planner.perf.constant import constant
from planner.perf.train.band import half, rests
from planner.perf.train.mfu import mfu
from planner.solve.solution import Predicted
from planner.solve.train.cluster import DAY, EVEN

if TYPE_CHECKING:
    from planner.solve.train.cluster import Cluster


def predict(cluster: Cluster) -> dict[str, Predicted]:
    """The numbers of a run, each with its band; the duration holds with the confidence."""
    job, laid = cluster.laid.job, cluster.laid
    wide, basis = half(job), rests(job)

    def around(value: float, width: float = wide) -> Predicted:
        return Predicted(
            value, value * math.exp(-width), value * math.exp(width), basis
        )

    total, memory = job.chip.memory_gib, constant("train_memory", "counted")
    usual = cluster.usual.within(EVEN) / DAY
    lost = 1 - cluster.goodput
    return {
        "tokens_per_s_per_accelerator": around(cluster.speed),
        "step_time_s": around(laid.step.total),
        "mfu": around(mfu(job, cluster.speed)),
        "memory_gib_per_accelerator": around(laid.peak_gib, memory),
        "memory_fraction": around(laid.peak_gib / total, memory),
        "duration_days": Predicted(
            usual,
            usual * math.exp(-wide),
            max(usual * math.exp(wide), cluster.ends / DAY),
            basis,
        ),
        "goodput": Predicted(
            1 - lost, max(0.0, 1 - 4 * lost), 1 - lost / 4, "physics"
        ),
    }
