"""Groups of ranks that hold parts or copies of one tensor, and the wires between them.

Ranks are numbered with tensor parallelism innermost, then context, data and pipeline
parallelism. Experts are spread over `ep` neighboring ranks of a stage, so the ranks with the
same experts are `ep` apart. Neighboring ranks share a link.

Source: rank order tp-cp-ep-dp-pp of Megatron Core (parallel_state.py).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from planner.perf.training.job import Job


class RankGroup(Struct, frozen=True):
    """Ranks that exchange a tensor.

    size        ranks of the group
    link_ranks  ranks of it that share a link
    """

    size: float
    link_ranks: float

    @property
    def link_share(self) -> float:
        """Return the bytes over the link of a rank for each byte of a gathered tensor."""
        return 1 - 1 / self.link_ranks

    @property
    def network_share(self) -> float:
        """Return the bytes over the network of a rank for each byte of a gathered tensor.

        (1 - g / n) / g: g ranks on one link share what comes from the other n - g.
        """
        return (1 - self.link_ranks / self.size) / self.link_ranks

    @property
    def link_doublings(self) -> float:
        """Return the doublings of ranks on one link: steps of a tree."""
        return math.log2(self.link_ranks)

    @property
    def network_doublings(self) -> float:
        """Return the doublings of links that the group spans: steps of a tree."""
        return math.log2(self.size / self.link_ranks)

    @property
    def is_on_network(self) -> bool:
        """Whether the group spans more than one link."""
        return self.size > self.link_ranks


def tensor_group(job: Job) -> RankGroup:
    """Return the ranks over which tensors are cut."""
    return _group(job, job.layout.tp, 1)


def context_group(job: Job) -> RankGroup:
    """Return the ranks that hold the parts of one sequence."""
    return _group(job, job.layout.cp, job.layout.tp)


def exchange_group(job: Job) -> RankGroup:
    """Return the ranks over which experts are spread."""
    return _group(job, job.layout.ep, 1)


def dense_shard_group(job: Job) -> RankGroup:
    """Return the ranks that shard the states of everything but experts."""
    return _group(job, job.layout.shard_group, job.layout.tp)


def expert_shard_group(job: Job) -> RankGroup:
    """Return the ranks that shard the states of one part of the experts.

    Without expert parallelism experts are cut and copied as everything else is.
    """
    layout = job.layout
    if layout.ep == 1:
        return dense_shard_group(job)
    return _group(
        job, max(1.0, layout.shard_group * layout.tp / layout.ep), layout.ep
    )


def replica_group(job: Job) -> RankGroup:
    """Return the ranks with the same part of the states, one of each group of hybrid sharding."""
    layout = job.layout
    return _group(
        job,
        layout.data_parallel_ranks / layout.shard_group,
        layout.shard_group * layout.tp,
    )


def _group(job: Job, size: float, stride: int) -> RankGroup:
    """Return a group of `size` ranks that are `stride` apart."""
    return RankGroup(size, max(1.0, min(size, job.link_ranks / stride)))
