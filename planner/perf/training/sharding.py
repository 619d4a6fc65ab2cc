"""Communication of sharded model states between ranks."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from planner.perf.common.constant import constant
from planner.perf.training.memory import BYTES_16BIT
from planner.perf.training.model_states import adapter_params, local_params
from planner.perf.training.rank_group import (
    dense_shard_group,
    expert_shard_group,
    replica_group,
)

if TYPE_CHECKING:
    from planner.perf.training.job import Job
    from planner.perf.training.rank_group import RankGroup

# Bytes that the optimizer moves for a parameter: 16 in, 18 out.
OPTIMIZER_BYTES: Final = 34.0
PARAMS_PER_MILLION: Final = 1e6
# Collectives of a layer in a micro-batch: two gathers and one scatter, or the scatter alone.
LAYER_CALLS: Final = {"zero3": 3.0, "zero2": 1.0}
# Those of a bucket of gradients once a step: the gather of ZeRO-2; else a scatter and a gather,
# which an all-reduce is too.
STEP_CALLS: Final = {"zero3": 0.0, "zero2": 1.0}
SUM_CALLS: Final = 2.0


class ShardingTraffic(NamedTuple):
    """Communication of sharded states of one rank.

    shard_link_bytes      bytes over the link in a micro-batch
    shard_network_bytes   bytes over the network in a micro-batch
    shard_calls           collectives of a micro-batch * doublings of their ranks on a link
    shard_latency_s       latency of the network in the collectives of a micro-batch, s
    gathers_once          1 when weights are gathered once a step, else 0
    reduce_link_bytes     bytes over the link once a step
    reduce_network_bytes  bytes over the network once a step
    reduce_latency_s      latency of the network in the collectives once a step, s
    optimizer_bytes       memory traffic of the optimizer in a step, bytes
    """

    shard_link_bytes: float
    shard_network_bytes: float
    shard_calls: float
    shard_latency_s: float
    gathers_once: float
    reduce_link_bytes: float
    reduce_network_bytes: float
    reduce_latency_s: float
    optimizer_bytes: float

    def at_latency(self, network_latency_s: float) -> ShardingTraffic:
        """Return traffic that was counted at a latency of 1 s at another one, in seconds."""
        *gathers, shard_s, once, link_bytes, network_bytes, reduce_s, rest = (
            self
        )
        # Searches make many: this takes half as long as `_replace`.
        return ShardingTraffic._make(
            (
                *gathers,
                shard_s * network_latency_s,
                once,
                link_bytes,
                network_bytes,
                reduce_s * network_latency_s,
                rest,
            )
        )


class _StatePart(Struct, frozen=True):
    """Parameters of a rank that one group of ranks shards.

    held_params     parameters of the rank, without adapters
    trained_params  those of them with gradients
    call_layers     layers of a stage with such parameters
    group           ranks that shard their states
    """

    held_params: float
    trained_params: float
    call_layers: float
    group: RankGroup


def sharding_traffic(job: Job) -> ShardingTraffic:
    """Return the communication of sharded states by the stage of ZeRO.

             in a micro-batch                      once a step
    ZeRO-3   gather weights, scatter gradients     -
    ZeRO-2   scatter gradients                     gather weights
    ZeRO-1   -                                     scatter gradients, gather weights
    none     -                                     all-reduce gradients (the same bytes)

    Frozen weights have no gradients. With hybrid sharding the groups all-reduce their shards of
    the gradients once a step. Experts are sharded by the ranks that have the same ones.
    """
    sharding = job.layout.sharding
    parts = _state_parts(job)
    gathered_link = gathered_network = reduced_link = reduced_network = 0.0
    link_calls = network_calls = reduce_calls = optimizer_params = 0.0
    step_calls = STEP_CALLS.get(sharding, SUM_CALLS)
    # One pass without generators: a search counts the traffic of thousands of partitions.
    for part in parts:
        group = part.group
        gathered_bytes = _gathered_bytes(job, part)
        gathered_link += gathered_bytes * group.link_share
        gathered_network += gathered_bytes * group.network_share
        reduced_bytes = _reduced_bytes(job, part)
        reduced_link += reduced_bytes * group.link_share
        reduced_network += reduced_bytes * group.network_share
        reduce_calls += step_calls * _buckets(part) * group.network_doublings
        link_calls += part.call_layers * group.link_doublings
        network_calls += part.call_layers * group.network_doublings
        optimizer_params += part.trained_params / (
            group.size if sharding != "none" else 1
        )
    if job.layout.shard_size:
        replicas = replica_group(job)
        summed_bytes = sum(map(_summed_bytes, parts))
        reduced_link += summed_bytes * replicas.link_share
        reduced_network += summed_bytes * replicas.network_share
        reduce_calls += (
            SUM_CALLS * sum(map(_buckets, parts)) * replicas.network_doublings
        )
    layer_calls = LAYER_CALLS.get(sharding, 0.0)
    return ShardingTraffic(
        shard_link_bytes=gathered_link,
        shard_network_bytes=gathered_network,
        shard_calls=layer_calls * link_calls,
        shard_latency_s=layer_calls * job.network_latency_s * network_calls,
        gathers_once=float(sharding == "zero3" and job.keeps_gathered),
        reduce_link_bytes=reduced_link,
        reduce_network_bytes=reduced_network,
        reduce_latency_s=job.network_latency_s * reduce_calls,
        optimizer_bytes=OPTIMIZER_BYTES * optimizer_params,
    )


def _state_parts(job: Job) -> list[_StatePart]:
    """Return the parameters of a rank by the group that shards them."""
    dense_params, expert_params = local_params(job)
    stage_layers = job.llm.layers / job.layout.pp
    trained = (
        (adapter_params(job), 0.0)
        if job.frozen_bytes
        else (dense_params, expert_params)
    )
    dense_part = _StatePart(
        dense_params, trained[0], stage_layers, dense_shard_group(job)
    )
    if not expert_params:
        return [dense_part]
    expert_part = _StatePart(
        expert_params,
        trained[1],
        # Experts that are copied as the rest is travel in the same collectives.
        job.llm.moe_layers / job.layout.pp if job.layout.ep > 1 else 0.0,
        expert_shard_group(job),
    )
    return [dense_part, expert_part]


def _gathered_bytes(job: Job, part: _StatePart) -> float:
    """Return the bytes of whole tensors that pass in a micro-batch."""
    if job.layout.sharding == "zero3":
        # Gathers for forward and backward, one more for a reference.
        weight_passes = 2 if job.reference == "none" else 3
        return (
            weight_passes * _weight_bytes(job, part)
            + BYTES_16BIT * part.trained_params
        )
    return (
        BYTES_16BIT * part.trained_params
        if job.layout.sharding == "zero2" and part.group.size > 1
        else 0.0
    )


def _weight_bytes(job: Job, part: _StatePart) -> float:
    """Return the bytes of the whole weights that a gather brings.

    Frozen ones are gathered as they are stored, and what is trained beside them in 16 bits.
    """
    if not job.frozen_bytes:
        return job.software.gather_bytes * part.held_params
    return (
        min(job.software.gather_bytes, job.frozen_bytes) * part.held_params
        + BYTES_16BIT * part.trained_params
    )


def _reduced_bytes(job: Job, part: _StatePart) -> float:
    """Return the bytes of whole tensors that pass once a step."""
    gradient_bytes = {"zero3": 0.0, "zero2": BYTES_16BIT}.get(
        job.layout.sharding, 2 * BYTES_16BIT
    )
    return gradient_bytes * part.trained_params if part.group.size > 1 else 0.0


def _buckets(part: _StatePart) -> float:
    """Return the buckets of the gradients of a rank, each of which is a collective by itself.

    parameters / max(40 million, a million for each rank of the group), one at least
    """
    if not part.trained_params:
        return 0.0
    return max(1.0, part.trained_params / _bucket_params(part.group.size))


@cache
def _bucket_params(ranks: float) -> float:
    """Return the parameters of a bucket that so many ranks sum."""
    return PARAMS_PER_MILLION * max(
        constant("gradient_bucket", "least"),
        constant("gradient_bucket", "rank") * ranks,
    )


def _summed_bytes(part: _StatePart) -> float:
    """Return the bytes of whole tensors that the groups of hybrid sharding sum once a step."""
    return 2 * BYTES_16BIT * part.trained_params / part.group.size
