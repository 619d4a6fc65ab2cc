"""Communication of sharded model states between ranks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from planner.perf.training.memory import BYTES_16BIT
from planner.perf.training.model_states import adapter_params, local_params

if TYPE_CHECKING:
    from planner.perf.training.job import Job

# Bytes that the optimizer moves for a parameter: 16 in, 18 out.
OPTIMIZER_BYTES: Final = 34.0


class ShardingTraffic(NamedTuple):
    """Communication of sharded states of one rank.

    shard_link_bytes      bytes over the link in a micro-batch
    shard_network_bytes   bytes over the network in a micro-batch
    shard_calls           collectives of a micro-batch * log2 of their ranks
    gathers_once          1 when weights are gathered once a step, else 0
    reduce_link_bytes     bytes over the link once a step
    reduce_network_bytes  bytes over the network once a step
    optimizer_bytes       memory traffic of the optimizer in a step, bytes
    """

    shard_link_bytes: float
    shard_network_bytes: float
    shard_calls: float
    gathers_once: float
    reduce_link_bytes: float
    reduce_network_bytes: float
    optimizer_bytes: float


def sharding_traffic(job: Job) -> ShardingTraffic:
    """Return the communication of sharded states by the stage of ZeRO.

             in a micro-batch                      once a step
    ZeRO-3   gather weights, scatter gradients     -
    ZeRO-2   scatter gradients                     gather weights
    ZeRO-1   -                                     scatter gradients, gather weights
    none     -                                     all-reduce gradients (the same bytes)

    With hybrid sharding the groups all-reduce their shards of the gradients once a step.
    """
    layout = job.layout
    rank_params = sum(local_params(job))
    is_fsdp = layout.sharding == "zero3"
    trained_params = adapter_params(job) if job.frozen_bytes else rank_params
    group_ranks = layout.shard_group if is_fsdp else layout.data_parallel_ranks
    # Ranks of the group in one link: tensor parallelism comes first.
    link_ranks = max(1.0, min(group_ranks, job.link_ranks / layout.tp))
    # Gathers for forward and backward, one more for a reference.
    weight_passes = 2 if job.reference == "none" else 3
    gather_bytes = (
        # Gathers of weights and a 16-bit scatter of gradients.
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
    # Ranks of a machine share what comes from other machines.
    remote_share = (1 - link_ranks / group_ranks) / link_ranks
    # Two gathers and one scatter a layer; ZeRO-2 scatters only.
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
