"""What sharding states over ranks moves between them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from planner.perf.training.memory import BYTES_16BIT
from planner.perf.training.model_states import adapter_params, local_params

if TYPE_CHECKING:
    from planner.perf.training.job import Job

OPTIMIZER_BYTES: Final = (
    34.0  # bytes that the optimizer moves for a parameter: 16 in, 18 out
)


class ShardingTraffic(NamedTuple):
    """What sharding moves, in bytes: `shard` in every micro-batch, the rest once a step."""

    shard_link_bytes: float
    shard_network_bytes: float
    shard_calls: float
    gathers_once: float
    reduce_link_bytes: float
    reduce_network_bytes: float
    optimizer_bytes: float


def sharding_traffic(job: Job) -> ShardingTraffic:
    """What is moved for sharding, by the stage of ZeRO.

    ZeRO-3 (FSDP) gathers weights and scatters gradients in every micro-batch, ZeRO-2 scatters
    gradients alone and gathers weights once, ZeRO-1 does both once. Groups that shard for
    themselves reduce their parts of the gradients among each other, once.
    """
    layout = job.layout
    rank_params = sum(local_params(job))
    is_fsdp = layout.sharding == "zero3"
    trained_params = adapter_params(job) if job.frozen_bytes else rank_params
    group_ranks = layout.shard_group if is_fsdp else layout.data_parallel_ranks
    link_ranks = max(1.0, min(group_ranks, job.link_ranks / layout.tp))
    weight_passes = 2 if job.reference == "none" else 3
    gather_bytes = (
        (weight_passes * job.software.gather_bytes + BYTES_16BIT) * rank_params
        if is_fsdp
        else 0.0
    )
    gather_bytes += (
        BYTES_16BIT * trained_params
        if layout.sharding == "zero2" and group_ranks > 1
        else 0.0
    )
    gradient_bytes = {"zero3": 0.0, "zero2": BYTES_16BIT}.get(
        layout.sharding, 2 * BYTES_16BIT
    )
    reduce_bytes = gradient_bytes * trained_params if group_ranks > 1 else 0.0
    remote_share = (1 - link_ranks / group_ranks) / link_ranks
    layer_calls = {"zero3": 3.0, "zero2": 1.0}.get(layout.sharding, 0.0)
    return ShardingTraffic(
        shard_link_bytes=gather_bytes * (1 - 1 / link_ranks),
        shard_network_bytes=gather_bytes * remote_share,
        shard_calls=layer_calls
        * math.log2(group_ranks)
        * job.llm.layers
        / layout.pp,
        gathers_once=float(is_fsdp and layout.pp > 1),
        reduce_link_bytes=reduce_bytes * (1 - 1 / link_ranks),
        reduce_network_bytes=reduce_bytes * remote_share
        + 2
        * BYTES_16BIT
        * trained_params
        / group_ranks
        * (1 - group_ranks / layout.data_parallel_ranks),
        optimizer_bytes=OPTIMIZER_BYTES
        * trained_params
        / (layout.shard_group if layout.sharding != "none" else 1),
    )
