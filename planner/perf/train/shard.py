"""What sharding states over ranks moves between them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from planner.perf.train.memory import HALF
from planner.perf.train.states import adapters, owned

if TYPE_CHECKING:
    from planner.perf.train.job import Job

UPDATED: Final = (
    34.0  # bytes that the optimizer moves for a parameter: 16 in, 18 out
)


class Sharded(NamedTuple):
    """What sharding moves, in bytes: `shard` in every micro-batch, the rest once a step."""

    shard_link: float
    shard_network: float
    shard_calls: float
    once: float
    reduce_link: float
    reduce_network: float
    updated: float


def sharded(job: Job) -> Sharded:
    """What is moved for sharding, by the stage of ZeRO.

    ZeRO-3 (FSDP) gathers weights and scatters gradients in every micro-batch, ZeRO-2 scatters
    gradients alone and gathers weights once, ZeRO-1 does both once. Groups that shard for
    themselves reduce their parts of the gradients among each other, once.
    """
    s = job.spread
    own, fsdp = sum(owned(job)), s.sharding == "zero3"
    trained = adapters(job) if job.frozen else own
    group = s.among if fsdp else s.copies
    near = max(1.0, min(group, job.domain / s.tp))
    passes = 2 if job.reference == "none" else 3
    gather = (passes * job.software.gather_bytes + HALF) * own if fsdp else 0.0
    gather += HALF * trained if s.sharding == "zero2" and group > 1 else 0.0
    once = {"zero3": 0.0, "zero2": HALF}.get(s.sharding, 2 * HALF)
    reduce = once * trained if group > 1 else 0.0
    far = (1 - near / group) / near
    calls = {"zero3": 3.0, "zero2": 1.0}.get(s.sharding, 0.0)
    return Sharded(
        shard_link=gather * (1 - 1 / near),
        shard_network=gather * far,
        shard_calls=calls * math.log2(group) * job.llm.layers / s.pp,
        once=float(fsdp and s.pp > 1),
        reduce_link=reduce * (1 - 1 / near),
        reduce_network=reduce * far
        + 2 * HALF * trained / group * (1 - group / s.copies),
        updated=UPDATED * trained / (s.among if s.sharding != "none" else 1),
    )
